"""The scenario `open`: how long a file takes to open and to be all there, and what N processes then hold.

Rows: `copy`, `map`, `map+warm`, and, where installed, safetensors and NumPy, for N processes at once; beside
them the O_DIRECT ceilings and the first-touch control, in one process each. The first row is what the others
are relative to.

>>> from onecopy.bench.scenarios import open as opening
>>> record = opening.run("model.safetensors", Options(processes=4, cold=True))  # doctest: +SKIP
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.bench import machine, runner, touch
from onecopy.bench.ceilings import CEILINGS, CONTROLS
from onecopy.bench.configurations import ROWS, Configuration, Job
from onecopy.bench.layout import Layout, read_layout
from onecopy.bench.record import Entry, File, Options, Record

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "open"


def run(
    path: str | os.PathLike[str],
    options: Options = Options(),  # noqa: B008 - frozen
    watch: Callable[[runner.Progress], None] = lambda _: None,
    configurations: tuple[Configuration, ...] | None = None,
) -> Record:
    """Measure how a file opens and return the record.

    Parameters
    ----------
    path
        Any file that is not empty; of a safetensors file the tensors are loaded by name.
    options
        Processes, cache state, rounds, time-out and so on.
    watch
        Called before each sample and at the end.
    configurations
        What to compare; None takes all that are installed and understand the file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is empty or not a regular file.
    """
    layout = layout_of(path)
    chosen = applicable(layout, options) if configurations is None else configurations
    job = Job(os.fspath(Path(path).absolute()), layout.kind, layout.size, layout.pieces)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    checksum = touch.of_file(path, layout)
    samples = runner.run(runner.Plan(chosen, job, checksum, options), watch)
    return Record(
        scenario=NAME,
        created=created,
        machine=machine.facts(path),
        options=options,
        file=File(Path(path).name, layout.kind, layout.size, layout.nbytes, len(layout.pieces), checksum),
        entries=tuple(Entry(c.name, c.detail, c.role, c.uses_cache) for c in chosen),
        samples=samples,
    )


def layout_of(path: str | os.PathLike[str]) -> Layout:
    """Return what the file holds; raises ValueError where there is nothing to measure."""
    if not Path(path).is_file() and Path(path).exists():
        raise ValueError(f"{os.fspath(path)} is not a regular file")
    layout = read_layout(path)
    if layout.nbytes == 0:
        raise ValueError(f"{os.fspath(path)} holds no data: {layout.size} bytes")
    return layout


def applicable(layout: Layout, options: Options) -> tuple[Configuration, ...]:
    """Return the configurations that are installed here and understand the file."""
    candidates = (*ROWS, *(CEILINGS if options.ceilings else ()), *CONTROLS)
    return tuple(c for c in candidates if layout.kind in c.kinds and c.is_installed())
