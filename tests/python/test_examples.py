"""Every example in a docstring of a public module runs and shows what it says."""

import doctest
import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


def kernel_has_memfd() -> bool:
    try:
        os.close(os.memfd_create("probe"))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "room", ["files", "residency", "arrays", "sampling", "workers", "integrations.torch", "proc", "cgroup"]
)
def test_the_examples_of_a_module_are_true(room, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not kernel_has_memfd():  # to the examples any new file is as good
        monkeypatch.setattr(os, "memfd_create", lambda name: tempfile.mkstemp(name)[0])
    result = doctest.testmod(importlib.import_module(f"onecopy.{room}"), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_four_workers_hold_one_copy(tmp_path):
    example = Path(__file__).parents[2] / "examples/share_between_workers.py"
    done = subprocess.run(
        [sys.executable, str(example)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    held = int(re.fullmatch(r"4 workers hold (\d+) MB of a file of 64 MB\n", done.stdout)[1])
    assert 60 <= held <= 70  # and not 256
