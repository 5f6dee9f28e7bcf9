"""What a session did with each test, in a file: the next session runs only what has not passed, and skips are counted.

    pytest --results build/tests/fast.json ...
    pytest --results build/tests/rest.json --without-passed build/tests/fast.json ...

tools/check_skips.py holds the skips of all sessions against tests/skips.txt.
"""

from __future__ import annotations

import json
import re
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
        self.passed: dict[str, bool] = {}
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that is skipped or cannot be imported."""
        if report.skipped:
            self.skipped[report.nodeid] = reason_of(report)
        elif report.failed:
            self.failed[report.nodeid] = "collection"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note an outcome: the worst of the three phases."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed[report.nodeid] = report.when or ""
            self.passed.pop(report.nodeid, None)
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[report.nodeid] = reason_of(report)
        elif report.when == "call":
            self.passed[report.nodeid] = True

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = {
            "passed": list(self.passed),
            "failed": list(self.failed),
            "skipped": self.skipped,
            "seconds": {name: round(seconds, 3) for name, seconds in self.seconds.items()},
        }
        self.path.write_text(json.dumps(text, indent=0))
