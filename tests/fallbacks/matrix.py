"""The whole Python suite in every setting, and once as the machine is: what `make fallbacks` runs; some 20 minutes.

One line per setting; the full output of each is kept in build/fallbacks/.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fallbacks.settings import Setting, settings

LOGS = Path("build/fallbacks")


def run(setting: Setting) -> tuple[bool, str]:
    """Run the suite in a folder that another user may write to; return whether all passed, and the counts."""
    if setting.obstacle:
        return True, f"not here: {setting.obstacle}"
    with tempfile.TemporaryDirectory(prefix="onecopy-fallbacks-") as folder:
        Path(folder).chmod(0o777)
        ignored = [f"--ignore={name}" for name in ("tests/fallbacks", *setting.without)]
        suite = [sys.executable, "-m", "pytest", "-q", *ignored, f"--basetemp={folder}/tmp"]
        done = subprocess.run(
            [*setting.command, *suite, "-o", f"cache_dir={folder}/cache", *sys.argv[1:]],
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
    for setting in [Setting("as the machine is", []), *settings()]:
        passed, counts = run(setting)
        good = good and passed
        print(f"{'ok  ' if passed else 'FAIL'}  {setting.name:<28} {counts}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
