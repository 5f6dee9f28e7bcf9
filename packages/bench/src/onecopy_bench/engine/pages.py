"""What is shown of a record, of whichever scenario: on the screen, and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from onecopy.cli import screen
from onecopy.text import escape
from onecopy_bench.engine import machine
from onecopy_bench.engine.machine import quiet
from onecopy_bench.engine.record import Record, Sample
from onecopy_bench.engine.tables import Table, counted, text

ENOUGH_ROUNDS = 7
"""Rounds that a published number needs."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a record of one scenario says: one line, tables, sentences, and a picture.

    `draw` gets a matplotlib figure. `limits` yields what limits the numbers, where that is not as usual.
    """

    name: str
    heading: Callable[[Record], str]
    tables: Callable[[Record], Iterable[Table]]
    findings: Callable[[Record], Iterable[str]]
    draw: Callable[[Any, Record], None] | None = None
    limits: Callable[[Record], Iterable[str]] | None = None

    def sentences(self, record: Record) -> list[str]:
        """Return what the numbers say, and then what limits them."""
        return [*self.findings(record), *(self.limits or limits)(record)]


def limits(record: Record) -> Iterator[str]:
    """Yield what was not measured, what went wrong, and how far the numbers can be trusted."""
    for absent in record.absent:
        yield f"{absent.name}: {absent.reason}."
    for (row, state), samples in lost(record).items():
        cases = "; ".join(dict.fromkeys(", ".join(s.case) for s in samples))
        yield f"{row}: {state} ({cases}): {samples[0].reason}."
    if doubt := quiet.doubt(record.samples):
        yield doubt
    yield from few_rounds(record)


def lost(record: Record) -> dict[tuple[str, str], list[Sample]]:
    """Return the samples that are not good, by row and state."""
    found: dict[tuple[str, str], list[Sample]] = {}
    for sample in record.samples:
        if sample.state != "ok":
            found.setdefault((sample.row, sample.state), []).append(sample)
    return found


def few_rounds(record: Record) -> Iterator[str]:
    """Yield a warning where there are too few rounds for a number to be published."""
    rounds = rounds_of(record)
    if rounds < ENOUGH_ROUNDS:
        yield f"{counted(rounds, 'round')}: a published number needs {ENOUGH_ROUNDS}."


def rounds_of(record: Record) -> int:
    """Return how many rounds were taken; before the first, how many there are to be."""
    return 1 + max((sample.round for sample in record.samples), default=int(record.options["rounds"]) - 1)


def page(scenario: Scenario, record: Record, picture: str | None = None) -> str:
    """Return a record as a page of Markdown."""
    facts = f"{', '.join(map(text, machine.known_of(record.machine)))}. Measured {record.created}."
    parts = [f"# {text(scenario.heading(record))}", facts]
    parts += [f"![What it costs]({picture})"] if picture else []
    parts += [table.markdown() for table in scenario.tables(record)]
    return "\n\n".join([*parts, "\n".join(f"* {text(each)}" for each in scenario.sentences(record))]) + "\n"


def show(scenario: Scenario, record: Record) -> None:
    """Print a record."""
    console = screen.out()
    screen.show_line(console, scenario.heading(record), "bold")
    for table in scenario.tables(record):
        console.print()
        screen.show_line(console, table.title, "bold")
        wide = grid(table, " ")
        (wide if wide.needed() <= console.width else grid(table, "\n")).show(console)
    console.print()
    for sentence in scenario.sentences(record):
        screen.show_line(console, sentence)


def grid(table: Table, between: str) -> screen.Grid:
    """Return a table for the screen; `between` separates the lines of a cell."""
    words = [title.replace("\n", between) for title in table.header]
    columns = (screen.Column(words[0]), *(screen.Column(title, right=True) for title in words[1:]))
    rows = [tuple(between.join(map(escape, cell.split("\n"))) for cell in row) for row in table.rows]
    return screen.Grid(columns, rows)


def filled(page: str, block: str, begin: str, end: str) -> str:
    """Return a page with its block replaced; raises ValueError where the page has not the two marks, once each."""
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page needs one {begin} and, after it, one {end}")
    return page[: page.index(begin)] + block + page[page.index(end) + len(end) :]
