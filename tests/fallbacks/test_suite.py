"""The tests of the modules that call the kernel, run again with refused calls; `make fallbacks` runs all of them."""

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
STORE = ["python/store/test_store.py", "processes/store/test_store_races.py"]
SCRATCH = [
    "python/scratch_arrays/test_scratch_arrays.py",
    "processes/scratch_arrays/test_scratch_disks.py",
    "processes/scratch_arrays/test_scratch_sharing.py",
]
IMAGES = [
    f"../packages/images/tests/test_{name}.py"
    for name in ("image_opening", "image_processes", "mosaic_processes", "image_sharing_processes")
]
PROCESSES = [f"processes/arrays/test_{name}.py" for name in ("other_users", "sharing", "truncation", "writer_faults")]
# Where each of them matters; what is left out is what could not notice.
MATTERS = {
    "no cachestat": ["python/page_cache/test_residency.py", "processes/arrays/test_other_users.py", *SCRATCH],
    "cachestat forbidden": ["python/page_cache/test_residency.py"],
    "no MADV_POPULATE_READ": ["python/page_cache/test_residency.py", "processes/arrays/test_truncation.py"],
    "no O_TMPFILE": [*SAVING, *SCRATCH],
    "no memfd_create": ["python/project/test_examples.py"],
    "process_vm_readv forbidden": ["processes/arrays/test_truncation.py"],
    "no PAGEMAP_SCAN": ["processes/arrays/test_sharing.py", "processes/arrays/test_other_users.py"],
    "no MADV_HUGEPAGE": ["processes/arrays/test_sharing.py"],
    "no O_DIRECT": [
        "python/top/test_files.py",
        "python/scratch_arrays/test_scratch_arrays.py",
        "../packages/images/tests/test_image_window.py",
    ],
    "no F_OFD_SETLK": STORE,
    "no fallocate": [*SAVING, *SCRATCH, *IMAGES],
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
def test_the_other_rooms_pass_with_everything_refused_together(tmp_path):
    suite_passes(ALL, [*STORE, *SCRATCH, *PROCESSES], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", REFUSED)
def test_the_tests_where_it_matters_pass_with_one_thing_refused(name, tmp_path):
    suite_passes(REFUSED[name], MATTERS[name], tmp_path)
