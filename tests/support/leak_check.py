"""Run the public interface under LeakSanitizer: python -m tests.support.leak_check [--times N].

Only for an interpreter with the sanitized extension (`make sanitized`), started with its run time in LD_PRELOAD.
What the interpreter and other libraries leak is not counted: only blocks whose stack has a function of the extension.
Objects of the extension's classes are always reachable, by nanobind's table of them: test_leak_loop.py counts those.
Status 1 where something leaked.
"""

import argparse
import ctypes
import gc
import os
import re
import sys
import tempfile

from tests.support import api_actions

import onecopy as oc

LEAK = re.compile(
    r"^(?:Direct|Indirect) leak of .*?(?=^(?:Direct|Indirect) leak of |^SUMMARY)", re.MULTILINE | re.DOTALL
)


def leaks_since_start() -> list[str]:
    """Ask LeakSanitizer for what nothing points to; return the reports whose stack has a function of the extension."""
    check = ctypes.CDLL(None).__lsan_do_recoverable_leak_check
    with tempfile.TemporaryFile() as report:
        sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(report.fileno(), 2)
        try:
            check()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        report.seek(0)
        text = report.read().decode(errors="replace")
    return [one for one in LEAK.findall(text) if re.search(r"_core[.\w-]*\.so", one)]


def plant_leak() -> None:
    """Lose a schema that the extension has allocated: no object refers to its capsule, whose count is one too high."""
    capsule = oc.share([{"n": 1}]).__arrow_c_schema__()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(capsule))


def main() -> int:
    """Run every action, then ask; a leak that is planted afterwards must be found, or the check is worth nothing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    api_actions.main(["--times", str(options.times)])
    found = leaks_since_start()
    for one in found:
        print(one)
    plant_leak()
    gc.collect()
    if len(leaks_since_start()) <= len(found):
        print("a planted leak was not found: is this interpreter started with LD_PRELOAD and detect_leaks=1?")
        return 2
    print(f"{len(api_actions.ACTIONS)} actions, {options.times} times each: {len(found)} leaks")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
