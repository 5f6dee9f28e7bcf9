"""Compare two commits in ten calls: tools/compare_commits.py [BASE [COMMIT]] [--rounds N] [--record FILE].

Each commit is built once into build/compare/HASH; COMMIT is the committed tree (HEAD), BASE origin/main. Processes of
both take turns, N of each (7). A case is faster or slower if all ratios of its pairs lie on one side of 1. Two equal
commits should show no difference: compare them first, to see how much the machine varies. --record appends the
medians as a line of JSON, with both commits and the machine.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parent.parent
BUILT = ROOT / "build/compare"
CASES = ROOT / "tools/micro_cases.py"


def output(*command: object, env: dict[str, str] | None = None) -> str:
    """Return the output of a command. Raise CalledProcessError if it fails."""
    words = list(map(str, command))
    return subprocess.run(words, check=True, capture_output=True, text=True, env=env).stdout.strip()


def built(commit: str) -> Path:
    """Return the folder with the packages of a commit, which are built if they are missing."""
    site = BUILT / commit / "site"
    if not site.exists():
        print(f"building {commit[:8]} ...", file=sys.stderr)
        source = BUILT / commit / "source"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        archive = subprocess.Popen(["git", "-C", ROOT, "archive", commit], stdout=subprocess.PIPE)
        subprocess.run(["tar", "x", "-C", source], stdin=archive.stdout, check=True)
        if archive.wait() != 0:
            raise SystemExit(f"git archive {commit} failed")
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
        records = source.glob("packages/records")  # in the core of earlier commits
        subprocess.run([*pip, "--target", BUILT / commit / "new", source, *records], check=True)
        (BUILT / commit / "new").rename(site)
    return site


def times(site: Path, folder: Path) -> dict[str, float]:
    """Return microseconds by case, measured in a new process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # -S hides the editable package of this environment; the folder of numpy is added to the path.
    environment["PYTHONPATH"] = f"{site}:{Path(np.__file__).parent.parent}"
    environment["PYTHONPYCACHEPREFIX"] = str(folder.parent / "bytecode")
    found: dict[str, float] = json.loads(output(sys.executable, "-S", CASES, folder, env=environment))
    return found


def paired(sites: tuple[Path, Path], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the times of both commits by case, one pair per round."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=BUILT) as temporary:
        folders = [Path(temporary, name, "data") for name in ("base", "now")]
        for site, folder in zip(sites, folders, strict=True):
            folder.parent.mkdir()
            times(site, folder)  # creates the data and the bytecode
        for number in track(range(rounds), "measuring ...", console=Console(stderr=True), transient=True):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            both = {which: times(sites[which], folders[which]) for which in order}
            for name in both[0]:
                pairs.setdefault(name, []).append((both[0][name], both[1][name]))
    return pairs


def table_of(pairs: dict[str, list[tuple[float, float]]], base: str, now: str) -> Table:
    """Return a table of medians and ratios by case; a case is faster or slower if all its ratios agree."""
    table = Table("us per call", base[:8], now[:8], "ratio", "least", "most", "")
    for name, both in pairs.items():
        ratios = [after / before for before, after in both]
        verdict = "faster" if max(ratios) < 1 else "slower" if min(ratios) > 1 else ""
        numbers = (*medians_of(both), statistics.median(ratios), min(ratios), max(ratios))
        table.add_row(name, *(f"{value:,.2f}" for value in numbers), verdict)
    return table


def medians_of(pairs: list[tuple[float, float]]) -> list[float]:
    """Return the medians of both commits."""
    return [round(statistics.median(column), 3) for column in zip(*pairs, strict=True)]


def main() -> None:
    """Build and measure both commits, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", nargs="?", default="origin/main")
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", type=Path, help="append the medians to this file, as a line of JSON")
    options = parser.parse_args()
    commits = (f"{commit}^{{commit}}" for commit in (options.base, options.commit))
    base, now = (output("git", "-C", ROOT, "rev-parse", "--verify", commit) for commit in commits)
    pairs = paired((built(base), built(now)), options.rounds)
    Console(width=None if sys.stdout.isatty() else 120).print(table_of(pairs, base, now))
    if options.record:
        line = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "base": base,
            "commit": now,
            "machine": f"{os.cpu_count()} CPUs, {platform.platform()}, Python {platform.python_version()}",
            "rounds": options.rounds,
            "us": {name: medians_of(both) for name, both in pairs.items()},
        }
        with options.record.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
