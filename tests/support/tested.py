"""Records what the tests of frameworks ran, for tables in the documentation: pytest --tested tests/tested.jsonl ...

Each line of the file is what one test measured with one version of a package. A later run replaces its lines.
"""

import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--tested", metavar="FILE", help="record the tested versions of frameworks in FILE, as JSONL")


class Tested:
    """The file of `--tested`, if it is given."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None

    def version_of(self, package: str) -> str:
        """Return the version of Python or of a package, without a local part; skip if the package is missing."""
        if package == "Python":
            return platform.python_version()
        try:
            return importlib.metadata.version(package).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"{package} is not installed")

    def record(self, kind: str, name: str, package: str, **facts: Any) -> None:
        """Write a line, in place of an earlier one with the same kind, name and version."""
        if self._path is None:
            return
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        found = {key_of(line): line for line in map(json.loads, lines)}
        line = {"kind": kind, "name": name, "package": package, "version": self.version_of(package), **facts}
        found[key_of(line)] = line
        self._path.write_text("".join(f"{json.dumps(found[key])}\n" for key in sorted(found)))


def key_of(line: dict[str, Any]) -> tuple[str, ...]:
    return line["kind"], line["name"], line["package"], line["version"]


@pytest.fixture(scope="session")
def tested(pytestconfig: pytest.Config) -> Tested:
    """Give the record."""
    return Tested(pytestconfig.getoption("--tested"))
