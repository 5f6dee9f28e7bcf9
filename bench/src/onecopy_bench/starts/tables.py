"""From the samples of `bench start` to tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy_bench.passes.tables import Table, number
from onecopy_bench.records.columns import plain, table
from onecopy_bench.report.summary import MB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy_bench.records.columns import Column
    from onecopy_bench.records.record import Run

NAME = "start"

COLUMNS: tuple[Column, ...] = (
    ("start\ns", plain("total_ns", 1e9)),
    ("of it:\nwork s", plain("work_ns", 1e9)),
    ("waiting\ns", plain("wait_ns", 1e9)),
    ("copying\ns", plain("copy_ns", 1e9)),
    ("copying\nGB/s", plain("gb_per_s")),
    ("read\nMB", plain("read_bytes", MB)),
)

DRAWN = {"s until everything is copied": plain("total_ns", 1e9), "GB/s of the copy": plain("gb_per_s")}
"""What a picture shows of each case."""

NONE, LATE, EARLY = "none", "warm at copy", "warm early"


def tables_of(run: Run) -> Iterator[Table]:
    """Yield a table for each place."""
    names = [entry.name for entry in run.entries]
    for case in run.cases():
        yield table(run, where(run, case[0]), case, names, COLUMNS)


def where(run: Run, place: str) -> str:
    """Return a place in words, with its read-ahead."""
    ahead = run.data["places"].get(place)
    return f"{place}, read-ahead {'unknown' if ahead is None else f'{ahead // 1024} KiB'}"


def heading(run: Run) -> str:
    """Return what was measured, in one line."""
    options, rounds = run.options, run.options["rounds"]
    doing = {"cpu": "of work of one thread", "sleep": "of sleep"}[options["work"]]
    return (
        f"start: {run.data['bytes'] / MB:.1f} MB of weights, cold, beside {options['work_s']:g} s {doing}; "
        f"{rounds} round{'' if rounds == 1 else 's'}"
    )


def sentences_of(run: Run) -> Iterator[str]:
    """Yield, for each place, what warming early saves, and how that stands beside others."""
    for case in run.cases():
        found = {e.name: run.spread(e.name, case, "total_ns") for e in run.entries}
        seconds = {name: spread.median / 1e9 for name, spread in found.items() if spread is not None}
        if {NONE, LATE, EARLY} <= seconds.keys():
            words = ", ".join(f"{name} {number(seconds[name])}" for name in (NONE, LATE, EARLY))
            share = number(seconds[NONE] / seconds[EARLY])
            yield f"{case[0]}: s until all is copied: {words}; {EARLY} is {share} times as fast as {NONE}."
        others = {name: value for name, value in seconds.items() if name not in {e.name for e in run.entries if e.ours}}
        if EARLY in seconds and others:
            best = min(others, key=others.__getitem__)
            words = f"{EARLY} {number(seconds[EARLY])} s, the best of the others {number(others[best])} ({best})"
            yield f"{case[0]}: {words}."
