"""A sample of the changes of `tests.hostile.mutations`; `make nightly` tries more."""

import subprocess
import sys

import pytest
from tests.support.places import ROOT
from tests.support.rounds import rounds

pytestmark = [pytest.mark.unsanitized]  # AddressSanitizer's memory is counted too


@pytest.mark.timeout(3600)
def test_changed_files_are_refused_or_read() -> None:
    count = rounds(10_000, 1_000_000)
    command = [sys.executable, "-m", "tests.hostile.mutations", "--count", str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused" in done.stdout
