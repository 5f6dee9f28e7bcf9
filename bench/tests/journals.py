"""Journals of benchmarks: waiting for the first sample, and a run that is resumed after it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from onecopy_bench.records.record import Run, RunJournal


def has_sample(journal: Path) -> bool:
    """Report whether a journal exists and holds its heading and at least one sample, a line each."""
    return journal.exists() and journal.read_text().count("\n") >= 2


def resumed(run: Callable[..., Run], options: Any, folder: Path) -> tuple[Run, Run]:
    """Run a scenario, cut its journal after the first sample, and resume it; return the records of both runs."""
    journal = RunJournal(folder / "samples")
    (folder / "one").mkdir()
    first = run(folder / "one", options, journal=journal)
    lines = journal.path.read_text().splitlines(keepends=True)
    journal.path.write_text("".join(lines[:2]))
    (folder / "two").mkdir()
    second = run(folder / "two", options, journal=RunJournal(journal.path, resume=True))
    return first, second
