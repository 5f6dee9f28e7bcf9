"""The fast tests of what reaches the kernel, in every setting: what `make fallbacks` runs; some 90 minutes.

With "field", the tests of places where users run (`make field`; `tests.fallbacks.field`), in five minutes. One line per
setting, as many at a time as there are CPUs; the full output of each is kept in build/fallbacks/.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fallbacks.field import places
from tests.fallbacks.settings import Setting, settings

LOGS = Path("build/fallbacks")
MODULES = ["arrays", "page_cache", "scratch_arrays", "store", "top"]
TESTS = [
    *(f"tests/python/{module}" for module in MODULES),
    "tests/processes",
    "tests/hostile",
    "packages/records/tests",
]


def run(setting: Setting) -> tuple[bool, str]:
    """Run a setting in a folder that another user may write to; return whether all passed, and the counts."""
    if setting.obstacle:
        return True, f"not here: {setting.obstacle}"
    with tempfile.TemporaryDirectory(prefix="onecopy-fallbacks-") as folder:
        Path(folder).chmod(0o777)
        done = subprocess.run(
            setting.command,
            env={
                **os.environ,
                "HOME": folder,
                "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis",
                "PYTEST_ADDOPTS": f"--basetemp={folder}/tmp -o cache_dir={folder}/cache",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    name = re.sub(r"\W+", "-", setting.name)
    (LOGS / f"{name}.log").write_text(done.stdout)
    return done.returncode == 0, done.stdout.strip().rpartition("\n")[2]


def main() -> int:
    """Print a line per setting; 1 if a test failed in any."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would hand on "ignored"
    LOGS.mkdir(parents=True, exist_ok=True)
    good = True
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        suite = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not nightly", *(sys.argv[1:] or TESTS)]
        all_of_them = [Setting(one.name, [*one.command, *suite], one.obstacle) for one in settings()]
        rows = places() if sys.argv[1:] == ["field"] else all_of_them
        for setting, (passed, counts) in zip(rows, pool.map(run, rows), strict=True):
            good = good and passed
            print(f"{'ok  ' if passed else 'FAIL'}  {setting.name:<28} {counts}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
