"""From the samples of `bench images` to tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy_bench.passes.tables import Table, number
from onecopy_bench.records.columns import plain, table
from onecopy_bench.report.summary import MB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy_bench.records.columns import Column
    from onecopy_bench.records.record import Run

NAME = "images"

COLUMNS: tuple[Column, ...] = (
    ("all\ns", plain("total_ns", 1e9)),
    ("of it: decode\ns", plain("decode_ns", 1e9)),
    ("CPU\ns", plain("cpu_ns", 1e9)),
    ("anon. peak\nMB", plain("peak_anonymous", MB)),
    ("file pages,\npeak MB", plain("peak_file", MB)),
    ("dirty,\npeak MB", plain("peak_dirty", MB)),
    ("all memory,\npeak MB", plain("peak_used", MB)),
    ("committed,\npeak MB", plain("peak_committed", MB)),
    ("minor\nfaults", plain("minor_faults")),
    ("written\nMB", plain("written", MB)),
    ("back\ns", plain("back_s")),
)

HEAP, OURS = "numpy", "onecopy"


def tables_of(run: Run) -> Iterator[Table]:
    """Yield a table for each case."""
    names = [entry.name for entry in run.entries]
    for case in run.cases():
        yield table(run, ", ".join(case), case, names, COLUMNS)


def heading(run: Run) -> str:
    """Return what was measured, in one line."""
    data, rounds = run.data, run.options["rounds"]
    shape = " x ".join(map(str, data["shape"]))
    return (
        f"images: {run.options['count']} of {shape} bytes, {data['decoded'] / MB:.1f} MB decoded "
        f"({data['compressed'] / MB:.1f} MB compressed), and a canvas of as much; "
        f"{rounds} round{'' if rounds == 1 else 's'}"
    )


def sentences_of(run: Run) -> Iterator[str]:
    """Yield, for each case, what becomes of the heap, and at what price."""
    for case in run.cases():
        found = {row: [run.spread(row, case, name) for name in ("peak_anonymous", "total_ns")] for row in (HEAP, OURS)}
        if not all(all(spreads) for spreads in found.values()):
            failed = {s.row for s in run.samples if s.case == case and s.state != "ok"}
            if failed and run.of(OURS, case):
                yield f"{', '.join(case)}: {OURS} finishes; these do not: {', '.join(sorted(failed))}."
            continue
        (heap, slow), (ours, fast) = found[HEAP], found[OURS]
        assert heap is not None
        assert ours is not None
        assert slow is not None
        assert fast is not None
        yield (
            f"{', '.join(case)}: anonymous memory {number(heap.median / MB)} MB -> {number(ours.median / MB)} MB, "
            f"in {number(fast.median / slow.median)} of the time."
        )
