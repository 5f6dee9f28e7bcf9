"""Generated programs that load files and write to them return the same under `onecopy run`.

24 programs; with ONECOPY_TORTURE=1, 1,000. Seeds 0 to 9,999 were run once, before the first release of snapshots.
"""

import json
import os
import subprocess
import sys

import pytest
from tests.support.rounds import rounds
from tests.support.same_answers import ROOT

PROGRAMS = rounds(24)
SEED = 20_000

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120 + 2 * PROGRAMS)]


def lines_of(folder, *before):
    folder.mkdir()
    options = ["--first", str(SEED), "--count", str(PROGRAMS), "--folder", str(folder)]
    command = [*before, sys.executable, "-W", "ignore", "-m", "tests.support.write_programs", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_programs_return_the_same(tmp_path):
    pytest.importorskip("joblib", reason="joblib is not installed")
    report = tmp_path / "report.json"
    run = [sys.executable, "-m", "onecopy", "run", "-q", "--report", str(report), "--"]
    plain, shared = lines_of(tmp_path / "plain"), lines_of(tmp_path / "run", *run)
    assert len(plain) == len(shared) == PROGRAMS
    for one, other in zip(plain, shared, strict=True):
        assert one == other
    assert json.loads(report.read_text())["shared"]
