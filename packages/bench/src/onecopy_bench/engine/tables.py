"""From samples to tables: median, minimum and maximum of a column, and a table of such columns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which imports this module
    from onecopy_bench.engine.record import Case, Record, Sample

Compute = Callable[["Record", str, "Case"], "Spread | None"]
Column = tuple[str, Compute]

MB = 1e6
MISSING = "-"
EMPTY = "empty"
"""The row of processes that have imported everything and opened nothing."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum of the samples of one column."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return the spread of some values, or None of none."""
        numbers = list(values)
        return cls(statistics.median(numbers), min(numbers), max(numbers)) if numbers else None

    def divided_by(self, count: float) -> Spread:
        """Return the spread of one of `count` equal parts."""
        return Spread(self.median / count, self.low / count, self.high / count)


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a header, and rows; a line feed in a cell separates what may stand below or beside each other."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return the table as Markdown, its title above it."""
        body = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join([f"**{text(self.title)}**", "", *map(_line, body)])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join("<br>".join(map(text, cell.split("\n"))) for cell in cells) + " |"


def text(words: str) -> str:
    """Return words that stay in their cell and are not obeyed as Markdown or HTML."""
    visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
    return "".join(f"\\{c}" if c in "\\`*[]|<" else c for c in visible)


def number(value: float) -> str:
    """Return a number with three significant digits, at most three behind the point and all before it.

    Examples
    --------
    >>> [number(value) for value in (0, 0.01234, 0.5, 1.234, 12.34, 1234.5)]
    ['0', '0.012', '0.5', '1.23', '12.3', '1234']
    """
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{round(value, 3):.3g}"


def cell(spread: Spread | None) -> str:
    """Return a median and, on a line of its own, the extremes, where these differ."""
    if spread is None:
        return MISSING
    low, high = number(spread.low), number(spread.high)
    return number(spread.median) + ("" if low == high else f"\n({low}-{high})")


def percentile_99(values: Sequence[float]) -> float:
    """Return the least value that 99 % of some values do not exceed."""
    return sorted(values)[-(-99 * len(values) // 100) - 1]


def plain(name: str, unit: float = 1.0) -> Compute:
    """Return what computes a number of every sample, in a unit."""

    def spread(record: Record, row: str, case: Case) -> Spread | None:
        found = record.spread(row, case, name)
        return found and found.divided_by(unit)

    return spread


def of_samples(value: Callable[[Sample], float | None]) -> Compute:
    """Return what computes a number of each sample; what is None is unknown, and left out."""

    def spread(record: Record, row: str, case: Case) -> Spread | None:
        return Spread.of(each for sample in record.of(row, case) if (each := value(sample)) is not None)

    return spread


def above_empty(name: str, unit: float = MB) -> Compute:
    """Return what computes a number less that of the empty row, paired by round."""

    def spread(record: Record, row: str, case: Case) -> Spread | None:
        base = name.removeprefix("second_")
        empty = {s.round: s.numbers[base] for s in record.of(EMPTY, case) if base in s.numbers}
        mine = (s for s in record.of(row, case) if name in s.numbers and s.round in empty)
        return Spread.of((s.numbers[name] - empty[s.round]) / unit for s in mine)

    return spread


def table(record: Record, title: str, case: Case, names: Iterable[str], columns: Sequence[Column]) -> Table:
    """Return a table of some rows in one case; a row that was not measured gives the reason."""
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(names):
        spreads = [column(record, name, case) for _, column in columns]
        instead = (record.absence(name, case) or MISSING, *[""] * (len(columns) - 1))
        rows.append((name, *(map(cell, spreads) if any(spreads) else instead)))
    return Table(title, ("", *(heading for heading, _ in columns)), tuple(rows))


def table_by_case(
    columns: Sequence[Column], title: Callable[[Record, Case], str] = lambda _, case: ", ".join(case)
) -> Callable[[Record], Iterator[Table]]:
    """Return what yields a table of all rows for each case of a record."""

    def tables(record: Record) -> Iterator[Table]:
        for case in record.cases():
            yield table(record, title(record, case), case, [row.name for row in record.rows], columns)

    return tables
