"""No two programs with different results have one key, wherever they are installed and whatever was edited in them."""

import json
import subprocess
import sys

import pytest
from tests.support.places import ROOT


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 24), *(pytest.param(first, 498, marks=pytest.mark.nightly) for first in range(1002, 3500, 498))],
)
def test_an_edited_program_never_has_the_key_of_another_result(tmp_path, first, count):
    """Five programs a seed: 10,000 in `make nightly`, half of them installed; the fifth is the first again."""
    command = [sys.executable, "-m", "tests.support.edited_programs", tmp_path, str(first), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found = json.loads(done.stdout)
    assert found["stale"] == found["missed"] == []
    assert found["run"] == 5 * count == 2 * found["places"]["installed"]
