"""Defines a scenario: its options, a plan of its measurements, and functions that turn a record into tables and text.

Neither this module nor the modules of scenarios import the command line, because workers import them too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from onecopy.base.text import counted, parse_size
from onecopy_bench import runs
from onecopy_bench.record import Absent, Log, Record, Sample, heading
from onecopy_bench.runs import IDLE, Progress, Trial, Watch
from onecopy_bench.tables import MB, Table, text

ENOUGH_ROUNDS = 7
"""Minimum number of rounds for a published number."""


class UsageError(ValueError):
    """The options of a command line are inconsistent. `option` is the wrong option, if only one is wrong."""

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


def option(default: Any, words: str, *flags: str, **more: Any) -> Any:
    """Return a dataclass field that becomes an option of the command, with its help text.

    Without `flags`, the flag is derived from the field name. `more` may contain `choices`; `kind`, a key of
    `cli.KINDS`; `at_least`, a lower limit; `shown`, the default as text; `metavar`; and `is_path`, with which the
    record contains only the file name.
    """
    return dataclasses.field(default=default, metadata={"words": words, "flags": flags, **more})


def argument(metavar: str, default: Any = "", **more: Any) -> Any:
    """Return a dataclass field that becomes an argument of the command. The record contains only the file name."""
    return dataclasses.field(default=default, metadata={"argument": metavar, "is_path": True, **more})


def size_option(default: str, words: str, *flags: str) -> Any:
    """Return a dataclass field for a number of bytes. The help shows the text of `default`."""
    return option(int(parse_size(default)), words, *flags, kind="size", shown=default)


def usual_limits(record: Record) -> Iterator[str]:
    """Yield sentences about absent rows, failures, and the reliability of the numbers."""
    for absent in record.absent:
        yield f"{absent.name}: {absent.reason}."
    lost: dict[tuple[str, str], list[Sample]] = {}
    for sample in record.samples:
        if sample.state != "ok":
            lost.setdefault((sample.row, sample.state), []).append(sample)
    for (row, state), samples in lost.items():
        cases = "; ".join(dict.fromkeys(", ".join(s.case) for s in samples))
        yield f"{row}: {state}{f' ({cases})' if cases else ''}: {samples[0].reason}."
    taken = [sample for sample in record.samples if sample.started]
    if busy := sum(sample.idle_share is None or sample.idle_share <= IDLE for sample in taken):
        yield f"{busy} of {len(taken)} samples may have been taken on a busy machine, so the times are approximate."
    if (rounds := record.rounds) < ENOUGH_ROUNDS:
        yield f"{counted(rounds, 'round')}; a published number needs {ENOUGH_ROUNDS}."


def cache_state(samples: Sequence[Sample], sizes: Mapping[str, float], *, cold: bool = True) -> Iterator[str]:
    """Yield sentences that state whether the page cache was in the required state before every sample.

    `sizes` contains the sizes of the files that rows load, because some peers load a different file.
    """
    known = [(s.numbers["cached_before"], sizes.get(s.row, 0)) for s in samples if "cached_before" in s.numbers]
    off = [(cached, size) for cached, size in known if (cached > 0 if cold else cached < size)]
    if len(known) < len(samples):
        yield f"It is unknown what was cached before {len(samples) - len(known)} of {len(samples)} samples."
    elif off:
        cached, size = max(off) if cold else min(off)
        state, much, still = ("cold", "up to", "were still") if cold else ("warm", "as little as", "was")
        part = f"{cached / MB:.1f}{f' of {size / MB:.1f}' if size else ''} MB {still} cached"
        yield f"NOT {state}: {much} {part} before {len(off)} of {len(known)} samples."
    elif known and cold:
        yield f"Cold: the kernel counted 0 cached bytes of the file before each of {len(known)} samples."
    elif known:
        yield f"Warm: the whole file was cached, always in the same way, before each of {len(known)} samples."


def limits_of_cold_runs(record: Record) -> Iterator[str]:
    """Yield sentences that state whether every cold sample was cold, and then the usual limits."""
    used = {row.name for row in record.rows if row.uses_cache and row.role == "row"}
    samples = [s for s in record.samples if s.row in used and s.state == "ok" and "warm" not in s.case]
    yield from cache_state(samples, {})
    yield from usual_limits(record)


class Setup(NamedTuple):
    """A folder for a scenario's files, an observer of its progress, and a stack that is closed after the run."""

    place: Path
    watch: Watch
    stack: contextlib.ExitStack

    def say(self, words: str, done: int = 0, total: int = 0) -> None:
        """Report the current preparation step."""
        self.watch(Progress(done, total, words))


class Plan(NamedTuple):
    """A scenario's prepared measurements.

    `rows` lists the rows of the tables, and `trials` the trials of a round. `data` describes the measured data, and
    `absent` lists what cannot be measured on this machine. The record describes the disk that contains the file or
    folder `disk` (None: the run's folder). `files` must not change during the run. The record shows `options` if given.
    """

    rows: Iterable[Any]
    trials: Sequence[Trial]
    data: dict[str, Any] = {}  # noqa: RUF012 - never written
    absent: Iterable[Absent] = ()
    disk: Path | None = None
    files: Iterable[str | os.PathLike[str]] = ()
    options: Any = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario, which is a command of `onecopy bench`.

    `options` contains the defaults; fields created by `option` become options of the command. `plan` writes the files,
    prepares locations and returns the plan of a run. Given a record, `described` describes its data in words, `tables`
    returns the tables, `findings` the results as sentences, `limits` their limits, and `status` the exit status. `draw`
    draws a record into a matplotlib figure. `measures` computes further numbers of a sample by name. `adjust` checks
    the options of the command line, and returns adjusted options or raises UsageError. `without` names options that the
    command does not have, and `settings` contains settings of the click command.
    """

    name: str
    help: str
    options: Any
    plan: Callable[[Setup, Any], Plan]
    described: Callable[[Record], str]
    tables: Callable[[Record], Iterable[Table]]
    findings: Callable[[Record], Iterable[str]] = lambda _: ()
    draw: Callable[[Any, Record], None] | None = None
    limits: Callable[[Record], Iterable[str]] = usual_limits
    measures: Mapping[str, Callable[[Sample], float | None]] = dataclasses.field(default_factory=dict)
    adjust: Callable[[Any], Any] = lambda options: options
    without: tuple[str, ...] = ()
    status: Callable[[Record], int] = lambda _: 0
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def run(self, place: Path, options: Any, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
        """Run the scenario in a folder, and return the record. Raise ValueError if the log belongs to another run."""
        with contextlib.ExitStack() as stack:
            plan = self.plan(Setup(place, watch, stack), options)
            recorded = plan.options or options
            head = heading(self.name, plan.disk or place, recorded, plan.rows, plan.data, plan.absent)
            return runs.run(head, plan.trials, options, place, watch=watch, log=log, files=plan.files)

    def heading(self, record: Record) -> str:
        """Return a line that describes the measurement."""
        return f"{self.name}: {self.described(record)}; {counted(record.rounds, 'round')}"

    def sentences(self, record: Record) -> list[str]:
        """Return the findings, followed by their limits."""
        return [*self.findings(record), *self.limits(record)]

    def page(self, record: Record, picture: str | None = None) -> str:
        """Return a record as a page of Markdown."""
        parts = [f"# {text(self.heading(record))}", text(record.where)]
        parts += [f"![What it costs]({picture})"] if picture else []
        parts += [table.markdown() for table in self.tables(record)]
        return "\n\n".join([*parts, "\n".join(f"* {text(each)}" for each in self.sentences(record))]) + "\n"
