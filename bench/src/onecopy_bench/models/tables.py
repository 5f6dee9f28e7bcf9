"""From the samples of `bench models` to tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy_bench.passes.tables import Table, number
from onecopy_bench.records.columns import above_empty, plain, table
from onecopy_bench.report.summary import MB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy_bench.records.columns import Column
    from onecopy_bench.records.record import Run

NAME = "models"

_MEMORY: tuple[Column, ...] = (
    ("create\nms", plain("create_ns", 1e6)),
    ("first run\nms", plain("first_ns", 1e6)),
    ("total PSS\nMB", plain("pss", MB)),
    ("less empty\nMB", above_empty("pss")),
    ("total USS\nMB", plain("uss", MB)),
    ("anonymous,\nless empty", above_empty("anonymous")),
    ("its peak,\nless empty", above_empty("peak_anonymous")),
)

DRAWN = {"MB, less empty": above_empty("pss"), "ms to create": plain("create_ns", 1e6)}
"""What a picture shows of each case."""

OURS, BY_HAND, DEFAULT = "onecopy packed", "saved packed", "inline"


def tables_of(run: Run) -> Iterator[Table]:
    """Yield a table for each case."""
    names = [entry.name for entry in run.entries]
    for case in run.cases():
        yield table(run, ", ".join(case), case, names, (*_MEMORY, *_times(run, case)))


def _times(run: Run, case: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the columns of runs, where any were timed."""
    if not any(run.spread(entry.name, case, f"run_{run.options['batches'][0]}_p50_ns") for entry in run.entries):
        return ()
    return tuple(
        (f"run, {batch}\n{which} ms", plain(f"run_{batch}_{which}_ns", 1e6))
        for batch in run.options["batches"]
        for which in ("p50", "p99")
    )


def heading(run: Run) -> str:
    """Return what was measured, in one line."""
    files = ", ".join(f"{name} ({size / MB:.1f} MB)" for name, size in run.data.items())
    rounds, threads = run.options["rounds"], run.options["threads"]
    return (
        f"models: {files}; {threads} thread{'' if threads == 1 else 's'} a session, "
        f"{rounds} round{'' if rounds == 1 else 's'}"
    )


def sentences_of(run: Run) -> Iterator[str]:
    """Yield how ours stand beside what ONNX Runtime does alone, and beside the same done by hand."""
    for case in run.cases():
        where = ", ".join(case)
        for name, words in (("pss", "MB in all"), ("create_ns", "ms to create"), *_runs(run)):
            unit = MB if name == "pss" else 1e6
            found = [run.spread(row, case, name) for row in (OURS, BY_HAND, DEFAULT)]
            if all(found):
                ours, by_hand, usual = (number(spread.median / unit) for spread in found if spread)
                yield f"{where}: {words}: {OURS} {ours}, {BY_HAND} {by_hand}, {DEFAULT} {usual}."


def _runs(run: Run) -> list[tuple[str, str]]:
    return [(f"run_{batch}_p50_ns", f"ms a run of {batch}") for batch in run.options["batches"]]
