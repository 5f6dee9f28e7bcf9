"""`onecopy bench warm` and `onecopy bench crossover` as commands."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.screens import widest_of_tables

from onecopy_bench.engine.options import as_read_aheads
from onecopy_bench.engine.record import parse, read


@pytest.fixture
def big(tmp_path):
    path = tmp_path / "big.bin"
    path.write_bytes(os.urandom(2_000_000))
    return path


@pytest.mark.slow
def test_warm_prints_a_table_and_writes_a_record(onecopy_process, big, tmp_path):
    out, page = tmp_path / "r.jsonl", tmp_path / "r.md"
    done = onecopy_process(
        "bench", "warm", big, "--iterations", "1", "--idle-wait", "0", "--json", out, "--markdown", page
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "willneed-stepped" in done.stdout
    assert widest_of_tables(done.stdout) <= 80
    (record,) = read(out)
    assert record.data["file"] == "big.bin"
    assert str(tmp_path) not in out.read_text()
    assert "| touch |" in page.read_text()


def test_crossover_prints_who_wins_and_what_is_held(onecopy_process, big):
    done = onecopy_process(
        "bench", "crossover", big, "--place", "disk", "--share", "50", "--method", "map", "--method", "copy",
        "--passes", "2", "--iterations", "1", "--idle-wait", "0", "--order", "file",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("disk, touched in the order of the file", "2 passes", "MB held after the last pass", "50 %"):
        assert words in done.stdout
    assert widest_of_tables(done.stdout) <= 80


def test_a_record_on_stdout_is_alone_there(onecopy_process, big):
    done = onecopy_process(
        "bench", "crossover", big, "--place", "disk", "--share", "100", "--method", "map", "--passes", "1",
        "--iterations", "1", "--idle-wait", "0", "--order", "file", "--json", "-",
    )  # fmt: skip
    assert {s.row for s in parse(done.stdout)[0].samples} == {
        "map",
        "o_direct-reused-4",
        "first-touch-4k",
        "first-touch-huge",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("warm", "--read-ahead", "fast"), "'fast' is not a size such as 500MB or 2GiB, nor 'device'"),
        (("warm", "--read-ahead", "1000"), "'1000' is not a multiple of 1 KiB"),
        (("warm", "--json", "no/such/folder.json"), "no folder for 'no/such/folder.json'"),
        (("crossover", "--throttle", "slow"), "'slow' is not a size"),
        (("crossover", "--share", "0"), "0.0 is not in the range 0<x<=100"),
        (("crossover", "--plot", "no/such/folder.svg"), "no folder for"),
    ],
)
def test_a_wrong_option_is_a_wrong_command_line(onecopy_process, big, arguments, words):
    done = onecopy_process("bench", *arguments, big)
    assert done.returncode == 2
    assert words in done.stderr


def test_read_aheads_are_bytes_whatever_their_suffix():
    assert as_read_aheads(None, None, ("device", "128K", "128KiB", "8MiB")) == (None, 131072, 8 << 20)


def children_of(pid: int) -> str:
    return "".join(task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children"))


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_disk_no_group_and_no_process(big, tmp_path, number):
    if os.geteuid() != 0:
        pytest.skip("disks and groups need root")
    command = [sys.executable, "-m", "onecopy", "bench", "crossover", big, "--place", "slow", "--place", "tight"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not (
            str(tmp_path) in Path("/proc/self/mountinfo").read_text() and children_of(process.pid)
        ):
            time.sleep(0.01)
        if process.poll() is not None:
            pytest.skip(f"no loop device here: {process.communicate()[1].decode()}")
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (130, b"onecopy: interrupted")
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert list(tmp_path.iterdir()) == [big]
    assert not list(Path("/sys/fs/cgroup").rglob(f"onecopy-bench-{process.pid}-*"))
