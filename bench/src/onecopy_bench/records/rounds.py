"""Rounds of samples: every row in every case once, in an order drawn anew; what goes wrong is a sample that says so."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from onecopy import page_cache
from onecopy_bench import machine, runner
from onecopy_bench.children import Crew, SampleError
from onecopy_bench.machine.quiet import Patience
from onecopy_bench.programs.trees import resident
from onecopy_bench.records.record import Entry, Measured, Run, plain_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from onecopy_bench.record import Absent
    from onecopy_bench.records.record import RunJournal

Result = tuple[dict[str, float | None], tuple[tuple[float, ...], ...]]
"""Numbers by name, and points."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What every run needs: rounds, the seconds of a phase and of waiting for an idle machine, and as in `Options`."""

    rounds: int = 5
    timeout: float = 900.0
    idle_wait: float = 60.0
    backed: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One sample to be taken: `take` gets an empty folder; `memory` are the private bytes that it needs."""

    row: str
    case: tuple[str, ...]
    memory: float
    take: Callable[[Path], Result]

    @property
    def title(self) -> str:
        """What a progress bar calls it."""
        return ", ".join((self.row, *self.case))


class Row(Protocol):
    """What every way of every scenario has to be a row of its record."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def detail(self) -> str: ...  # noqa: D102
    @property
    def ours(self) -> bool: ...  # noqa: D102


def heading(
    scenario: str,
    place: Path,
    settings: Settings,
    rows: Iterable[Row],
    *,
    data: dict[str, Any] | None = None,
    absent: Iterable[Absent] = (),
) -> Run:
    """Return a record without samples: when, on which machine and disk, by which options, of which rows and data."""
    return Run(
        scenario=scenario,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine.facts(place),
        data=data or {},
        options=plain_options(settings),
        entries=tuple(Entry(row.name, row.detail, row.ours) for row in rows),
        absent=tuple(absent),
    )


def run(
    heading: Run,
    turns: Sequence[Turn],
    settings: Settings,
    place: Path,
    *,
    watch: Callable[[runner.Progress], None] = lambda _: None,
    journal: RunJournal | None = None,
) -> Run:
    """Take every sample that the journal does not have, and return the whole record.

    Raises
    ------
    ValueError
        If the journal is of another run.
    """
    record = heading if journal is None else journal.begin(heading)
    samples = list(record.samples)
    has = {(sample.row, sample.case, sample.round) for sample in samples}
    patience = Patience(settings.idle_wait)
    chance = random.Random(settings.seed)  # noqa: S311 - an order, not a secret
    every = [(number, turn) for number in range(settings.rounds) for turn in chance.sample(turns, len(turns))]
    for number, turn in every:
        if (turn.row, turn.case, number) in has:
            continue
        watch(runner.Progress(len(samples), len(every), turn.title))
        samples.append(take(turn, number, settings, place, patience))
        if journal is not None:
            journal.add(samples[-1])
    watch(runner.Progress(len(every), len(every), ""))
    return replace(record, samples=tuple(samples))


def take(turn: Turn, number: int, settings: Settings, place: Path, patience: Patience) -> Measured:
    """Take one sample in a folder of its own; a failure is its result."""
    sample = Measured(turn.row, turn.case, number, "ok")
    try:
        refuse_too_much(turn.memory)
        if settings.backed:
            runner.back(round(turn.memory))
        sample = replace(
            sample, idle_share=patience.wait(), started=datetime.now(UTC).isoformat(timespec="milliseconds")
        )
        with tempfile.TemporaryDirectory(dir=place) as folder:
            numbers, points = turn.take(Path(folder))
    except SampleError as failure:
        reason = failure.reason.replace(str(place), "").replace(runner.home(), "~")
        return replace(sample, state=failure.state, reason=reason)
    known = {name: value for name, value in numbers.items() if value is not None}
    return replace(sample, numbers=known, points=points)


def refuse_too_much(wanted: float) -> None:
    """Raise SampleError where the private memory of a sample would exhaust the machine."""
    available = page_cache.available_memory()
    if available is not None and wanted > runner.MEMORY_SHARE * available:
        raise SampleError(
            "skipped", f"needs {wanted / 1e6:.0f} MB of private memory, {available / 1e6:.0f} MB are available"
        )


@contextlib.contextmanager
def crew_of(module: str, errand: Any, count: int, timeout: float, environment: Sequence[str] = ()) -> Iterator[Crew]:
    """Start processes of a child module with one errand; what still lives at the end is killed, workers as well."""
    variables = ["env", *environment] if environment else []
    command = [*variables, sys.executable, "-P", "-m", module, str(os.getpid())]
    line = json.dumps(dataclasses.asdict(errand)).encode() + b"\n"
    with Crew([command] * count, line, timeout) as crew:
        crew.gather("ready")
        yield crew


class FamilyPeak:
    """The highest sum of RssAnon over some processes and their children so far: a child may do the building."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.bytes = 0

    def poll(self) -> None:
        """Look once."""
        family = [*self._pids, *(child for pid in self._pids for child in children_of(pid))]
        self.bytes = max(self.bytes, resident(family)[1])


def children_of(pid: int) -> list[int]:
    """Return the children that the main thread of a process has; none where the kernel does not tell."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
