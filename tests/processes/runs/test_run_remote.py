"""Unmodified programs on files of a file system in user space: read once per machine, and never stale."""

import json
import os
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import call_in_child
from tests.support.fuse_disk import Faults, fuse_disk
from tests.support.fuse_models import skip_without_fuse
from tests.support.same_answers import run_reported

MIB = 1 << 20
SIZE = 24 * MIB
OLD = 1_700_000_000
PROGRAM = """
    import subprocess, sys
    import numpy as np
    if len(sys.argv) > 2:
        one = [sys.executable, sys.argv[0], sys.argv[1]]
        for process in [subprocess.Popen(one) for _ in range(4)]:
            assert process.wait() == 0
    array = np.load(sys.argv[1])
    array[0] += 1  # as the plain call: writable
    print(f"{array.sum()}\\n", end="")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Make the folder that is served, with one array of ones that was written long ago."""
    skip_without_fuse(tmp_path / "probe")
    (tmp_path / "source").mkdir()
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    write(tmp_path / "source/array.npy", 1)
    return tmp_path / "source"


def write(path: Path, value: int, changed: float = OLD) -> None:
    np.save(path, np.full(SIZE, value, np.uint8))
    os.utime(path, (changed, changed))


def run(folder: Path, *more: str) -> tuple[list[str], dict]:
    program = (sys.executable, folder.parent / "program.py", folder / "array.npy")
    printed, report = run_reported(*program, *more, folder=folder.parent)
    return printed.split(), report


def on_disk(source: Path, work) -> object:
    def child() -> object:
        with fuse_disk(source.parent / "fuse", source) as faults:
            return work(source.parent / "fuse", faults)

    return call_in_child(child)


def test_the_server_sends_a_file_once_for_all_processes_of_a_run(source):
    def work(folder: Path, faults: Faults) -> object:
        lines, report = run(folder, "many")
        return lines, json.dumps(report), faults.bytes

    lines, report, sent = on_disk(source, work)
    assert lines == [str(SIZE + 1)] * 5
    assert SIZE <= sent <= 1.05 * SIZE
    assert "array.npy" in report


def test_a_file_that_its_server_changed_is_read_again(source):
    def work(folder: Path, faults: Faults) -> object:
        first, _ = run(folder)
        write(source / "array.npy", 2, OLD + 1)  # of the same size
        second, _ = run(folder)
        return first, second

    assert on_disk(source, work) == ([str(SIZE + 1)], [str(2 * SIZE + 1)])


def test_a_file_that_was_changed_within_a_minute_is_read_by_each_process(source):
    def work(folder: Path, faults: Faults) -> object:
        write(source / "array.npy", 1, time.time() - 30)
        lines, report = run(folder, "many")
        return lines, json.dumps(report), faults.bytes

    lines, report, _ = on_disk(source, work)
    assert lines == [str(SIZE + 1)] * 5
    assert "changed less than a minute ago" in report
