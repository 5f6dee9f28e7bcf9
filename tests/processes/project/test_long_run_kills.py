"""The driver of long runs finds nothing in the library, and each bug that is planted in it.

20 seconds of it; with ONECOPY_TORTURE=1, a minute.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.places import ROOT
from tests.support.rounds import rounds, rows

SECONDS = rounds(20, 60)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PLANT = """
import os, sys
import onecopy as oc
from onecopy.arrays.file import OneFile
from tests.support import long_run

open_, get, save, calls = oc.open, OneFile.__getitem__, oc.save, []

def every(times):
    calls.append(0)
    return len(calls) % times == 0

def leaking_open(path, *arguments, **options):
    file = open_(path, *arguments, **options)
    if every(10):
        os.open(file.path, os.O_RDONLY)
    return file

def wrong_byte(self, name):
    array = get(self, name)
    if name == "content" and every(20):  # in any other array, an error of what reads it may come first
        array = array.copy()
        array[-1] ^= 1
    return array

def save_beside(path, *arguments, **options):
    save(path, *arguments, **options)
    if every(10):
        open(f"{path}.tmp", "w").close()
"""
PLANTED = {
    "nothing": ("", ""),
    "a descriptor": ("oc.open = leaking_open", "left behind: /"),
    "a wrong byte": ("OneFile.__getitem__ = wrong_byte", ": wrong bytes of seed "),
    "a temporary file": ("oc.save = save_beside", "left behind: "),
    "a private copy": ("oc.open = lambda path, *_, **options: open_(path, 'copy')", "3 readers of "),
}


EACH_TIME = ("nothing", "a wrong byte")


@pytest.mark.parametrize("bug", rows(PLANTED, EACH_TIME))
def test_the_driver_reports_what_was_planted_and_nothing_else(tmp_path: Path, bug: str) -> None:
    plant, message = PLANTED[bug]
    code = f"{PLANT}\n{plant}\nsys.exit(long_run.main(sys.argv[1:]))"
    options = ["--minutes", str(SECONDS / 60), "--state", str(tmp_path / "state"), "--seed", "0"]
    command = [sys.executable, "-c", code, *options]
    environment = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250, check=False)
    if not plant:
        assert done.returncode == 0, done.stdout + done.stderr
        assert " round 2, seed 0: " in done.stdout
        assert [path.name for path in tmp_path.iterdir()] == ["state"]
        return
    assert done.returncode == 1, done.stdout + done.stderr
    (failure,) = (line for line in done.stdout.splitlines() if line.startswith("FAILED"))
    assert "seed 0: " in failure
    assert message in done.stdout, done.stdout
    assert [path.name for path in tmp_path.glob("onecopy-long-*/files/0.oc")] == ["0.oc"]  # the folder is kept
