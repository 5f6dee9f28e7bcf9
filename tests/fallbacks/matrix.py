"""The fast tests of what reaches the kernel, in every setting: what `make fallbacks` runs; some 90 minutes.

One line per setting, as many at a time as there are CPUs; the full output of each is kept in build/fallbacks/.
"""

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fallbacks.settings import Setting, settings

LOGS = Path("build/fallbacks")
MODULES = ["arrays", "records", "page_cache", "scratch_arrays", "store", "top"]
TESTS = [*(f"tests/python/{module}" for module in MODULES), "tests/processes", "tests/hostile"]


def run(setting: Setting) -> tuple[bool, str]:
    """Run the suite in a folder that another user may write to; return whether all passed, and the counts."""
    if setting.obstacle:
        return True, f"not here: {setting.obstacle}"
    with tempfile.TemporaryDirectory(prefix="onecopy-fallbacks-") as folder:
        Path(folder).chmod(0o777)
        suite = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not nightly", f"--basetemp={folder}/tmp"]
        done = subprocess.run(
            [*setting.command, *suite, "-o", f"cache_dir={folder}/cache", *(sys.argv[1:] or TESTS)],
            env={**os.environ, "HOME": folder, "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    (LOGS / f"{setting.name.replace(' ', '-')}.log").write_text(done.stdout)
    return done.returncode == 0, done.stdout.strip().rpartition("\n")[2]


def main() -> int:
    """Print a line per setting; 1 if a test failed in any."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would hand on "ignored"
    LOGS.mkdir(parents=True, exist_ok=True)
    good = True
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = settings()
        for setting, (passed, counts) in zip(rows, pool.map(run, rows), strict=True):
            good = good and passed
            print(f"{'ok  ' if passed else 'FAIL'}  {setting.name:<28} {counts}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
