"""Run test suites of other libraries plain and under `onecopy run`: python -m tests.support.conformance [SUITE ...].

Each suite comes with the installed package of a library. It runs three times: plain, under `onecopy run`, and under
`onecopy run` with limits so low that nearly all files are shared. A test with another outcome than plain is a
difference if it differs in a second round too. Prints a table, then each difference. Status 1 if there is one.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

PACKAGES = sysconfig.get_path("purelib")
SUITES = {
    "numpy.format": ["numpy.lib.tests.test_format"],
    "numpy.io": [
        *("numpy.lib.tests.test_io", "numpy._core.tests.test_multiarray", "scipy.sparse.tests.test_matrix_io"),
        *("-k", "(test_io and not txt) or TestIO or matrix_io"),
    ],
    "joblib": [f"joblib.test.test_{name}" for name in ("numpy_pickle", "numpy_pickle_utils", "memory", "hashing")],
    "joblib.memmapping": ["joblib.test.test_memmapping"],
    "sklearn.neighbors": ["sklearn.neighbors.tests", "-k", "pickle or dump or memmap or mmap or readonly or joblib"],
    "examples": [
        *("--doctest-modules", "--doctest-continue-on-failure"),
        *("-o", "doctest_optionflags=ELLIPSIS NORMALIZE_WHITESPACE"),
        *(f"{PACKAGES}/{name}.py" for name in ("numpy/__init__", "numpy/_core/memmap", "torch/serialization")),
        *(f"{PACKAGES}/{name}.py" for name in ("joblib/memory", "joblib/parallel", "sklearn/model_selection/_search")),
    ],
    "sklearn.model_selection": ["sklearn.model_selection.tests.test_search", "-k", "pickle or memmap or mmap or jobs"],
}
"""Modules with tests or examples, and options of pytest that leave out what loads no file."""
LOW = """
from onecopy.base import run_constants
run_constants.MIN_BYTES = 64
from onecopy.run import mapped
mapped.MIN_ARRAY = mapped.MIN_PART = 64
"""
"""The module `sitecustomize` of the processes with low limits: run before functions are replaced."""
NAMES = """
import numpy, pytest
@pytest.fixture(autouse=True)
def names_of_examples(doctest_namespace):
    doctest_namespace["np"] = numpy
"""
"""A plugin of pytest: what the examples of numpy expect to be imported."""
WAYS = ("plain", "run", "low limits")
MAX_SECONDS = 3600

Outcomes = dict[str, str]


def run(suite: str, way: str, folder: Path) -> Outcomes:
    """Run a suite one way; return "passed", "skipped" or the failure of each test, by name."""
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "sitecustomize.py").write_text(LOW if way == "low limits" else "")
    (folder / "names_of_examples.py").write_text(NAMES)
    alone = ["-c", f"{folder}/pytest.ini", f"--confcutdir={PACKAGES}"]  # no conftest.py, no settings of this project
    modules = [*alone, "-p", "names_of_examples", "--pyargs", *SUITES[suite]]
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:onecopy", f"--junitxml={folder}/results.xml"]
    command = [sys.executable, "-m", "pytest", *quiet, *modules]
    if way != "plain":
        command = [sys.executable, "-m", "onecopy", "run", "-q", "--report", f"{folder}/report.json", "--", *command]
    places = {"PYTHONPATH": str(folder), "TMPDIR": str(folder), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        subprocess.run(
            command, cwd=folder, env={**os.environ, **places}, stdout=log, stderr=log, timeout=MAX_SECONDS, check=False
        )
    return read(folder / "results.xml")


def read(results: Path) -> Outcomes:
    """Return the outcomes in a file of results in JUnit's format."""
    outcomes = {}
    for test in ET.parse(results).iter("testcase"):
        ended = [one for one in test if one.tag in ("skipped", "failure", "error")]
        name = f"{test.get('classname')}::{test.get('name')}"
        outcomes[name] = f"{ended[-1].tag}: {ended[-1].get('message', '')}" if ended else "passed"
    return outcomes


def differences(plain: Outcomes, other: Outcomes) -> set[str]:
    """Return the tests that end otherwise; messages of failures have addresses and paths, and are not compared."""
    names = plain.keys() | other.keys()
    return {name for name in names if plain.get(name, "").split(":")[0] != other.get(name, "").split(":")[0]}


def compare(suite: str, folder: Path) -> tuple[str, dict[str, str]]:
    """Return a line of the table, and the differences that are there twice."""
    found = {way: set[str]() for way in WAYS[1:]}
    for attempt in ("", " again"):
        outcomes = {way: run(suite, way, folder / f"{suite} {way}{attempt}") for way in WAYS}
        different = {way: differences(outcomes["plain"], outcomes[way]) for way in found}
        found = {way: names & found[way] if attempt else names for way, names in different.items()}
        if not any(found.values()):
            break
    passed = [sum(ended == "passed" for ended in outcomes[way].values()) for way in WAYS]
    skipped = sum(ended.startswith("skipped") for ended in outcomes["plain"].values())
    count = len(set().union(*found.values()))
    line = f"{suite:24}" + "".join(f"{number:12}" for number in (*passed, skipped, count))
    return line, {f"{way}: {name}": outcomes[way].get(name, "not run") for way in found for name in found[way]}


def main() -> int:
    """Compare the suites that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}")
    suites = parser.parse_args().suites or list(SUITES)
    print(f"{'suite':24}" + "".join(f"{name:>12}" for name in (*WAYS, "skipped", "differences")), flush=True)
    everything: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
        for suite in suites:
            line, found = compare(suite, Path(folder))
            print(line, flush=True)
            everything |= {f"{suite}, {name}": ended for name, ended in found.items()}
    for name, ended in sorted(everything.items()):
        print(f"{name}\n    {ended}")
    return bool(everything)


if __name__ == "__main__":
    sys.exit(main())
