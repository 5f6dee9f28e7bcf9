"""Unmodified programs on files of a file system in user space: read once per machine, and never stale."""

import json
import os
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
from tests.support.children import in_a_child
from tests.support.fuse_disk import fuse_disk
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


def write(path: Path, value: int, changed: float) -> None:
    np.save(path, np.full(SIZE, value, np.uint8))
    os.utime(path, (changed, changed))


def test_a_file_of_a_server_is_read_once_for_a_run_and_never_stale(tmp_path: Path) -> None:
    skip_without_fuse(tmp_path / "probe")
    source, folder = tmp_path / "source/array.npy", tmp_path / "fuse"
    source.parent.mkdir()
    write(source, 1, OLD)
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))

    def run(*more: str) -> tuple[list[str], str]:
        program = (sys.executable, tmp_path / "program.py", folder / source.name)
        printed, report = run_reported(*program, *more, folder=tmp_path)
        return printed.split(), json.dumps(report)

    @in_a_child
    def read() -> None:
        with fuse_disk(folder, source.parent) as faults:
            lines, report = run("many")
            assert lines == [str(SIZE + 1)] * 5
            assert SIZE <= faults.bytes <= 1.05 * SIZE
            assert "array.npy" in report
            write(source, 2, OLD + 1)  # of the same size
            assert run()[0] == [str(2 * SIZE + 1)]
            write(source, 1, time.time() - 30)
            lines, report = run("many")
            assert lines == [str(SIZE + 1)] * 5
            assert "changed less than a minute ago" in report

    read()
