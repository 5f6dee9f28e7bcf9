"""Numbers of a record as columns: a median for a row in a case, with its extremes; and a table of such columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy_bench.passes.tables import MISSING, Table, number, with_extremes
from onecopy_bench.report.summary import MB, Spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_bench.records.record import Run

EMPTY = "empty"

Case = tuple[str, ...]
Value = float | None
Column = tuple[str, "Callable[[Run, str, Case], Spread | None]"]


def plain(name: str, unit: float = 1.0) -> Callable[[Run, str, Case], Spread | None]:
    """Return what computes a number of every sample, in a unit."""

    def spread(run: Run, row: str, case: Case) -> Spread | None:
        return Spread.of(s.numbers[name] / unit for s in run.of(row, case) if name in s.numbers)

    return spread


def above_empty(name: str, unit: float = MB) -> Callable[[Run, str, Case], Spread | None]:
    """Return what computes a number less that of the empty row, paired by round."""

    def spread(run: Run, row: str, case: Case) -> Spread | None:
        base = name.removeprefix("second_")
        empty = {s.round: s.numbers[base] for s in run.of(EMPTY, case) if base in s.numbers}
        mine = (s for s in run.of(row, case) if name in s.numbers and s.round in empty)
        return Spread.of((s.numbers[name] - empty[s.round]) / unit for s in mine)

    return spread


def table(run: Run, title: str, case: Case, names: list[str], columns: tuple[Column, ...]) -> Table:
    """Return a table of some rows in one case; what was not measured says why."""
    rows = []
    absent = {a.name.removeprefix(f"{case[0]}: "): a.reason for a in run.absent}
    missing = [a.name for a in run.absent if run.scenario == "share" and ": " not in a.name]
    for name in dict.fromkeys([*names, *missing]):
        spreads = [column(run, name, case) for _, column in columns]
        if any(spreads):
            rows.append((name, *map(_cell, spreads)))
        else:
            rows.append((name, absent.get(name) or _failure(run, name, case), *[""] * (len(columns) - 1)))
    return Table(title, ("", *(heading for heading, _ in columns)), tuple(rows))


def _cell(spread: Spread | None) -> str:
    """Return a median with its extremes, where there are any."""
    return number(spread.median) if spread is not None and spread.low == spread.high else with_extremes(spread)


def _failure(run: Run, name: str, case: Case) -> str:
    return next((s.state for s in run.samples if (s.row, s.case) == (name, case) and s.state != "ok"), MISSING)
