"""From the samples of `bench mosaic` to tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy_bench.passes.tables import Table, number
from onecopy_bench.records.columns import plain, table
from onecopy_bench.report.summary import MB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy_bench.records.columns import Column
    from onecopy_bench.records.record import Run

NAME = "mosaic"
FLOOR, CAPPED = "write, fdatasync", "onecopy, capped"

COLUMNS: tuple[Column, ...] = (
    ("all\ns", plain("total_ns", 1e9)),
    ("MB/s", plain("mb_per_s")),
    ("CPU\ns", plain("cpu_ns", 1e9)),
    ("anon. peak\nMB", plain("peak_anonymous", MB)),
    ("with file\npages MB", plain("peak_resident", MB)),
    ("page cache,\npeak MB", plain("peak_cached", MB)),
    ("dirty,\npeak MB", plain("peak_dirty", MB)),
    ("written\nMB", plain("written", MB)),
)

DRAWN = {"s": plain("total_ns", 1e9), "anonymous and file pages, peak MB": plain("peak_resident", MB)}
"""What a picture shows."""


def tables_of(run: Run) -> Iterator[Table]:
    """Yield the table."""
    for case in run.cases():
        yield table(run, ", ".join(case), case, [entry.name for entry in run.entries], COLUMNS)


def heading(run: Run) -> str:
    """Return what was measured, in one line."""
    options, rounds = run.options, run.options["rounds"]
    return (
        f"mosaic: {options['rows']} x {options['columns']} tiles of {options['size']} x {options['size']} u16, "
        f"{run.data['bytes'] / MB:.1f} MB; the cap is {options['cap'] / MB:.1f} MB; "
        f"{rounds} round{'' if rounds == 1 else 's'}"
    )


def sentences_of(run: Run) -> Iterator[str]:
    """Yield how the capped canvas stands beside writing the same bytes, and beside its cap."""
    for case in run.cases():
        floor, ours = (run.spread(name, case, "total_ns") for name in (FLOOR, CAPPED))
        if floor is not None and ours is not None:
            yield f"{CAPPED} reaches {number(floor.median / ours.median)} of the rate of {FLOOR}."
        if (peak := run.spread(CAPPED, case, "peak_resident")) is not None:
            yield f"{CAPPED} holds at most {number(peak.high / MB)} MB, where {number(run.options['cap'] / MB)} may be."
