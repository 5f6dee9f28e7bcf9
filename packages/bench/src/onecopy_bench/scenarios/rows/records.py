"""`onecopy bench records`: one item at a time, in a fresh process for each way of asking.

A sample makes its rows ready, answers every question once to be judged, and then times the statement over all of them
again and again; what is asked for is random, and the data are warm. Rows that are kept in files are built by a process
of their own before, which is timed as well; so the memory of the one that asks is without what building leaves.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine import pictures, rounds
from onecopy_bench.engine.crew import Crew, SampleError, crew_of
from onecopy_bench.engine.memory import Peak, memory_of
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.record import Absent, Case, Log, Record, Row, heading
from onecopy_bench.engine.rounds import Attempt, Settings, Taken, Turn, Watch
from onecopy_bench.engine.tables import MB, Column, Table, counted, number, plain, table
from onecopy_bench.engine.ways import missing
from onecopy_bench.scenarios.rows import probe
from onecopy_bench.scenarios.rows.data import Source
from onecopy_bench.scenarios.rows.peers import imports
from onecopy_bench.scenarios.rows.probe import Errand
from onecopy_bench.scenarios.rows.share import prepared
from onecopy_bench.scenarios.rows.ways import CASES, WAYS, Way, draw, right_answer
from onecopy_bench.scenarios.rows.ways import Case as Question

Sources = Mapping[tuple[str, int], Source]

NAME = "records"
NAMES = tuple(case.name for case in CASES)
INDEX_BYTES = 8
"""What an index of a sampler counts as, where pickled rows count otherwise."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run: `cases` by name, see `ways.CASES`; each number of `shuffle` is a case of its own."""

    cases: tuple[str, ...] = cli.field(NAMES, "What is asked for.", "--case", choices=NAMES)
    rows: int = cli.field(200_000, "Annotations.")
    strings: int = cli.field(10_000_000, "Of 26 characters.")
    pairs: int = cli.field(1_000_000, "Of a path and a label.")
    keys: int = cli.field(1_000_000, "Of the dict.")
    imported: int = cli.field(770_000, "Rows of the JSON file.")
    shuffle: tuple[int, ...] = cli.field((50_000_000, 1_000_000_000), "Indices of a sampler.")
    draws: int = cli.field(20_000, "Random items of a sample.")
    repeats: int = cli.field(5, "Of all draws.")

    def count(self, case: Question) -> int:
        """Return how many rows a case is asked of."""
        special = {"string": self.strings, "pair": self.pairs, "import": self.imported}
        return self.keys if case.kind == "keyed" else special.get(case.name, self.rows)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way in every case; raises ValueError if the log is of another run."""
    sources = write_sources(place, options, watch)
    turns = [turn for case in CASES if case.name in options.cases for turn in turns_of(case, sources, options)]
    every = [(case, way) for case in CASES if case.name in options.cases for way in WAYS[case.name]]
    rows = [
        Row(f"{case.name}: {way.name}", way.statement, way.name.startswith("onecopy"))
        for case, way in every
        if not missing(way.peer.needs)
    ]
    absent = [
        Absent(f"{case.name}: {way.name}", f"not installed: {', '.join(lacks)}")
        for case, way in every
        if (lacks := missing(way.peer.needs))
    ]
    head = heading(NAME, place, options, rows, absent=absent)
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def write_sources(place: Path, options: Options, watch: Watch) -> Sources:
    """Write the rows that the cases need, by their kind and count; those of the import as JSON as well."""
    sources: dict[tuple[str, int], Source] = {}
    for case in CASES:
        key = (case.kind, options.count(case))
        if case.name not in options.cases or case.subject == "next":
            continue
        folder = place / f"{key[0]}-{key[1]}"
        if key not in sources:
            folder.mkdir(exist_ok=True)
            sources[key] = prepared(folder, case.kind, key[1], None, watch)
        if case.name == "import":
            imports.write(sources[key], folder)
    return sources


def turns_of(case: Question, sources: Sources, options: Options) -> Iterator[Turn]:
    """Yield what a round holds of a case."""
    asked: list[tuple[Source, Case]]
    if case.subject == "next":
        asked = [(Source("", case.kind, n, INDEX_BYTES * n), (case.name, f"{n:.0e}")) for n in options.shuffle]
    else:
        asked = [(sources[case.kind, options.count(case)], (case.name,))]
    for source, title in asked:
        errand = Errand(case.name, "", source, "", draws_of(case, source, options), options.repeats, options.seed)
        right = right_answer(case, source, draw(source, errand.draws, errand.seed))
        for way in WAYS[case.name]:
            if not missing(way.peer.needs):
                take = asking(replace(errand, way=way.name), way, right, options)
                yield Turn(way.name, title, way.peer.builds * source.pickled, take)


def draws_of(case: Question, source: Source, options: Options) -> int:
    """Return how many items are asked for: a sampler gives each index once, so the repeats share them."""
    return min(options.draws, source.count // (options.repeats + 1) if case.subject == "next" else source.count)


def asking(errand: Errand, way: Way, right: int, options: Options) -> Callable[[Attempt], Taken]:
    """Return what takes a sample."""

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        folder = attempt.folder()
        mine = replace(errand, folder=os.fspath(folder))
        if errand.case == "import":
            for name in (imports.DOCUMENT, imports.LINES):  # the JSON files without copying them
                (folder / name).hardlink_to(Path(errand.source.path).parent / name)
        built: dict[str, float | None] = {}
        if way.peer.keeps:
            with crew_of(probe.__name__, mine, 1, options.timeout) as crew:
                opened, peak = opening(crew)
                crew.dismiss()
            built = {"build_ns": opened["open_ns"], "build_peak": peak}
        with crew_of(probe.__name__, mine, 1, options.timeout) as crew:
            empty = memory_of(crew.pids[0])
            opened, peak = opening(crew)
            after = memory_of(crew.pids[0])
            (measured,) = crew.step("measured")
            held = memory_of(crew.pids[0])
            crew.dismiss()
        if measured["answer"] != right:
            raise SampleError("wrong data", f"the answers sum to {measured['answer']:#x}, the right ones to {right:#x}")
        numbers = {
            "build_ns": opened["open_ns"],
            "build_peak": peak,
            **built,
            "open_ns": opened["open_ns"],
            "nbytes": opened["nbytes"],
            "opened_uss": after.private - empty.private,
            "uss": held.private - empty.private,
            "best_ns": min(measured["ns"]),
            "median_ns": statistics.median(measured["ns"]),
        }
        return Taken(numbers, [(each,) for each in measured["ns"]])

    return take


def opening(crew: Crew) -> tuple[dict[str, float], int]:
    """Let the process of a crew make its rows ready; return its message, and its highest RssAnon above the start."""
    start = memory_of(crew.pids[0]).anonymous
    peak = Peak(crew.pids, family=True)
    (opened,) = crew.step("opened", peak.poll)
    peak.poll()
    return opened, max(peak.bytes - start, 0)


COLUMNS: tuple[Column, ...] = (
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


def tables_of(record: Record) -> Iterator[Table]:
    """Yield a table for each case."""
    for case in record.cases():
        known = [row.name for row in record.rows] + [absent.name for absent in record.absent]
        every = [name.partition(": ") for name in known]
        names = [name for question, _, name in every if question == case[0]]
        yield table(record, ", ".join(case), case, names, COLUMNS)


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    options = record.options
    return (
        f"records: {counted(rounds_of(record), 'round')}, {options['draws']} random items, {options['repeats']} times"
    )


def findings(record: Record) -> Iterator[str]:
    """Yield, for every case, the best of others beside the best of ours."""
    mine = {name.partition(": ")[2] for name in record.ours}
    for case in record.cases():
        title, found = figures_of(record, case)
        ours = min((value for name, value in found.items() if name in mine), default=None)
        others = min(((value, name) for name, value in found.items() if name not in mine), default=None)
        if ours is not None and others is not None:
            words = f"onecopy {number(ours)}, the best of the others {number(others[0])} ({others[1]})"
            yield f"{', '.join(case)}, {title}: {words}."


def figures_of(record: Record, case: Case) -> tuple[str, dict[str, float]]:
    """Return what a case is about, in words, and the least of it by row."""
    title, name, unit = FIGURES.get(case[0], ("ns", "best_ns", 1.0))
    rows = dict.fromkeys(sample.row for sample in record.samples if sample.case == case)
    spreads = {row: record.spread(row, case, name) for row in rows}
    return title, {row: spread.low / unit for row, spread in spreads.items() if spread is not None}


def draw_items(figure: Any, record: Record) -> None:
    """Draw a panel per case: the best of each way."""
    cases = {case: figures_of(record, case) for case in record.cases()}
    heights = [max(len(values), 1) * pictures.PER_ROW + pictures.PER_CASE for _, values in cases.values()] or [1.0]
    figure.set_size_inches(pictures.WIDTH, sum(heights) + 0.4)
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)
    ours = {name.partition(": ")[2] for name in record.ours}
    for (case, (title, values)), (axes,) in zip(cases.items(), panels, strict=False):
        pictures.bars(axes, values, ours)
        axes.set_title(f"{', '.join(case)}: {title}")


SCENARIO = Scenario(NAME, described, tables_of, findings, draw_items)


@click.command(NAME)
@cli.common(SCENARIO, Options())
def command(*, options: Options, measure: Measure) -> None:
    """Measure one item at a time: rows, fields, batches, strings, keys, an import, shuffled indices.

    Each way to ask is a statement in a fresh process, timed over random items and judged by their checksums. A way
    whose package is not installed is a row that says so.
    """
    measure(lambda place, watch, log: run(place, options, watch, log))
