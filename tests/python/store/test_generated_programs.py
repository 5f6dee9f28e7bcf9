"""A cached function returns what the function returns, whatever was changed in its program."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.support.places import ROOT


def found_by(program: str, *arguments: object, hash_seed: str = "0") -> dict[str, Any]:
    """Run a program of tests/support, and return the JSON that it prints."""
    command = [sys.executable, "-m", f"tests.support.{program}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 60), *(pytest.param(first, 500, marks=pytest.mark.nightly) for first in range(1000, 4000, 500))],
)
def test_results_are_those_of_the_function_in_this_process_and_the_next(tmp_path, first, count):
    """About 3.5 programs a seed: 10,000 in `make nightly`. The second process finds all results of the first."""
    arguments = ("generated_programs", tmp_path / "store", first, count)
    before, after = (found_by(*arguments, hash_seed=seed) for seed in ("1", "2"))
    assert before["wrong"] == after["wrong"] == []
    assert count < before["built"] < before["called"]
    assert (after["built"], after["called"]) == (0, before["called"])


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 24), *(pytest.param(first, 498, marks=pytest.mark.nightly) for first in range(1002, 3500, 498))],
)
def test_an_edited_program_never_has_the_key_of_another_result(tmp_path, first, count):
    """Wherever it is installed. Five programs a seed: 10,000 in `make nightly`; the fifth is the first again."""
    found = found_by("edited_programs", tmp_path, first, count)
    assert found["stale"] == found["missed"] == []
    assert found["run"] == 5 * count == 2 * found["places"]["installed"]
