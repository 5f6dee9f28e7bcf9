"""A cached function returns what the function returns, whatever was changed in its program."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.places import ROOT


def compared(store: Path, first: int, count: int, hash_seed: str) -> dict[str, Any]:
    """Compare the programs of some seeds in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.generated_programs", store, str(first), str(count)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 60), *(pytest.param(first, 500, marks=pytest.mark.nightly) for first in range(1000, 4000, 500))],
)
def test_results_are_those_of_the_function_in_this_process_and_the_next(tmp_path, first, count):
    """About 3.5 programs a seed: 10,000 in `make nightly`. The second process finds all results of the first."""
    before, after = (compared(tmp_path / "store", first, count, seed) for seed in ("1", "2"))
    assert before["wrong"] == after["wrong"] == []
    assert count < before["built"] < before["called"]
    assert (after["built"], after["called"]) == (0, before["called"])
