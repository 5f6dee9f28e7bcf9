"""From the samples of `bench share` and its kin to tables and sentences: pure functions over a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecopy_bench import machine
from onecopy_bench.images import mosaic_tables as mosaic
from onecopy_bench.images import tables as images
from onecopy_bench.machine import quiet
from onecopy_bench.models import tables as models
from onecopy_bench.monitors import tables as monitors
from onecopy_bench.passes.tables import Table, number
from onecopy_bench.records.columns import EMPTY, Case, Column, above_empty, plain, table
from onecopy_bench.report.sentences import ENOUGH_ROUNDS
from onecopy_bench.report.summary import MB
from onecopy_bench.starts import tables as starts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy_bench.records.record import Measured, Run

HEAP = "heap"
OURS = "onecopy"

SCENARIOS: dict[str, Any] = {module.NAME: module for module in (images, models, monitors, mosaic, starts)}
"""Those that make their own tables and sentences, by the scenario's name."""

SHARE_COLUMNS: tuple[Column, ...] = (
    ("total PSS\nMB", plain("pss", MB)),
    ("less empty\nMB", above_empty("pss")),
    ("2nd run,\nless empty", above_empty("second_pss")),
    ("USS of a\nworker MB", plain("worker_uss", MB)),
    ("less empty\nMB", above_empty("worker_uss")),
    ("ready\ns", plain("ready_ns", 1e9)),
    ("2nd run,\nready s", plain("second_ready_ns", 1e9)),
    ("last first\nitem s", plain("last_first_ns", 1e9)),
    ("2nd run,\nitem s", plain("second_last_first_ns", 1e9)),
    ("rows/s of\na worker", plain("rows_per_s")),
    ("payload\nMB", plain("nbytes", MB)),
)
HEAP_COLUMNS: tuple[Column, ...] = (
    ("left, less\nstart MB", plain("heap", MB)),
    ("payload\nMB", plain("nbytes", MB)),
    ("peak, less\nstart MB", plain("build_peak_anonymous", MB)),
    ("ready\ns", plain("ready_ns", 1e9)),
)
ITEM_COLUMNS: tuple[Column, ...] = (
    ("best\nns", plain("best_ns")),
    ("median\nns", plain("median_ns")),
    ("payload\nMB", plain("nbytes", MB)),
    ("USS, less\nstart MB", plain("uss", MB)),
    ("build\ns", plain("build_ns", 1e9)),
    ("build peak,\nanon. MB", plain("build_peak", MB)),
    ("open\nms", plain("open_ns", 1e6)),
)


FIGURES = {"import": ("MB of anonymous memory at the peak, less the start", "build_peak", MB)}
"""What a case is about, where that is not the time of an item: words, the number, its unit."""


def tables_of(run: Run) -> list[Table]:
    """Return a table for each case of a record."""
    if run.scenario in SCENARIOS:
        return list(SCENARIOS[run.scenario].tables_of(run))
    return list((_share_tables if run.scenario == "share" else _item_tables)(run))


def _share_tables(run: Run) -> Iterator[Table]:
    cases = run.cases()
    names = [entry.name for entry in run.entries]
    for case in [case for case in cases if case[0] != HEAP]:
        start, ranks = case
        title = f"{start}, {_ranks(int(ranks))} of {run.options['workers']} workers"
        yield table(run, title, case, names, SHARE_COLUMNS)
    for case in [case for case in cases if case[0] == HEAP]:
        yield table(run, f"The builder's heap, {case[1]}", case, names, HEAP_COLUMNS)


def _ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def _item_tables(run: Run) -> Iterator[Table]:
    for case in run.cases():
        names = [e.name.partition(": ")[2] for e in run.entries if e.name.partition(": ")[0] == case[0]]
        absent = [a.name.partition(": ")[2] for a in run.absent if a.name.partition(": ")[0] == case[0]]
        yield table(run, ", ".join(case), case, [*names, *absent], ITEM_COLUMNS)


def heading(run: Run) -> str:
    """Return what was measured, in one line."""
    rounds = run.options["rounds"]
    plural = "" if rounds == 1 else "s"
    if run.scenario in SCENARIOS:
        words: str = SCENARIOS[run.scenario].heading(run)
        return words
    if run.scenario != "share":
        return f"records: {rounds} round{plural}, {run.options['draws']} random items, {run.options['repeats']} times"
    data, seen = run.data, run.options["loader"]
    return (
        f"share: {data['rows']} rows ({data['kind']}), {data['pickled'] / MB:.1f} MB when pickled; {seen},"
        f" {rounds} round{plural}"
    )


def sentences_of(run: Run) -> list[str]:
    """Return what the numbers say, and what limits them."""
    if run.scenario in SCENARIOS:
        return [*SCENARIOS[run.scenario].sentences_of(run), *_limits(run)]
    return [*(_shared if run.scenario == "share" else _fastest)(run), *_limits(run)]


def _shared(run: Run) -> Iterator[str]:
    """Yield, for every case of ours, what all processes hold as a multiple of the payload."""
    for case in run.cases():
        payload = run.spread(OURS, case, "nbytes")
        held = [above_empty(name)(run, OURS, case) for name in ("pss", "second_pss")]
        if payload and all(held):
            first, second = (f"{spread.median * MB / payload.median:.3f}" for spread in held if spread)
            yield f"{', '.join(case)}: onecopy holds {first} of its payload, {second} in the second run."
        if handle := run.spread(OURS, case, "handle_bytes"):
            yield f"{', '.join(case)}: the handle that each worker gets is {handle.high:.0f} bytes."
        ready, again = run.spread(OURS, case, "ready_ns"), run.spread(OURS, case, "second_ready_ns")
        if ready and again and again.median:
            yield f"{', '.join(case)}: its second run is ready in 1/{ready.median / again.median:.0f} of the first."


def _fastest(run: Run) -> Iterator[str]:
    """Yield, for every case, the best of others beside the best of ours."""
    for case in run.cases():
        title, found = figures_of(run, case)
        mine = {entry.name.partition(": ")[2] for entry in run.entries if entry.ours}
        ours = min((value for name, value in found.items() if name in mine), default=None)
        others = min(((value, name) for name, value in found.items() if name not in mine), default=None)
        if ours is not None and others is not None:
            words = f"onecopy {number(ours)}, the best of the others {number(others[0])} ({others[1]})"
            yield f"{', '.join(case)}, {title}: {words}."


def figures_of(run: Run, case: Case) -> tuple[str, dict[str, float]]:
    """Return what a case of `bench records` is about, in words, and the least of it by row."""
    title, name, unit = FIGURES.get(case[0], ("ns", "best_ns", 1.0))
    rows = dict.fromkeys(sample.row for sample in run.samples if sample.case == case)
    spreads = {row: run.spread(row, case, name) for row in rows}
    return title, {row: spread.low / unit for row, spread in spreads.items() if spread is not None}


def _limits(run: Run) -> Iterator[str]:
    for absent in run.absent:
        yield f"{absent.name}: {absent.reason}."
    lost: dict[tuple[str, str], list[Measured]] = {}
    for sample in run.samples:
        if sample.state != "ok":
            lost.setdefault((sample.row, sample.state), []).append(sample)
    for (row, state), samples in lost.items():
        cases = "; ".join(dict.fromkeys(", ".join(s.case) for s in samples))
        yield f"{row}: {state} ({cases}): {samples[0].reason}."
    short = {s.row for s in run.samples if s.numbers.get("rows_read", 1e18) < run.data.get("rows", 0)} - {EMPTY}
    if short:
        yield f"Stopped after {run.options['limit_s']:g} s, before all rows: {', '.join(sorted(short))}."
    if doubt := quiet.doubt(run.samples):
        yield doubt
    if run.options["rounds"] < ENOUGH_ROUNDS:
        plural = "" if run.options["rounds"] == 1 else "s"
        yield f"{run.options['rounds']} round{plural}: a published number needs {ENOUGH_ROUNDS}."


def to_markdown(run: Run, picture: str | None = None) -> str:
    """Return the report of a record."""
    from onecopy_bench.report.markdown import text

    facts = f"{', '.join(map(text, machine.known_of(run.machine)))}. Measured {run.created}."
    parts = [f"# {heading(run)}", facts]
    parts += [f"![What it costs]({picture})"] if picture else []
    parts += [table.markdown() for table in tables_of(run)]
    return "\n\n".join([*parts, "\n".join(f"* {sentence}" for sentence in sentences_of(run))]) + "\n"
