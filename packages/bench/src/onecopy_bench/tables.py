"""Computes the columns of tables from samples, as medians and extremes, and writes tables as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from onecopy_bench.record import Case, Record, Sample, Spread

Compute = Callable[[Record, str, Case], Spread | None]
Column = tuple[str, Compute]

MB = 1e6
MISSING = "-"
EMPTY = "empty"
"""The name of the row whose processes import everything but open nothing."""


class Bold(str):
    """A cell that a page shows in bold."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a header, and rows. A line feed in a cell separates parts that are shown below or beside each other."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return the table as Markdown, below its title."""
        body = [self.header, ["---"] * len(self.header), *self.rows]
        lines = ["| " + " | ".join(map(_markdown_cell, cells)) + " |" for cells in body]
        return "\n".join([f"**{text(self.title)}**", "", *lines] if self.title else lines)


def _markdown_cell(cell: str) -> str:
    shown = "<br>".join(map(text, cell.split("\n")))
    return f"**{shown}**" if isinstance(cell, Bold) and shown else shown


def text(words: str) -> str:
    """Escape text so that it stays in its cell and is not interpreted as Markdown or HTML."""
    visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
    return "".join(f"\\{c}" if c in "\\`*[]|<" else c for c in visible)


def number(value: float) -> str:
    """Return a number with three significant digits and at most three digits after the decimal point.

    Examples
    --------
    >>> [number(value) for value in (0, 0.01234, 0.5, 1.234, 12.34, 1234.5)]
    ['0', '0.012', '0.5', '1.23', '12.3', '1234']
    """
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{round(value, 3):.3g}"


def cell(spread: Spread | None) -> str:
    """Return a median and, if the extremes differ, a separate line with them."""
    if spread is None:
        return MISSING
    low, high = number(spread.low), number(spread.high)
    return number(spread.median) + ("" if low == high else f"\n({low}-{high})")


def percentile_99(values: Sequence[float]) -> float:
    """Return the 99th percentile of the values."""
    return sorted(values)[-(-99 * len(values) // 100) - 1]


def per_sample(value: Callable[[Sample], float | None]) -> Compute:
    """Return a function that computes a number for each sample and omits unknown numbers (None)."""
    return lambda record, row, case: Spread.of(map(value, record.of(row, case)))


def plain(name: str, unit: float = 1.0) -> Compute:
    """Return a function that reads a number from every sample and divides it by a unit."""
    return per_sample(lambda sample: sample.numbers[name] / unit if name in sample.numbers else None)


def slowest(name: str, unit: float = 1e6) -> Callable[[Sample], float]:
    """Return a function that computes the longest time of a sample's processes."""
    return lambda sample: float(max(each[name] for each in sample.processes)) / unit


def total(name: str, unit: float = 1e6) -> Callable[[Sample], float]:
    """Return a function that adds up a number over a sample's processes."""
    return lambda sample: float(sum(each.get(name, 0) for each in sample.processes)) / unit


def above_start(name: str, unit: float = MB) -> Callable[[Sample], float]:
    """Return a function that computes how much the memory of the processes has grown since they began."""
    return lambda sample: float(sum(each[name] - each[f"empty_{name}"] for each in sample.processes)) / unit


def less_empty(name: str, unit: float = MB) -> Compute:
    """Return a function that computes a row's number minus that of the empty row in the same round."""

    def spread(record: Record, row: str, case: Case) -> Spread | None:
        base = name.removeprefix("second_")
        empty = {s.round: s.numbers[base] for s in record.of(EMPTY, case) if base in s.numbers}
        mine = (s for s in record.of(row, case) if name in s.numbers and s.round in empty)
        return Spread.of((s.numbers[name] - empty[s.round]) / unit for s in mine)

    return spread


def median(compute: Compute, record: Record, row: str, case: Case) -> float | None:
    """Return a column's median for one row, or None if the row was not measured."""
    spread = compute(record, row, case)
    return None if spread is None else spread.median


def table(record: Record, title: str, case: Case, names: Iterable[str], columns: Sequence[Column]) -> Table:
    """Return a table of the given rows for one case. Rows that were not measured show the reason."""
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(names):
        spreads = [column(record, name, case) for _, column in columns]
        instead = (record.absence(name, case) or MISSING, *[""] * (len(columns) - 1))
        rows.append((name, *(map(cell, spreads) if any(spreads) else instead)))
    return Table(title, ("", *(heading for heading, _ in columns)), tuple(rows))


def table_by_case(
    columns: Sequence[Column], title: Callable[[Record, Case], str] = lambda _, case: ", ".join(case)
) -> Callable[[Record], Iterator[Table]]:
    """Return a function that yields a table of all rows for each case in a record."""

    def tables(record: Record) -> Iterator[Table]:
        for case in record.cases():
            yield table(record, title(record, case), case, record.names(), columns)

    return tables
