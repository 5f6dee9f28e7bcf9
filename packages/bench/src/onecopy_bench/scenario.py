"""What a scenario is: a function that measures, its options, and functions from a record to tables and sentences.

Nothing here or in the modules of scenarios imports the command line: workers import them, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onecopy.base.text import counted, parse_size
from onecopy_bench.record import Record, Sample
from onecopy_bench.runs import IDLE
from onecopy_bench.tables import MB, Table, text

ENOUGH_ROUNDS = 7
"""Rounds that a published number needs."""


class UsageError(ValueError):
    """Options of a command line that do not fit together; `option` is the one that is wrong, if it is one."""

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


def option(default: Any, words: str, *flags: str, **more: Any) -> Any:
    """Return a field of the options of a scenario that the command line sets, with the words of its help.

    Flags are given where they are not made of the name of the field. `more` can have `choices`; `kind`, a key of
    `cli.KINDS`; `shown`, the default as text; `metavar`; `parse`, from the texts that were given to the value; and
    `is_path`, of which the record has the name alone.
    """
    return dataclasses.field(default=default, metadata={"words": words, "flags": flags, **more})


def argument(metavar: str, default: Any = "", **more: Any) -> Any:
    """Return a field that is an argument of the command, of which the record has the name alone."""
    return dataclasses.field(default=default, metadata={"argument": metavar, "is_path": True, **more})


def size_option(default: str, words: str, *flags: str) -> Any:
    """Return a field that is a number of bytes; its default is shown as it is written."""
    return option(int(parse_size(default)), words, *flags, kind="size", shown=default)


def parse_read_ahead(text: str) -> int:
    """Return a read-ahead such as 128K in bytes; ValueError for other text."""
    nbytes = int(parse_size(text.removesuffix("K") + "KiB" if text.endswith("K") else text))
    if nbytes <= 0 or nbytes % 1024:
        raise ValueError(f"{text!r} is not a multiple of 1 KiB")
    return nbytes


def places_option(default: tuple[str, ...], words: str, names: Sequence[str] = ("disk",)) -> Any:
    """Return a field of places: those of some names, and disks with a read-ahead such as 128K."""

    def parse(chosen: Sequence[str]) -> tuple[str, ...]:
        for each in chosen:
            try:
                if each not in names:
                    parse_read_ahead(each)
            except ValueError as error:
                raise ValueError(f"{error}, nor one of {', '.join(names)}") from error
        return tuple(dict.fromkeys(chosen))

    return option(default, words, "--place", kind="text", parse=parse, metavar="PLACE")


def usual_limits(record: Record) -> Iterator[str]:
    """Yield what was not measured, what went wrong, and how far the numbers can be trusted."""
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
        yield f"{busy} of {len(taken)} samples were not known to be taken on an idle machine: read the times as rough."
    if (rounds := record.rounds) < ENOUGH_ROUNDS:
        yield f"{counted(rounds, 'round')}: a published number needs {ENOUGH_ROUNDS}."


def cache_state(samples: Sequence[Sample], sizes: Mapping[str, float], *, cold: bool = True) -> Iterator[str]:
    """Yield whether the declared state of the page cache was reached before every sample.

    `sizes` are those of the files that rows load: some peers have one of their own.
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
        yield f"Warm: the whole file was cached, always filled alike, before each of {len(known)} samples."


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    Attributes
    ----------
    options
        The defaults; fields that `option` made are options of the command.
    run
        Measures in a folder, given the options, what watches the progress, and the log; returns the record.
    heading, tables, findings, limits, status
        Given a record: a line of what was measured, tables, what the numbers say and what limits them, the exit status.
    draw
        Draws a record into a matplotlib figure.
    measures
        Numbers that are computed from a sample and are not among its numbers, by name.
    adjust
        Called with the options of the command line; returns those to run with, or raises UsageError.
    without
        Options that the command does not have.
    settings
        Of the click command.
    """

    name: str
    help: str
    options: Any
    run: Callable[..., Record]
    heading: Callable[[Record], str]
    tables: Callable[[Record], Iterable[Table]]
    findings: Callable[[Record], Iterable[str]] = lambda _: ()
    draw: Callable[[Any, Record], None] | None = None
    limits: Callable[[Record], Iterable[str]] = usual_limits
    measures: Mapping[str, Callable[[Sample], float | None]] = dataclasses.field(default_factory=dict)
    adjust: Callable[[Any], Any] = lambda options: options
    without: tuple[str, ...] = ()
    status: Callable[[Record], int] = lambda _: 0
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def sentences(self, record: Record) -> list[str]:
        """Return what the numbers say, and then what limits them."""
        return [*self.findings(record), *self.limits(record)]

    def page(self, record: Record, picture: str | None = None) -> str:
        """Return a record as a page of Markdown."""
        parts = [f"# {text(self.heading(record))}", text(record.where)]
        parts += [f"![What it costs]({picture})"] if picture else []
        parts += [table.markdown() for table in self.tables(record)]
        return "\n\n".join([*parts, "\n".join(f"* {text(each)}" for each in self.sentences(record))]) + "\n"
