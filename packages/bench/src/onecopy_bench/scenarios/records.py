"""`onecopy bench records`: one item at a time, in a fresh process for each way of asking.

A sample makes its rows ready, answers every question once to be judged, and then times the statement over all of them
again and again; what is asked for is random, and the data are warm. Rows that are kept in files are built by a process
of their own before, which is timed as well; so the memory of the one that asks is without what building leaves.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from onecopy.base.text import counted
from onecopy_bench.engine import rounds, scenario as cli
from onecopy_bench.engine.crew import Crew, SampleError, crew_of
from onecopy_bench.engine.memory import Peak, memory_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Case, Log, Record, Row, heading
from onecopy_bench.engine.rounds import Attempt, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import MB, Table, plain, table
from onecopy_bench.engine.ways import installed
from onecopy_bench.scenarios.share import prepared
from onecopy_bench.workers import questions, rivals
from onecopy_bench.workers.questions import ANSWERS, QUESTIONS, Answer, Question, draw, right_answer
from onecopy_bench.workers.rows import Source

Sources = Mapping[tuple[str, int], Source]

NAME = "records"
NAMES = tuple(QUESTIONS)
INDEX_BYTES = 8
"""What an index of a sampler counts as, where pickled rows count otherwise."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run: `cases` by name, see `QUESTIONS`; each number of `shuffle` is a case of its own."""

    cases: tuple[str, ...] = cli.option(NAMES, "What is asked for.", "--case", choices=NAMES)
    rows: int = cli.option(200_000, "Number of annotations.")
    strings: int = cli.option(10_000_000, "Number of strings of 26 characters.")
    pairs: int = cli.option(1_000_000, "Number of pairs of a path and a label.")
    keys: int = cli.option(1_000_000, "Number of keys of the dict.")
    imported: int = cli.option(770_000, "Rows of the JSON file.")
    shuffle: tuple[int, ...] = cli.option((50_000_000, 1_000_000_000), "Indices of a sampler.")
    draws: int = cli.option(20_000, "Number of random items of a sample.")
    repeats: int = cli.option(5, "Number of times that all draws are repeated.")

    def count(self, question: Question) -> int:
        """Return how many rows a question is asked of."""
        special = {"string": self.strings, "pair": self.pairs, "import": self.imported}
        return self.keys if question.kind == "keyed" else special.get(question.name, self.rows)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way in every case; raises ValueError if the log is of another run."""
    sources = _sources(place, options, watch)
    turns: list[Turn] = []
    rows: list[Row] = []
    absent: list[Absent] = []
    for question in (QUESTIONS[name] for name in options.cases):
        answers, lost = installed(ANSWERS[question.name])
        rows += [Row(f"{question.name}: {one.name}", one.detail, one.ours) for one in answers]
        absent += [Absent(f"{question.name}: {one.name}", one.reason) for one in lost]
        turns += _turns_of(question, answers, sources, options)
    head = heading(NAME, place, options, rows, absent=absent)
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def _sources(place: Path, options: Options, watch: Watch) -> Sources:
    """Write the rows that the cases need, by their kind and count; those of the import as JSON as well."""
    sources: dict[tuple[str, int], Source] = {}
    for question in (QUESTIONS[name] for name in options.cases if QUESTIONS[name].subject != "next"):
        key = (question.kind, options.count(question))
        folder = place / f"{key[0]}-{key[1]}"
        if key not in sources:
            folder.mkdir(exist_ok=True)
            sources[key] = prepared(folder, question.kind, key[1], None, watch)
        if question.name == "import":
            rivals.write_json(sources[key], folder)
    return sources


def _turns_of(question: Question, answers: list[Answer], sources: Sources, options: Options) -> Iterator[Turn]:
    asked: list[tuple[Source, Case]]
    if question.subject == "next":
        asked = [(Source("", question.kind, n, INDEX_BYTES * n), (question.name, f"{n:.0e}")) for n in options.shuffle]
    else:
        asked = [(sources[question.kind, options.count(question)], (question.name,))]
    for source, title in asked:
        draws = draws_of(question, source, options)
        right = right_answer(question, source, draw(source, draws, options.seed))
        errand = {"question": question.name, "source": source, "draws": draws, "repeats": options.repeats}
        for answer in answers:
            mine = {**errand, "answer": answer.name, "seed": options.seed}
            take = partial(_take, answer.rival.keeps, mine, right, options.timeout)
            yield Turn(answer.name, title, answer.rival.builds * source.pickled, take)


def draws_of(question: Question, source: Source, options: Options) -> int:
    """Return how many items are asked for: a sampler gives each index once, so the repeats share them."""
    return min(options.draws, source.count // (options.repeats + 1) if question.subject == "next" else source.count)


def _take(keeps: bool, errand: dict[str, Any], right: int, timeout: float, attempt: Attempt) -> Taken:
    attempt.begin()
    folder = attempt.folder()
    errand = {**errand, "folder": os.fspath(folder)}
    if errand["question"] == "import":
        for name in (rivals.DOCUMENT, rivals.LINES):  # the JSON files without copying them
            (folder / name).hardlink_to(Path(errand["source"].path).parent / name)
    built: dict[str, float | None] = {}
    if keeps:
        with crew_of(questions, 1, timeout, **errand) as crew:
            _, built = _opening(crew)
            crew.dismiss()
    with crew_of(questions, 1, timeout, **errand) as crew:
        empty = memory_of(crew.pids[0])
        opened, own = _opening(crew)
        after = memory_of(crew.pids[0])
        (measured,) = crew.step("measured")
        held = memory_of(crew.pids[0])
        crew.dismiss()
    if measured["answer"] != right:
        raise SampleError("wrong data", f"the answers sum to {measured['answer']:#x}, the right ones to {right:#x}")
    numbers: dict[str, float | None] = {name: opened[name] for name in ("open_ns", "nbytes")}
    numbers |= {"opened_uss": after.uss - empty.uss, "uss": held.uss - empty.uss}
    numbers |= {"best_ns": min(measured["ns"]), "median_ns": statistics.median(measured["ns"])}
    return Taken({**(built or own), **numbers}, [(each,) for each in measured["ns"]])


def _opening(crew: Crew) -> tuple[dict[str, float], dict[str, float | None]]:
    """Let the process of a crew make its rows ready; return its message, and what that took."""
    start = memory_of(crew.pids[0]).anonymous
    peak = Peak(crew.pids, family=True)
    (opened,) = crew.step("opened", peak.poll)
    peak.poll()
    return opened, {"build_ns": opened["open_ns"], "build_peak": max(peak.bytes - start, 0)}


COLUMNS = (
    ("best\nns", plain("best_ns")),
    ("median\nns", plain("median_ns")),
    ("payload\nMB", plain("nbytes", MB)),
    ("USS, less\nstart MB", plain("uss", MB)),
    ("build\ns", plain("build_ns", 1e9)),
    ("build peak,\nanon. MB", plain("build_peak", MB)),
    ("open\nms", plain("open_ns", 1e6)),
)


def _tables(record: Record) -> Iterator[Table]:
    every = [each.name for each in record.rows] + [each.name for each in record.absent]
    known = [name.partition(": ") for name in every]
    for case in record.cases():
        names = [name for question, _, name in known if question == case[0]]
        yield table(record, ", ".join(case), case, names, COLUMNS)


def _described(record: Record) -> str:
    options = record.options
    return f"records: {counted(record.rounds, 'round')}, {options['draws']} random items, {options['repeats']} times"


SCENARIO = Scenario(
    NAME,
    """Measure one item at a time: rows, fields, batches, strings, keys, an import, shuffled indices.

    Each way to ask is a statement in a fresh process, timed over random items and judged by their checksums. A way
    whose package is not installed is a row that says so.
    """,
    Options(),
    run,
    _described,
    _tables,
    draw=by_case({"ns, the best": plain("best_ns"), "MB of it": plain("uss", MB)}),
)
