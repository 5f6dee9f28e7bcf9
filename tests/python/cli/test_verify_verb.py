"""`onecopy verify`: exit statuses, words and JSON."""

import json
import os
from pathlib import Path

import numpy as np

import onecopy as oc

BLOCK = 2 << 20


def damaged(path: Path, *offsets: int) -> Path:
    with path.open("r+b") as file:
        for offset in offsets:
            os.pwrite(file.fileno(), b"\xff", offset)
    return path


def saved(path: Path) -> Path:
    oc.save(path, {"a": np.zeros(BLOCK, np.uint8), "b": np.zeros(BLOCK, np.uint8)})
    return path


def test_whole(onecopy_command, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    done = onecopy_command("verify", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "every byte is as it was written" in " ".join(done.stdout.split())
    facts = json.loads(onecopy_command("verify", "--json", path, "--names", "a").stdout)[0]
    assert facts["status"] == "ok"
    assert facts["bytes"] == 2 * BLOCK - 4096


def test_damaged_files_are_reported_and_the_others_still_verified(onecopy_process, tmp_path: Path) -> None:
    bad, good = damaged(saved(tmp_path / "bad"), 5000, 3 * BLOCK // 2), saved(tmp_path / "good")
    done = onecopy_process("verify", bad, tmp_path / "missing", good)
    assert done.returncode == 1
    assert "every byte" in " ".join(done.stdout.split())
    words = " ".join(done.stderr.split())
    assert "2 of 3 blocks are damaged" in words
    assert f"block 0, bytes 4096 to {BLOCK}: a (CRC-32C" in words
    assert "missing: " in words
    assert "No such file or directory" in words
    listed = json.loads(onecopy_process("verify", "--json", bad, good).stdout)
    assert [facts["status"] for facts in listed] == ["damaged", "ok"]
    assert [block["number"] for block in listed[0]["blocks"]] == [0, 1]


def test_nothing_to_compare_with_is_another_status_than_damage(onecopy_command, model: Path) -> None:
    done = onecopy_command("verify", model)
    assert done.returncode == 3
    assert onecopy_command("verify", model, "nothing").returncode == 1
    assert "without checksums" in " ".join(done.stderr.split())


def test_warm_can_verify(onecopy_command, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    done = onecopy_command("warm", "--verify", path)
    assert done.returncode == 0
    assert "Checksums match over" in " ".join(done.stdout.split())
    done = onecopy_command("warm", "--verify", damaged(path, 5000))
    assert done.returncode == 1
    assert "damaged" in done.stderr
