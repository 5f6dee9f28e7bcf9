"""Generated programs that load files and write to them return the same under `onecopy run`.

10 programs in each kind of place; with ONECOPY_TORTURE=1, 10,000 in all. Seeds 0 to 9,999 were run once, before the
first release of snapshots.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.mounts import mounted, overlay_of
from tests.support.rounds import rounds
from tests.support.same_answers import ROOT

PROGRAMS = rounds(10, nightly=3334)
SEED = 20_000

pytestmark = pytest.mark.timeout(120 + 2 * PROGRAMS)


def lines_of(folder: Path, through: str, *before: str) -> list[Any]:
    options = ["--first", str(SEED), "--count", str(PROGRAMS), "--folder", str(folder)]
    options += ["--read-through", through] if through else []
    command = [*before, sys.executable, "-W", "ignore", "-m", "tests.support.write_programs", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def place(kind: str, folder: Path) -> Iterator[tuple[Path, str]]:
    """Give an empty folder, and the way through which programs that run in folders of it read its files."""
    work = folder / "work"
    work.mkdir(parents=True)
    if kind == "disk":
        yield work, ""
    elif kind == "image":
        for one in overlay_of(work, folder / "overlay"):
            yield one.path, ""
    else:
        for _ in mounted(work, folder / "volume", "--bind", "-o", "ro", str(work)):
            yield work, "../../volume"


@pytest.mark.parametrize("kind", ["disk", "image", "volume"])
def test_programs_return_the_same(tmp_path: Path, kind: str) -> None:
    """On a disk, in a container's root (overlayfs), and where they read through a read-only mount of their folder."""
    pytest.importorskip("joblib", reason="joblib is not installed")
    report = tmp_path / "report.json"
    run = [sys.executable, "-m", "onecopy", "run", "-q", "--report", str(report), "--"]
    with place(kind, tmp_path / "plain") as (folder, through):
        plain = lines_of(folder, through)
    with place(kind, tmp_path / "run") as (folder, through):
        shared = lines_of(folder, through, *run)
    assert len(plain) == PROGRAMS
    assert plain == shared
    assert json.loads(report.read_text())["shared"]
