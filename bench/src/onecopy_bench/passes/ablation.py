"""What a record of `bench warm` says: one table per place and order, and how `onecopy.warm` stands in it.

Pure functions over a record. Medians over the rounds, times with their extremes; counters cover opening, warming and
the first pass. The O_DIRECT rows are the same in all tables of a place: they have no order.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy_bench.passes.series import notes_of, pass_ms, second_pass_ms
from onecopy_bench.passes.tables import MISSING, Table, number, with_extremes
from onecopy_bench.report.summary import MB, Spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_bench.passes.series import Entry, Place, Series, Taken

OURS = "onecopy.warm"
TIE = 1.05
"""Medians within this factor of the best count as equal to it."""

HEADER = ("mechanism", "all resident\nms", "2nd pass\nms", "minor", "major", "huge\n%", "read\nMB", "CPU\nms")


@dataclass(frozen=True, slots=True)
class Row:
    """One mechanism in one place and order.

    `resident_ms` is None where no sample touched everything in its time; then `instead` says what happened.
    """

    entry: Entry
    resident_ms: Spread | None
    second_ms: Spread | None
    minor_faults: float | None
    major_faults: float | None
    huge_share: float | None
    read_mb: float | None
    cpu_ms: float | None
    instead: str


def rows_of(series: Series, place: Place, order: str) -> list[Row]:
    """Return the rows of one table, in the order of the mechanisms, then the ceilings."""
    rows = []
    for entry in series.entries:
        samples = series.of(entry.name, place.name, None if entry.role == "ceiling" else order)
        if samples and entry.role != "control":
            rows.append(_row(entry, place, samples))
    return rows


def _row(entry: Entry, place: Place, samples: list[Taken]) -> Row:
    good = [sample for sample in samples if sample.state == "ok"]
    keeps = not entry.name.startswith("o_direct-reused")  # its data do not stay: it is done when it has read them
    times = pass_ms(samples, 1) if keeps else Spread.of(s.open_ns / 1e6 for s in good)

    def median(column: Callable[[Taken], float | None]) -> float | None:
        known = [value for value in map(column, good) if value is not None]
        return statistics.median(known) if known else None

    return Row(
        entry=entry,
        resident_ms=times,
        second_ms=second_pass_ms(good),
        minor_faults=median(lambda s: s.minor_faults),
        major_faults=median(lambda s: s.major_faults),
        huge_share=median(lambda s: min(s.huge / place.size, 1.0)) if keeps else None,
        read_mb=median(lambda s: None if s.read_bytes is None else s.read_bytes / MB),
        cpu_ms=median(lambda s: s.cpu_ms),
        instead="" if times is not None else _instead(place, samples),
    )


def _instead(place: Place, samples: list[Taken]) -> str:
    cut = next((s for s in samples if s.cut_short), None)
    if cut is None:
        return samples[0].state
    return f"cut short\nat {100 * cut.notes.get('touched', 0) / place.size:.0f} %"


def tables_of(series: Series) -> list[Table]:
    """Return a table for each place and order."""
    return [
        Table(
            f"{place.name}, touched in {'the order of the file' if order == 'file' else 'shuffled order'}",
            HEADER,
            tuple(_cells(row) for row in rows_of(series, place, order)),
        )
        for place in series.places
        for order in series.options.orders
    ]


def _cells(row: Row) -> tuple[str, ...]:
    share = None if row.huge_share is None else 100 * row.huge_share
    counts = (row.minor_faults, row.major_faults, share, row.read_mb, row.cpu_ms)
    first = row.instead or with_extremes(row.resident_ms)
    return (row.entry.name, first, with_extremes(row.second_ms), *(MISSING if c is None else number(c) for c in counts))


def sentences_of(series: Series) -> tuple[str, ...]:
    """Return how `onecopy.warm` stands in each table, then what limits the numbers."""
    found = []
    for place in series.places:
        for order in series.options.orders:
            rows = [row for row in rows_of(series, place, order) if row.resident_ms and row.entry.role == "row"]
            medians = {row.entry.name: row.resident_ms.median for row in rows if row.resident_ms}
            if OURS in medians:
                found.append(f"{place.name}, {order}: {_standing(medians)}")
    return (*found, *notes_of(series))


def _standing(medians: dict[str, float]) -> str:
    ours, best = medians[OURS], min(medians, key=medians.__getitem__)
    if best == OURS:
        return f"{OURS} is the fastest, {number(ours)} ms."
    behind = ours / medians[best]
    words = "within 5 % of" if behind <= TIE else f"{100 * (behind - 1):.0f} % behind"
    return f"{OURS}, {number(ours)} ms, is {words} the fastest, {best}, {number(medians[best])} ms."
