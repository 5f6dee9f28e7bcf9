"""The scenario `open`: how long a file takes to open and to be all there, and what N processes then hold.

Rows: onecopy and every peer that is installed (see `onecopy_bench.peers`), for N processes at once, in each case;
beside them the O_DIRECT ceilings and the first-touch control, in one process each. The first row is what the others
are relative to.

>>> from onecopy_bench.scenarios import open as opening
>>> record = opening.run("model.safetensors", Options(processes=(1, 4), caches=("cold",)))  # doctest: +SKIP
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.arrays import open_arrays
from onecopy_bench import machine, runner, touch
from onecopy_bench.ceilings import CHOICES, CONTROLS
from onecopy_bench.configurations import Configuration, Job
from onecopy_bench.layout import Layout, read_layout, shuffled
from onecopy_bench.peers import ROWS, twins
from onecopy_bench.record import Absent, Entry, File, Options, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_bench.journal import Journal

NAME = "open"


def run(
    path: str | os.PathLike[str],
    options: Options = Options(),  # noqa: B008 - frozen
    watch: Callable[[runner.Progress], None] = lambda _: None,
    *,
    configurations: tuple[Configuration, ...] | None = None,
    journal: Journal | None = None,
    scratch: Path | None = None,
) -> Record:
    """Measure how a file opens and return the record.

    Parameters
    ----------
    path
        Any file that is not empty; of a safetensors file the tensors are loaded by name.
    options
        Processes, cache states, rounds, time-out and so on.
    watch
        Called before each sample and at the end.
    configurations
        What to compare; None takes all that are installed and understand the file.
    journal
        Where samples are kept as they come, and found again.
    scratch
        A folder for the tensors in the containers of peers; None is the folder of the file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is empty or not a regular file, or the journal is of another run.
    """
    layout = layout_of(path)
    checksum = touch.of_file(path, layout)
    if options.order == "shuffled":
        layout = shuffled(layout, options.seed)
    chosen, absent = applicable(layout, options) if configurations is None else (configurations, ())
    job = Job(os.fspath(Path(path).absolute()), layout.kind, layout.size, layout.pieces)
    with twins.written(chosen, job, scratch, lambda words: watch(runner.Progress(0, 0, words))) as (jobs, unwritten):
        missing = {each.name for each in unwritten}
        plan = runner.Plan(tuple(c for c in chosen if c.name not in missing), job, checksum, options, jobs)
        record = replace(_heading(plan, layout), absent=(*absent, *unwritten))
        record = record if journal is None else journal.begin(record)
        keep = (lambda _: None) if journal is None else journal.add
        return replace(record, samples=runner.run(plan, watch, keep, record.samples))


def _heading(plan: runner.Plan, layout: Layout) -> Record:
    """Return the record of a plan before its first sample."""
    path = Path(plan.job.path)
    sizes = {name: job.size for name, job in plan.twins.items()}
    return Record(
        scenario=NAME,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine.facts(path),
        options=plan.options,
        file=File(path.name, layout.kind, layout.size, layout.nbytes, len(layout.pieces), plan.checksum),
        entries=tuple(Entry(c.name, c.detail, c.role, c.uses_cache, sizes.get(c.name)) for c in plan.configurations),
        samples=(),
    )


def layout_of(path: str | os.PathLike[str]) -> Layout:
    """Return what the file holds; ValueError where there is nothing to measure, FormatError if damaged."""
    if not Path(path).is_file() and Path(path).exists():
        raise ValueError(f"{os.fspath(path)} is not a regular file")
    layout = read_layout(path)
    if layout.kind == "bytes" and os.fspath(path).endswith(".safetensors"):
        open_arrays(path)  # a damaged file is no benchmark: FormatError says what is wrong
    if layout.nbytes == 0:
        raise ValueError(f"{os.fspath(path)} holds no data: {layout.size} bytes")
    return layout


def applicable(
    layout: Layout, options: Options, asked: tuple[str, ...] = ()
) -> tuple[tuple[Configuration, ...], tuple[Absent, ...]]:
    """Return the configurations that are installed here and understand the file, and the rows that are not.

    Rows that are taken by request only have to be among those `asked` for.
    """
    every = (*ROWS, *CHOICES[options.ceilings], *CONTROLS)
    candidates = [c for c in every if layout.kind in c.kinds and (not c.by_request or c.name in asked)]
    chosen = tuple(c for c in candidates if c.is_installed())
    absent = (Absent(c.name, f"not installed: {', '.join(c.missing_packages())}") for c in candidates)
    return chosen, tuple(a for a, c in zip(absent, candidates, strict=True) if c not in chosen)
