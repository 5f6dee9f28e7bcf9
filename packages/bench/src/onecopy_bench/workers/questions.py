"""What `bench records` times: a statement for each way to get an item; and the process that times one of them.

A `Question` asks for a whole row, one number of it, a batch. An `Answer` is how a rival gives it: a statement as a user
would write it, in which `i` is what is asked for. It is put into the loop as it stands, so no call of ours is timed.
Before the clock starts each answer is taken once and judged; what a statement returns is made plain for that alone.
"""

from __future__ import annotations

import gc
import importlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from timeit import Timer
from typing import Any, Literal

import numpy as np

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import Way, named
from onecopy_bench.workers.rivals import IMPORTS, RIVALS, SAMPLERS, Rival, nbytes_of
from onecopy_bench.workers.rows import COLUMNS, Kind, Source, checksum

BATCH = 256
STRETCH = 4096
Subject = Literal["index", "batch", "key", "next"]
Value = Any


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
class Answer(Way):
    """How a rival answers a question; `detail` is the statement that is timed.

    `plain` makes the answer what the judge compares, of a batch a list of answers; `arrays`: batches are numpy arrays.
    """

    rival: Rival
    plain: Callable[[Any], Value] = same
    arrays: bool = False


def _answer(
    name: str, statement: str, rival: str = "", plain: Callable[[Any], Value] = same, arrays: bool = False
) -> Answer:
    """Return how the rival of that name answers, or of the name of the answer."""
    found = named(RIVALS, rival or name)
    ours = name.startswith("onecopy")
    return Answer(name, statement, found.needs, ours=ours, rival=found, plain=plain, arrays=arrays)


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
"""The ways to answer each question, by its name."""


def draw(source: Source, draws: int, seed: int) -> list[int]:
    """Return random positions, no two alike; the same for the same seed, in every process."""
    return random.Random(seed).sample(range(source.count), min(draws, source.count))  # noqa: S311


def subjects(question: Question, positions: Sequence[int], *, arrays: bool = False) -> list[Any]:
    """Return what `i` is, one after the other."""
    if question.subject == "batch":
        found = [list(positions[at : at + BATCH]) for at in range(0, len(positions), BATCH)]
        return [np.array(each) for each in found] if arrays else found
    if question.subject == "key":
        return [f"train2017/{position:012d}.jpg" for position in positions]
    return list(positions)


def right_answer(question: Question, source: Source, positions: Sequence[int]) -> int:
    """Return the sum of the checksums that every way has to come to."""
    if question.subject == "next":
        return len(positions)
    rows = source.chosen(positions)
    return sum(checksum(position, question.pick(rows[position])) for position in positions)


def judged(question: Question, answer: Answer, answers: Sequence[Any], positions: Sequence[int], count: int) -> int:
    """Return what the answers come to: the sum of their checksums; of shuffled indices, how many are new and right."""
    plain = [answer.plain(each) for each in answers]
    if question.subject == "next":
        return len({value for value in plain if 0 <= value < count})
    if question.subject == "batch":
        plain = [value for batch in plain for value in batch]
    return sum(checksum(position, value) for position, value in zip(positions, plain, strict=True))


def play(question: str, answer: str, source: Source, folder: str, draws: int, repeats: int, seed: int) -> Steps:
    """Make the rows ready; then judge every answer once, and time the statement over all of them, again and again."""
    asks, answers = QUESTIONS[question], named(ANSWERS[question], answer)
    rival = answers.rival
    for name in rival.needs:
        importlib.import_module(name)
    gc.collect()
    yield "ready", {}
    start = time.perf_counter_ns()
    rows = rival.ready(source, Path(folder))
    yield "opened", {"open_ns": time.perf_counter_ns() - start, "nbytes": nbytes_of(rows)}
    positions, count = draw(source, draws, seed), source.count
    taken: list[Any] = []
    names = {**rival.names(rows), "keep": taken.append}
    names["asked"] = subjects(asks, positions, arrays=answers.arrays)
    Timer(f"for i in asked: keep({answers.detail})", globals=names).timeit(1)
    found = judged(asks, answers, taken, positions, count)
    taken.clear()
    timer = Timer(f"for i in asked: {answers.detail}", globals=names)
    ns = [1e9 * seconds / len(positions) for seconds in timer.repeat(repeats, 1)]
    if asks.whole and rival.keeps:
        for at in range(0, count, STRETCH):  # a list of all that is asked would be counted too
            stretch = subjects(asks, range(at, min(at + STRETCH, count)))
            Timer(f"for i in asked: {answers.detail}", globals={**names, "asked": stretch}).timeit(1)
    yield "measured", {"ns": ns, "answer": found}
