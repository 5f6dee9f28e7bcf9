"""The tests of the modules that call the kernel, run again with refused calls; `make fallbacks` runs more of them."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.fallbacks.settings import ALL, REFUSED, RUN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
MODULES = [
    "python/page_cache/test_residency.py",
    "python/arrays/test_arrays_residency.py",
    "python/page_cache/test_jobs.py",
    "python/top/test_files.py",
]
SAVING = ["python/arrays/test_saving_files.py", "processes/arrays/test_save_streams.py"]
# Tests that the matrix does not run, with what they are sensitive to.
MATTERS = {
    "no memfd_create": ["python/project/test_examples.py"],
    "no O_DIRECT": ["../packages/images/tests/test_image_window.py"],
    "no fallocate": [
        f"../packages/images/tests/test_{name}.py"
        for name in ("image_opening", "image_processes", "mosaic_processes", "image_sharing_processes")
    ],
}


def suite_passes(refused: str, files: list[str], folder: Path) -> None:
    places = [f"--basetemp={folder}/tmp", "-o", f"cache_dir={folder}/cache"]
    marks = ["-m", "not slow and not nightly"]  # `make nightly` runs those too, with tests/fallbacks/matrix.py
    suite = [sys.executable, "-m", "pytest", "-q", *marks, *places, *(f"tests/{name}" for name in files)]
    done = subprocess.run(
        [*RUN, "--refuse", refused, "--", *suite], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_rooms_pass_with_everything_refused_together(tmp_path):
    suite_passes(ALL, [*MODULES, *SAVING], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MATTERS)
def test_the_tests_where_it_matters_pass_with_one_thing_refused(name, tmp_path):
    suite_passes(REFUSED[name], MATTERS[name], tmp_path)
