"""Hold the skips of all test sessions against tests/skips.txt: tools/check_skips.py [--write | --report].

It reads *.json in build/tests/test and build/tests/rest, which pytest writes with --results, and *.skips of the C++
tests. What one session skips and another one passes is not skipped. tests/skips.txt has a line for each skip of the
reference machine (root on Debian 12, kernel 6.18, with ../shared/data): "NAME: REASON". Another skip, and a line whose
test was not skipped, are errors: status 1. --report prints them with status 0, for other machines.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEDGER = ROOT / "tests/skips.txt"
RESULTS = [ROOT / "build/tests/test", ROOT / "build/tests/rest"]
HEAD = """\
# Skips of `make test-all` on the reference machine (root on Debian 12, kernel 6.18, with ../shared/data), a line each:
# NAME: REASON. Another one, and a line whose test was not skipped, fail `make test-all`: tools/check_skips.py --write.
"""


def found_in(folders: Sequence[Path]) -> set[str]:
    """Return the lines of what was skipped and never passed; raise FileNotFoundError where nothing was recorded."""
    sessions = [json.loads(path.read_text()) for folder in folders for path in sorted(folder.glob("*.json"))]
    if not sessions:
        raise FileNotFoundError(f"no results in {' or '.join(map(str, folders))}: run make test-all")
    passed = {name for session in sessions for name in session["passed"]}
    collected = {name.partition("::")[0] for session in sessions for name in session["seconds"]}  # modules
    reasons = {name: reason for session in sessions for name, reason in session["skipped"].items()}  # the last one's
    lines = {
        f"{name}: {reason}"
        for name, reason in reasons.items()
        if name not in passed
        and name not in collected  # a module may be skipped in one session and collected in another
    }
    for path in (path for folder in folders for path in folder.glob("*.skips")):
        lines |= set(path.read_text().splitlines())
    return lines


def written() -> set[str]:
    """Return the lines of the ledger."""
    return {line for line in LEDGER.read_text().splitlines() if line and not line.startswith("#")}


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--write", action="store_true", help="write tests/skips.txt anew")
    choice.add_argument("--report", action="store_true", help="print the differences, with status 0")
    options = parser.parse_args()
    found = found_in(RESULTS)
    if options.write:
        LEDGER.write_text(HEAD + "".join(f"{line}\n" for line in sorted(found)))
        print(f"{LEDGER.relative_to(ROOT)}: {len(found)} skips")
        return 0
    expected = written()
    for line in sorted(found - expected):
        print(f"skipped, and not in {LEDGER.relative_to(ROOT)}: {line}")
    for line in sorted(expected - found):
        print(f"in {LEDGER.relative_to(ROOT)}, and not skipped: {line}")
    print(f"{len(found)} skips, {len(expected)} expected")
    return 0 if options.report or found == expected else 1


if __name__ == "__main__":
    sys.exit(main())
