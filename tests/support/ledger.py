"""Records what a session did with each test, and compares the skips of all sessions with tests/skips.txt.

    pytest --results build/tests/fast.json ...
    pytest --results build/tests/rest.json --without-passed build/tests/fast.json ...
    python -m tests.support.ledger [--write | --report]

The first two write a file each; the second session leaves out what passed in the first. The third command reads all
files in build/tests/test and build/tests/rest, those of the C++ tests (*.skips) too. What one session skips and another
one passes is not skipped. tests/skips.txt has a line for each skip of the reference machine (root on Debian 12, kernel
6.18, with ../shared/data): "NAME: REASON". Another skip, and a line whose test was not skipped, are errors: status 1.
--report prints them with status 0, for other machines.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.places import DATA, ROOT, TEMPORARY

VARYING = (
    (re.compile(re.escape(str(DATA))), "DATA"),
    (re.compile(re.escape(str(ROOT))), "ROOT"),
    (re.compile(rf"{re.escape(TEMPORARY)}/pytest-of-[^/\s]+/pytest-\d+/[^\s:,']+"), "TMP"),
)
"""Parts of a reason that differ from checkout to checkout and from run to run, and what replaces them."""
LEDGER = ROOT / "tests/skips.txt"
RESULTS = [ROOT / "build/tests/test", ROOT / "build/tests/rest"]
HEAD = """\
# Skips of `make test-all` on the reference machine (root on Debian 12, kernel 6.18, with ../shared/data), a line each:
# NAME: REASON. Any difference fails `make test-all`: python -m tests.support.ledger --write.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("tiers")
    group.addoption("--results", metavar="FILE", help="write the outcome of each test to FILE, as JSON")
    group.addoption(
        "--without-passed", metavar="FILE", action="append", default=[], help="leave out what passed in an earlier FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Record outcomes where a file is given."""
    if path := config.getoption("--results"):
        config.pluginmanager.register(Recorder(Path(path)), "onecopy-results")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what passed before."""
    passed = {name for file in config.getoption("--without-passed") for name in read_results(Path(file))["passed"]}
    left_out = [item for item in items if item.nodeid in passed]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in passed]


def read_results(path: Path) -> dict[str, Any]:
    """Read a file of `--results`: passed and failed are lists, skipped maps names to reasons, seconds to numbers."""
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why something was skipped, without what differs from run to run."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    text = text.removeprefix("Skipped: ")
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return " ".join(text.split())


class Recorder:
    """Collects the outcome of each test; a module that is skipped as a whole counts by its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passed, self.skipped, self.failed = dict[str, bool](), dict[str, str](), dict[str, str]()
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that is skipped or cannot be imported."""
        if report.skipped:
            self.skipped[report.nodeid] = reason_of(report)
        elif report.failed:
            self.failed[report.nodeid] = "collection"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note an outcome: the worst of the three phases."""
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed[report.nodeid] = report.when or ""
            self.passed.pop(report.nodeid, None)
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[report.nodeid] = reason_of(report)
        elif report.when == "call":
            self.passed[report.nodeid] = True

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        seconds = {name: round(seconds, 3) for name, seconds in self.seconds.items()}
        found = {"passed": list(self.passed), "failed": list(self.failed), "skipped": self.skipped, "seconds": seconds}
        self.path.write_text(json.dumps(found, indent=0))


def found_in(folders: Sequence[Path]) -> set[str]:
    """Return the lines of what was skipped and never passed; raise FileNotFoundError where nothing was recorded."""
    sessions = [read_results(path) for folder in folders for path in sorted(folder.glob("*.json"))]
    if not sessions:
        raise FileNotFoundError(f"no results in {' or '.join(map(str, folders))}: run make test-all")
    ran = {name for session in sessions for name in session["passed"]}
    ran |= {name.partition("::")[0] for session in sessions for name in session["seconds"]}  # modules, in any session
    reasons = {name: reason for session in sessions for name, reason in session["skipped"].items()}  # the last one's
    lines = {f"{name}: {reason}" for name, reason in reasons.items() if name not in ran}
    for path in (path for folder in folders for path in folder.glob("*.skips")):
        lines |= set(path.read_text().splitlines())
    return lines


def main() -> int:
    """Compare the skips, or write them."""
    parser = argparse.ArgumentParser(description="Compare the skips of all sessions with tests/skips.txt.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--write", action="store_true", help="write tests/skips.txt anew")
    choice.add_argument("--report", action="store_true", help="print the differences, with status 0")
    options = parser.parse_args()
    found = found_in(RESULTS)
    if options.write:
        LEDGER.write_text(HEAD + "".join(f"{line}\n" for line in sorted(found)))
        print(f"{LEDGER.relative_to(ROOT)}: {len(found)} skips")
        return 0
    expected = {line for line in LEDGER.read_text().splitlines() if line and not line.startswith("#")}
    name = LEDGER.relative_to(ROOT)
    for what, lines in (
        (f"skipped, and not in {name}", found - expected),
        (f"in {name}, and not skipped", expected - found),
    ):
        print("".join(f"{what}: {line}\n" for line in sorted(lines)), end="")
    print(f"{len(found)} skips, {len(expected)} expected")
    return 0 if options.report or found == expected else 1


if __name__ == "__main__":
    raise SystemExit(main())
