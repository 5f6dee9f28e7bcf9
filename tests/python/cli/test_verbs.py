"""`onecopy ls`, `warm`, `evict` and `verify` over real files, as a user runs them: in a process of their own."""

import json
import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.page_cache import forget, pages_in_cache
from tests.support.places import GOLDEN
from tests.support.programs import NEEDS_BENCH
from tests.support.safetensors_files import write_safetensors
from tests.support.shards import ARRAYS, shard_of, write_set

import onecopy as oc

pytestmark = pytest.mark.processes


@pytest.fixture
def model(tmp_path):
    tensors = {"layer.0.weight": os.urandom(5000), "layer.1.weight": os.urandom(70_000), "bias": b"12345678"}
    return write_safetensors(tmp_path / "model.safetensors", tensors)


def test_ls_shows_every_array_with_size_and_share(onecopy_process, model):
    done = onecopy_process("ls", model)
    assert (done.returncode, done.stderr) == (0, "")
    heading, titles, *rows, summary = done.stdout.splitlines()
    assert heading == f"{model}: safetensors"
    assert titles.split() == ["name", "dtype", "shape", "size", "align", "resident"]
    assert [row.split()[0] for row in rows] == ["layer.0.weight", "layer.1.weight", "bias"]
    assert rows[1].split()[1:5] == ["U8", "70000", "70.0", "kB"]
    assert rows[0].endswith("100 %")
    assert summary.startswith("3 arrays, 75.0 kB, aligned to ")
    assert "100 % resident" in summary


def test_looking_does_not_warm(onecopy_process, tmp_path):
    path = write_safetensors(tmp_path / "big.safetensors", {"big": bytes(64_000_000)})
    forget(path)
    facts = json.loads(onecopy_process("ls", path, "--json").stdout)
    assert facts["arrays"][0]["cached"] < 32_000_000  # the header is read, and what is read ahead with it


def test_ls_sorts_matches_names_and_reports_the_truth_in_json(onecopy_command, model):
    first, second, bias = "layer.0.weight", "layer.1.weight", "bias"
    orders = {"offset": [first, second, bias], "name": [bias, first, second], "size": [second, first, bias]}
    for order, names in orders.items():
        facts = json.loads(onecopy_command("ls", model, "--json", "--sort", order).stdout)
        assert [array["name"] for array in facts["arrays"]] == names
        assert all(array["cached"] == array["nbytes"] for array in facts["arrays"])
    found = facts["arrays"][-1]
    assert model.read_bytes()[found["offset"] : found["offset"] + found["nbytes"]] == b"12345678"
    assert (found["dtype"], found["shape"], found["offset"] % found["alignment"]) == ("U8", [8], 0)
    done = onecopy_command("ls", model, "--names", "layer.*")
    assert "bias" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("2 of 3 arrays, 75.0 kB")


def test_ls_of_an_empty_array_divides_by_nothing(onecopy_command, tmp_path):
    path = write_safetensors(tmp_path / "model.safetensors", {"empty": b"", "full": b"12345678"})
    done = onecopy_command("ls", path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[2].split()[0] == "empty"


def test_a_reader_that_leaves_early_hears_nothing_more(tmp_path):
    path = write_safetensors(tmp_path / "many.safetensors", {f"tensor.{i}": b"" for i in range(5000)} | {"x": b"1"})
    command = f"{sys.executable} -m onecopy ls {path} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split()[-1] == "141"


@pytest.mark.parametrize("verb", [["ls"], ["warm"], ["evict"], pytest.param(["bench", "open"], marks=NEEDS_BENCH)])
def test_a_missing_file_is_one_line_with_its_name(onecopy_command, tmp_path, verb):
    done = onecopy_command(*verb, tmp_path / "nothing\x1b[2J")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"onecopy: {tmp_path}/nothing\\x1b[2J: ")
    assert done.stderr.endswith("No such file or directory\n")
    assert done.stderr.count("\n") == 1


def test_warm_fills_the_cache_and_reports(onecopy_process, model):
    forget(model)
    assert "Not all of it is in memory." in onecopy_process("warm", model, "--max-bytes", "4KiB").stdout
    done = onecopy_process("warm", model)
    assert (done.returncode, done.stderr) == (0, "")
    assert 0 not in pages_in_cache(model)
    assert "now 100 %" in done.stdout.replace("\n", " ")
    assert ("GiB/s" in done.stdout, "Not all" in done.stdout) == (True, False)
    forget(model)
    report = json.loads(onecopy_process("warm", model, "--json", "--threads", "2").stdout)
    size = model.stat().st_size  # the header is read, and what is read ahead with it
    assert report["cached_before"] < size <= report["cached_after"]
    assert report["complete"] is True
    assert isinstance(report["mechanism"], str)


@pytest.fixture
def pair(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(os.urandom(1_048_576))
        forget(path)
    return paths


def test_warm_takes_several_files_and_one_budget_for_all_that_is_not_in_memory(onecopy_command, pair, tmp_path):
    reports = json.loads(onecopy_command("warm", *pair, "--max-bytes", "1.5MiB", "--json").stdout)
    assert [report["file"] for report in reports] == [str(path) for path in pair]
    assert [report["filled"] for report in reports] == [1_048_576, 524_288]
    kept = oc.Mapping(pair[0])
    oc.files.pin(kept)  # some kernels drop untouched pages within seconds
    forget(pair[1])
    reports = json.loads(onecopy_command("warm", *pair, "--max-bytes", "1MiB", "--json").stdout)
    assert [report["filled"] for report in reports] == [0, 1_048_576]
    told = [line for line in onecopy_command("warm", *pair).stdout.splitlines() if line.startswith(str(tmp_path))]
    assert told[0] == f"{pair[0]}: 1.05 MB, nothing to do."
    assert told[1].startswith(f"{pair[1]}: ")
    assert "now 100 %" in told[1] or told[1].endswith("nothing to do.")


def test_warm_takes_names_of_arrays(onecopy_command, model):
    done = onecopy_command("warm", model, "--names", "layer.*", "--json")
    assert 75_000 <= json.loads(done.stdout)["bytes"] < 75_000 + 3 * mmap.PAGESIZE
    done = onecopy_command("warm", model, "--names", "nothing*")
    assert (done.returncode, done.stdout) == (1, "")
    assert "none of the 3 arrays in " in done.stderr
    assert "matches 'nothing*'" in done.stderr


def test_evict_reports_per_file(onecopy_command, model, pair):
    done = onecopy_command("evict", model, pair[0])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("now 0 %") == 2
    assert 1 not in pages_in_cache(model)
    reports = json.loads(onecopy_command("evict", model, pair[0], "--json").stdout)
    assert [(report["file"], report["cached_after"]) for report in reports] == [(str(model), 0), (str(pair[0]), 0)]


def test_a_damaged_file_is_warmed_as_bytes_with_a_warning(onecopy_process, tmp_path):
    path = tmp_path / "cut.safetensors"
    oc.save(path, {"w": np.ones(100_000)})
    os.truncate(path, 500_000)
    done = onecopy_process("warm", path)
    assert done.returncode == 0
    assert "the file is truncated, or its header is wrong; the file is mapped as bytes" in done.stderr


# --- verify -----------------------------------------------------------------------------------------------------------


BLOCK = 2 << 20


def damaged(path: Path, *offsets: int) -> Path:
    with path.open("r+b") as file:
        for offset in offsets:
            os.pwrite(file.fileno(), b"\xff", offset)
    return path


def saved(path: Path) -> Path:
    oc.save(path, {"a": np.zeros(BLOCK, np.uint8), "b": np.zeros(BLOCK, np.uint8)})
    return path


def test_a_whole_file_is_verified_also_while_it_is_warmed(onecopy_command, tmp_path):
    path = saved(tmp_path / "m")
    for words, said in (("verify", "all bytes match the stored checksums"), ("warm --verify", "The checksums of")):
        done = onecopy_command(*words.split(), path)
        assert (done.returncode, done.stderr, said in " ".join(done.stdout.split())) == (0, "", True)
    done = onecopy_command("warm", "--verify", damaged(saved(tmp_path / "bad"), 5000))
    assert (done.returncode, "damaged" in done.stderr) == (1, True)
    (facts,) = json.loads(onecopy_command("verify", "--json", path, "--names", "a").stdout)
    assert (facts["status"], facts["bytes"]) == ("ok", 2 * BLOCK - 4096)


def test_damaged_files_are_reported_and_the_others_still_verified(onecopy_process, tmp_path):
    bad, good = damaged(saved(tmp_path / "bad"), 5000, 3 * BLOCK // 2), saved(tmp_path / "good")
    done = onecopy_process("verify", bad, tmp_path / "missing", good)
    assert done.returncode == 1
    assert "all bytes match" in " ".join(done.stdout.split())
    words = " ".join(done.stderr.split())
    for said in (
        "2 of 3 blocks are damaged",
        f"block 0, bytes 4096 to {BLOCK}: a (CRC-32C",
        "missing: open: No such file",
    ):
        assert said in words
    listed = json.loads(onecopy_process("verify", "--json", bad, good).stdout)
    assert [facts["status"] for facts in listed] == ["damaged", "ok"]
    assert [block["number"] for block in listed[0]["blocks"]] == [0, 1]


def test_nothing_to_compare_with_is_another_status_than_damage(onecopy_command, model):
    done = onecopy_command("verify", model)
    assert done.returncode == 3
    assert onecopy_command("verify", model, "nothing").returncode == 1
    assert "without checksums" in " ".join(done.stderr.split())


# --- several files as one ---------------------------------------------------------------------------------------------


MODELS = GOLDEN / "onnx"


@pytest.fixture
def index(tmp_path):
    return write_set(tmp_path)


def test_ls_warm_evict_and_verify_take_a_set_and_ls_reports_what_it_is(index, cached, onecopy_command):
    shards = [index.parent / shard_of(at) for at in range(3)]
    facts = json.loads(onecopy_command("ls", "--json", index).stdout)
    assert facts["container"] == "safetensors set"
    assert [array["name"] for array in facts["arrays"]] == list(ARRAYS)
    assert {array["file"] for array in facts["arrays"]} == set(map(str, shards))
    assert onecopy_command("evict", index).returncode == 0
    assert cached(shards[2]) == 0
    report = json.loads(onecopy_command("warm", "--json", index).stdout)
    assert (report["complete"], report["bytes"]) == (True, sum(shard.stat().st_size for shard in shards))
    assert cached(shards[2]) > 0
    done = onecopy_command("verify", index)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all bytes match" in done.stdout
    for path, container in ((index, "safetensors set, 3 files"), (MODELS / "small.onnx", "onnx")):
        assert onecopy_command("ls", path).stdout.splitlines()[0] == f"{path}: {container}"


def test_warm_of_an_onnx_model_warms_its_data_too(tmp_path, cached, onecopy_command):
    for name in ("external.onnx", "external.bin"):
        shutil.copy(MODELS / name, tmp_path)
    for verb, is_cached in (("evict", False), ("warm", True)):
        assert onecopy_command(verb, tmp_path / "external.onnx").returncode == 0
        assert (cached(tmp_path / "external.bin") > 0) == is_cached


@pytest.mark.parametrize("verb", ["ls", "warm", "verify"])
def test_a_missing_shard_is_one_line(index, onecopy_command, verb):
    (index.parent / shard_of(1)).unlink()
    done = onecopy_command(verb, index)
    assert (done.returncode, done.stdout) == (1, "")
    text = done.stderr.replace("\n", "")  # `verify` folds it
    assert text.startswith("onecopy: ")
    assert shard_of(1) in text
    assert str(index) in text
