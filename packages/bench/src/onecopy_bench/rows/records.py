"""`onecopy bench records`: one item at a time, in a fresh process for each way of asking.

A `Question` asks for a whole row, one number of it, a batch. An `Answer` is how a peer gives it: a statement as a user
would write it, in which `i` is what is asked for. It is put into the loop as it stands, so no call of ours is timed.

A sample makes its rows ready, answers every question once to be judged, and then times the statement over all of them
again and again; what is asked for is random, and the data are warm. Rows that are kept in files are built by a process
of their own before, which is timed as well; so the memory of the one that asks is without what building leaves.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from timeit import Timer
from typing import Any, Literal

import numpy as np

from onecopy_bench.peers import Peer, installed, module, named
from onecopy_bench.pictures import by_case
from onecopy_bench.processes import Workers, expect_same, memory_of, start_workers
from onecopy_bench.record import Absent, Case, Record, Row
from onecopy_bench.rows import peers
from onecopy_bench.rows.data import COLUMNS, Kind, Source, checksum
from onecopy_bench.rows.peers import EVERY, IMPORTS, SAMPLERS, Holder, nbytes_of
from onecopy_bench.rows.share import prepared
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, option
from onecopy_bench.system import Peak
from onecopy_bench.tables import MB, Table, plain, table
from onecopy_bench.worker import Steps

NAME = "records"
BATCH, STRETCH = 256, 4096
INDEX_BYTES = 8
"""What an index of a sampler counts as, where pickled rows count otherwise."""
Subject = Literal["index", "batch", "key", "next"]
Value = Any
Sources = Mapping[tuple[str, int], Source]


# --- questions and answers --------------------------------------------------------------------------------------------


def same(value: Value) -> Value:
    """Return the value."""
    return value


@dataclass(frozen=True, slots=True)
class Question:
    """One question: the word for it, the rows it is asked of, what `i` is, and the right answer, given the row.

    `whole`: read all rows before the memory is measured, so that a mapping is counted as a copy is.
    """

    name: str
    kind: Kind
    subject: Subject = "index"
    pick: Callable[[Any], Value] = same
    whole: bool = False


QUESTIONS = {
    question.name: question
    for question in (
        Question("row", "coco"),
        Question("scalar", "coco", pick=lambda row: row["category_id"]),
        Question("leaf", "coco", pick=lambda row: row["bbox"]),
        Question("batch rows", "coco", "batch"),
        Question("batch columns", "coco", "batch", lambda row: [row[name] for name in COLUMNS]),
        Question("string", "strings", whole=True),
        Question("pair", "pairs", whole=True),
        Question("key", "keyed", "key", lambda row: row[1], whole=True),
        Question("import", "coco"),
        Question("shuffle", "strings", "next"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Peer):
    """How a peer answers a question; `detail` is the statement that is timed.

    `plain` makes the answer what the judge compares, of a batch a list of answers; `arrays`: batches are numpy arrays.
    """

    holder: Holder
    plain: Callable[[Any], Value] = same
    arrays: bool = False


def _answer(
    name: str, statement: str, holder: str = "", plain: Callable[[Any], Value] = same, arrays: bool = False
) -> Answer:
    """Return an answer of the holder with that name, or with the name of the answer."""
    found = named(EVERY, holder or name)
    ours = name.startswith("onecopy")
    return Answer(name, statement, found.needs, ours=ours, holder=found, plain=plain, arrays=arrays)


def numbers(value: Any) -> list[float]:
    """Return an array, or a list of numbers, as a list of floats."""
    return [float(each) for each in value]


def _columns_of(taken: Any) -> list[Value]:
    return _rows_of([_as_lists(taken[name]) for name in COLUMNS])


def _as_lists(column: Any) -> list[Any]:
    """Return a column as a list: an array, an Arrow column, or a list."""
    if hasattr(column, "offsets"):  # onecopy's lists of numbers
        ends = column.offsets.tolist()
        return [column.values[begin:end].tolist() for begin, end in pairwise(ends)]
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            return getattr(column, method)()  # type: ignore[no-any-return]
    return [_as_lists(each) if hasattr(each, "tolist") else each for each in column]


def _first_row(found: Any) -> Any:
    return (found.to_pylist() if hasattr(found, "to_pylist") else found.to_dicts())[0]


def _rows_of(columns: Any) -> list[Value]:
    return [list(row) for row in zip(*columns, strict=True)]


_DECODED = "decode(blob[at[i] : at[i + 1]])"
_TABLES = {"pyarrow.json", "polars ndjson"}
ANSWERS: dict[str, tuple[Answer, ...]] = {
    "row": (
        _answer("list", "rows[i]"),
        _answer("copy.deepcopy", "deepcopy(rows[i])", "list"),
        _answer("pickle", _DECODED),
        _answer("msgspec", _DECODED),
        _answer("orjson", _DECODED),
        _answer("pyarrow slice", "table.slice(i, 1).to_pylist()[0]", "pyarrow IPC"),
        _answer("pyarrow scalar", "structs[i].as_py()", "pyarrow IPC"),
        _answer("polars row", "frame.row(i, named=True)", "polars"),
        _answer("LMDB", "loads(txn.get(key(i)))"),
        _answer("sqlite", "loads(get(QUERY, (i,)).fetchone()[0])"),
        _answer("NumpySerializedList", "rows[i]"),
        _answer("TorchSerializedList", "rows[i]"),
        _answer("HF datasets", "dataset[i]"),
        _answer("onecopy", "rows[i]"),
    ),
    "scalar": (
        _answer("list", 'rows[i]["category_id"]'),
        _answer("msgspec", f'{_DECODED}["category_id"]'),
        _answer("pyarrow scalar", "category_id[i].as_py()", "pyarrow IPC"),
        _answer("polars series", "category_id[i]", "polars"),
        _answer("HF datasets", 'dataset[i]["category_id"]'),
        _answer("onecopy lazy", "lazy[i].category_id", "onecopy"),
    ),
    "leaf": (
        _answer("list", 'rows[i]["bbox"]'),
        _answer("msgspec", f'{_DECODED}["bbox"]'),
        _answer("pyarrow scalar", "bbox[i].values.to_numpy()", "pyarrow IPC", numbers),
        _answer("polars series", "bbox[i].to_numpy()", "polars", numbers),
        _answer("onecopy lazy", "lazy[i].bbox", "onecopy", numbers),
    ),
    "batch rows": (
        _answer("list", "[rows[j] for j in i]"),
        _answer("pickle", "[decode(blob[at[j] : at[j + 1]]) for j in i]"),
        _answer("msgspec", "[decode(blob[at[j] : at[j + 1]]) for j in i]"),
        _answer("pyarrow take", "table.take(i).to_pylist()", "pyarrow IPC", arrays=True),
        _answer("HF datasets", "dataset.__getitems__(i)"),
        _answer("onecopy", "rows.__getitems__(i)"),
    ),
    "batch columns": (
        _answer("list", '[[rows[j]["bbox"] for j in i], [rows[j]["category_id"] for j in i]]', plain=_rows_of),
        _answer("pyarrow take", "some.take(i)", "pyarrow IPC", _columns_of, arrays=True),
        _answer("HF datasets", "dataset[i]", plain=_columns_of),
        _answer(
            "onecopy take", f'rows.take(i, columns={list(COLUMNS)}, out="numpy")', "onecopy table", _columns_of,
            arrays=True,
        ),
    ),
    "string": (
        _answer("list", "rows[i]"),
        _answer("numpy S", "rows[i].decode()"),
        _answer("numpy StringDType", "rows[i]"),
        _answer("pyarrow large_string", "rows[i].as_py()", "pyarrow"),
        _answer("polars series", "value[i]", "polars"),
        _answer("NumpySerializedList", "rows[i]"),
        _answer("TorchSerializedList", "rows[i]"),
        _answer("HF datasets", 'dataset[i]["value"]'),
        _answer("onecopy", "rows[i]"),
    ),
    "pair": tuple(_answer(name, "rows[i]") for name in ("list", "TorchSerializedList", "onecopy")),
    "key": (
        _answer("dict", "rows[i]"),
        _answer("LMDB", "loads(txn.get(i.encode()))"),
        _answer("sqlite", "loads(get(QUERY, (i,)).fetchone()[0])"),
        _answer("onecopy", "rows[i]", "onecopy dict"),
    ),
    "import": tuple(
        _answer(one.name, "rows.slice(i, 1)", plain=_first_row) if one.name in _TABLES else _answer(one.name, "rows[i]")
        for one in IMPORTS
    ),
    "shuffle": tuple(_answer(one.name, "next(following)", plain=int) for one in SAMPLERS),
}  # fmt: skip
"""The answers to each question, by its name."""


def draw(source: Source, draws: int, seed: int) -> list[int]:
    """Return random positions, no two alike; the same for the same seed, in every process."""
    return random.Random(seed).sample(range(source.count), min(draws, source.count))  # noqa: S311


def subjects(question: Question, positions: Sequence[int], *, arrays: bool = False) -> list[Any]:
    """Return the values that `i` takes."""
    if question.subject == "batch":
        found = [list(positions[at : at + BATCH]) for at in range(0, len(positions), BATCH)]
        return [np.array(each) for each in found] if arrays else found
    if question.subject == "key":
        return [f"train2017/{position:012d}.jpg" for position in positions]
    return list(positions)


def right_answer(question: Question, source: Source, positions: Sequence[int]) -> int:
    """Return the sum of the checksums that every peer must reach."""
    if question.subject == "next":
        return len(positions)
    rows = source.chosen(positions)
    return sum(checksum(position, question.pick(rows[position])) for position in positions)


def judged(question: Question, answer: Answer, answers: Sequence[Any], positions: Sequence[int], count: int) -> int:
    """Return the sum of the checksums of the answers; for shuffled indices, the number of distinct valid ones."""
    plain = [answer.plain(each) for each in answers]
    if question.subject == "next":
        return len({value for value in plain if 0 <= value < count})
    if question.subject == "batch":
        plain = [value for batch in plain for value in batch]
    return sum(checksum(position, value) for position, value in zip(positions, plain, strict=True))


def steps(question: str, answer: str, source: Source, folder: str, draws: int, repeats: int, seed: int) -> Steps:
    """Prepare the rows, check every answer once, and then time the statement over all items repeatedly."""
    asks, answers = QUESTIONS[question], named(ANSWERS[question], answer)
    holder = answers.holder
    for name in holder.needs:
        module(name)
    gc.collect()
    yield "ready", {}
    start = time.perf_counter_ns()
    rows = holder.ready(source, Path(folder))
    yield "opened", {"open_ns": time.perf_counter_ns() - start, "nbytes": nbytes_of(rows)}
    positions, count = draw(source, draws, seed), source.count
    taken: list[Any] = []
    names = {**holder.names(rows), "keep": taken.append}
    names["asked"] = subjects(asks, positions, arrays=answers.arrays)
    Timer(f"for i in asked: keep({answers.detail})", globals=names).timeit(1)
    found = judged(asks, answers, taken, positions, count)
    taken.clear()
    timer = Timer(f"for i in asked: {answers.detail}", globals=names)
    ns = [1e9 * seconds / len(positions) for seconds in timer.repeat(repeats, 1)]
    if asks.whole and holder.keeps:
        for at in range(0, count, STRETCH):  # a list of all that is asked would be counted too
            stretch = subjects(asks, range(at, min(at + STRETCH, count)))
            Timer(f"for i in asked: {answers.detail}", globals={**names, "asked": stretch}).timeit(1)
    yield "measured", {"ns": ns, "answer": found}


# --- the scenario -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run: `cases` by name, see `QUESTIONS`; each number of `shuffle` is a case of its own."""

    cases: tuple[str, ...] = option(tuple(QUESTIONS), "Question to measure.", "--case", choices=tuple(QUESTIONS))
    rows: int = option(200_000, "Number of annotations.")
    strings: int = option(10_000_000, "Number of strings of 26 characters.")
    pairs: int = option(1_000_000, "Number of pairs of a path and a label.")
    keys: int = option(1_000_000, "Number of keys of the dict.")
    imported: int = option(770_000, "Number of rows of the JSON file.")
    shuffle: tuple[int, ...] = option((50_000_000, 1_000_000_000), "Number of indices of a sampler.")
    draws: int = option(20_000, "Number of random items of a sample.")
    repeats: int = option(5, "Number of times that all draws are repeated.")

    def count(self, question: Question) -> int:
        """Return how many rows a question is asked of."""
        special = {"string": self.strings, "pair": self.pairs, "import": self.imported}
        return self.keys if question.kind == "keyed" else special.get(question.name, self.rows)


def plan(setup: Setup, options: Options) -> Plan:
    """Write the rows, and plan every answer in every case."""
    sources = _sources(setup, options)
    trials: list[Trial] = []
    rows: list[Row] = []
    absent: list[Absent] = []
    for question in (QUESTIONS[name] for name in options.cases):
        answers, lost = installed(ANSWERS[question.name])
        rows += [Row(f"{question.name}: {one.name}", one.detail, one.ours) for one in answers]
        absent += [Absent(f"{question.name}: {one.name}", one.reason) for one in lost]
        trials += _trials_of(question, answers, sources, options)
    return Plan(rows, trials, absent=absent)


def _sources(setup: Setup, options: Options) -> Sources:
    """Write the rows that the cases need, by their kind and count; those of the import as JSON as well."""
    sources: dict[tuple[str, int], Source] = {}
    for question in (QUESTIONS[name] for name in options.cases if QUESTIONS[name].subject != "next"):
        key = (question.kind, options.count(question))
        folder = setup.place / f"{key[0]}-{key[1]}"
        if key not in sources:
            folder.mkdir(exist_ok=True)
            sources[key] = prepared(setup, folder, question.kind, key[1])
        if question.name == "import":
            peers.write_json(sources[key], folder)
    return sources


def _trials_of(question: Question, answers: list[Answer], sources: Sources, options: Options) -> Iterator[Trial]:
    asked: list[tuple[Source, Case]]
    if question.subject == "next":
        asked = [(Source("", question.kind, n, INDEX_BYTES * n), (question.name, f"{n:.0e}")) for n in options.shuffle]
    else:
        asked = [(sources[question.kind, options.count(question)], (question.name,))]
    for source, title in asked:
        draws = draws_of(question, source, options)
        right = right_answer(question, source, draw(source, draws, options.seed))
        arguments = {"question": question.name, "source": source, "draws": draws, "repeats": options.repeats}
        for answer in answers:
            mine = {**arguments, "answer": answer.name, "seed": options.seed}
            take = partial(_take, answer.holder.keeps, mine, right, options.timeout)
            yield Trial(answer.name, title, answer.holder.builds * source.pickled, take)


def draws_of(question: Question, source: Source, options: Options) -> int:
    """Return how many items are requested; a sampler yields each index once, so the repeats share them."""
    return min(options.draws, source.count // (options.repeats + 1) if question.subject == "next" else source.count)


def _take(keeps: bool, arguments: dict[str, Any], right: int, timeout: float, attempt: Attempt) -> Measured:
    attempt.begin()
    folder = attempt.folder()
    arguments = {**arguments, "folder": os.fspath(folder)}
    if arguments["question"] == "import":
        for name in (peers.DOCUMENT, peers.LINES):  # the JSON files without copying them
            (folder / name).hardlink_to(Path(arguments["source"].path).parent / name)
    built: dict[str, float | None] = {}
    if keeps:
        with start_workers(__name__, 1, timeout, **arguments) as workers:
            _, built = _opening(workers)
            workers.dismiss()
    with start_workers(__name__, 1, timeout, **arguments) as workers:
        empty = memory_of(workers.pids[0])
        opened, own = _opening(workers)
        after = memory_of(workers.pids[0])
        (measured,) = workers.step("measured")
        held = memory_of(workers.pids[0])
        workers.dismiss()
    expect_same(measured["answer"], right, "the sums of the answers and of the right ones")
    numbers: dict[str, float | None] = {name: opened[name] for name in ("open_ns", "nbytes")}
    numbers |= {"opened_uss": after.uss - empty.uss, "uss": held.uss - empty.uss}
    numbers |= {"best_ns": min(measured["ns"]), "median_ns": statistics.median(measured["ns"])}
    return Measured({**(built or own), **numbers}, [(each,) for each in measured["ns"]])


def _opening(workers: Workers) -> tuple[dict[str, float], dict[str, float | None]]:
    """Let the process prepare its rows; return its message, and the time and memory that it took."""
    start = memory_of(workers.pids[0]).anonymous
    peak = Peak(workers.family)
    (opened,) = workers.step("opened", peak.poll)
    peak.poll()
    return opened, {"build_ns": opened["open_ns"], "build_peak": max(peak.bytes - start, 0)}


TABLE = (
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
        yield table(record, ", ".join(case), case, names, TABLE)


def _described(record: Record) -> str:
    options = record.options
    return f"{options['draws']} random items, {options['repeats']} times"


SCENARIO = Scenario(
    NAME,
    """Measure one item at a time: rows, fields, batches, strings, keys, an import, shuffled indices.

    Each way to ask is a statement in a fresh process, timed over random items and judged by their checksums. A way
    whose package is not installed is a row that says so.
    """,
    Options(),
    plan,
    _described,
    _tables,
    draw=by_case({"ns, the best": plain("best_ns"), "MB of it": plain("uss", MB)}),
)
