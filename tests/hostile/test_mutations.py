"""A sample of the changes of `tests.hostile.mutations`; `make nightly` tries more."""

import subprocess
import sys

import pytest
from tests.support.places import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.unsanitized]  # AddressSanitizer's memory is counted too


def try_changes(first: int, count: int) -> None:
    command = [sys.executable, "-m", "tests.hostile.mutations", "--first", str(first), "--count", str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} changes: " in done.stdout


def test_changed_files_are_refused_or_read() -> None:
    try_changes(0, 10_000)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_million_changed_files_are_refused_or_read() -> None:
    try_changes(10_000, 1_000_000)
