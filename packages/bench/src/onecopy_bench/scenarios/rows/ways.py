"""What is timed: a statement for each way to get an item, and what every one of them has to come to.

A `Case` is a question: a whole row, one number of it, a batch. A `Way` is how a peer answers it: a statement as a user
would write it, in which `i` is what is asked for. It is put into the loop as it stands, so no call of ours is timed.
Before the clock starts each answer is taken once and judged; what a way returns is made plain for that alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from onecopy_bench.scenarios.rows.data import COLUMNS, Kind, Source, checksum
from onecopy_bench.scenarios.rows.peers import Peer, files, heap, imports, onecopy, samplers

BATCH = 256
Subject = Literal["index", "batch", "key", "absent key", "next"]
Value = Any


def same(value: Value) -> Value:
    """Return the value."""
    return value


@dataclass(frozen=True, slots=True)
class Case:
    """One question.

    Attributes
    ----------
    name, detail
        The word for it, and the question in a few more.
    kind
        The rows it is asked of.
    subject
        What `i` is.
    pick
        Returns the right answer, given the row.
    whole
        Read all rows before the memory is measured, so that a mapping is counted as a copy is.
    """

    name: str
    detail: str
    kind: Kind
    subject: Subject = "index"
    pick: Callable[[Any], Value] = same
    whole: bool = False


CASES = (
    Case("row", "a whole row, a dict of its own", "coco"),
    Case("scalar", "one number of a row", "coco", pick=lambda row: row["category_id"]),
    Case("leaf", "the box of a row: four numbers", "coco", pick=lambda row: row["bbox"]),
    Case("polygon", "the first polygon of a row", "coco", pick=lambda row: row["segmentation"][0]),
    Case("batch rows", f"{BATCH} rows", "coco", "batch"),
    Case("batch columns", f"two columns of {BATCH} rows", "coco", "batch", lambda row: [row[name] for name in COLUMNS]),
    Case("string", "a string of 26 characters", "strings", whole=True),
    Case("pair", "a path and its label", "pairs", whole=True),
    Case("key", "the value of a key", "keyed", "key", lambda row: row[1], whole=True),
    Case("absent key", "a key that is not there", "keyed", "absent key", lambda _: None),
    Case("import", "the rows of a JSON file", "coco"),
    Case("shuffle", "a shuffled index", "strings", "next"),
)


@dataclass(frozen=True, slots=True)
class Way:
    """How a peer answers a question.

    Attributes
    ----------
    name
        The row of the table.
    peer
        Holds the rows.
    statement
        What is timed.
    plain
        Makes the answer what the judge compares; of a batch, a list of answers.
    arrays
        Batches are numpy arrays instead of lists.
    """

    name: str
    peer: Peer
    statement: str
    plain: Callable[[Any], Value] = same
    arrays: bool = False


def numbers(value: Any) -> list[float]:
    """Return an array, or a list of numbers, as a list of floats."""
    return [float(each) for each in value]


def columns_of(taken: Any) -> list[Value]:
    """Return columns, by name, as a list of rows."""
    plain = [as_lists(taken[name]) for name in COLUMNS]
    return [list(row) for row in zip(*plain, strict=True)]


def as_lists(column: Any) -> list[Any]:
    """Return a column as a list: an array, an Arrow column, or a list."""
    if hasattr(column, "offsets"):  # onecopy's lists of numbers
        ends = column.offsets.tolist()
        return [column.values[begin:end].tolist() for begin, end in pairwise(ends)]
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            return getattr(column, method)()  # type: ignore[no-any-return]
    return [as_lists(each) if hasattr(each, "tolist") else each for each in column]


_ROW = (
    Way("list", heap.LIST, "rows[i]"),
    Way("copy.deepcopy", heap.LIST, "deepcopy(rows[i])"),
    Way("pickle", heap.PICKLED, "decode(blob[at[i] : at[i + 1]])"),
    Way("msgspec", heap.MSGSPEC, "decode(blob[at[i] : at[i + 1]])"),
    Way("orjson", heap.ORJSON, "decode(blob[at[i] : at[i + 1]])"),
    Way("pyarrow slice", files.ARROW, "table.slice(i, 1).to_pylist()[0]"),
    Way("pyarrow scalar", files.ARROW, "structs[i].as_py()"),
    Way("polars row", files.POLARS, "frame.row(i, named=True)"),
    Way("LMDB", files.LMDB, "loads(txn.get(key(i)))"),
    Way("sqlite", files.SQLITE, "loads(get(QUERY, (i,)).fetchone()[0])"),
    Way("NumpySerializedList", heap.NUMPY, "rows[i]"),
    Way("TorchSerializedList", heap.TORCH, "rows[i]"),
    Way("HF datasets", files.HUGGING, "dataset[i]"),
    Way("onecopy", onecopy.SHARED, "rows[i]"),
)
_SCALAR = (
    Way("list", heap.LIST, 'rows[i]["category_id"]'),
    Way("msgspec", heap.MSGSPEC, 'decode(blob[at[i] : at[i + 1]])["category_id"]'),
    Way("pyarrow scalar", files.ARROW, "category_id[i].as_py()"),
    Way("polars series", files.POLARS, "category_id[i]"),
    Way("HF datasets", files.HUGGING, 'dataset[i]["category_id"]'),
    Way("onecopy lazy", onecopy.SHARED, "lazy[i].category_id"),
)
_LEAF = (
    Way("list", heap.LIST, 'rows[i]["bbox"]'),
    Way("msgspec", heap.MSGSPEC, 'decode(blob[at[i] : at[i + 1]])["bbox"]'),
    Way("pyarrow scalar", files.ARROW, "bbox[i].values.to_numpy()", numbers),
    Way("polars series", files.POLARS, "bbox[i].to_numpy()", numbers),
    Way("onecopy lazy", onecopy.SHARED, "lazy[i].bbox", numbers),
)
_POLYGON = (
    Way("list", heap.LIST, 'rows[i]["segmentation"][0]'),
    Way("msgspec", heap.MSGSPEC, 'decode(blob[at[i] : at[i + 1]])["segmentation"][0]'),
    Way("pyarrow scalar", files.ARROW, "segmentation[i].values[0].values.to_numpy()", numbers),
    Way("onecopy lazy", onecopy.SHARED, "lazy[i].segmentation[0]", numbers),
)
_BATCH_ROWS = (
    Way("list", heap.LIST, "[rows[j] for j in i]"),
    Way("pickle", heap.PICKLED, "[decode(blob[at[j] : at[j + 1]]) for j in i]"),
    Way("msgspec", heap.MSGSPEC, "[decode(blob[at[j] : at[j + 1]]) for j in i]"),
    Way("pyarrow take", files.ARROW, "table.take(i).to_pylist()", arrays=True),
    Way("HF datasets", files.HUGGING, "dataset.__getitems__(i)"),
    Way("onecopy", onecopy.SHARED, "rows.__getitems__(i)"),
)
_BATCH_COLUMNS = (
    Way(
        "list",
        heap.LIST,
        '[[rows[j]["bbox"] for j in i], [rows[j]["category_id"] for j in i]]',
        lambda v: list(map(list, zip(*v, strict=True))),
    ),
    Way("pyarrow take", files.ARROW, "some.take(i)", columns_of, arrays=True),
    Way("HF datasets", files.HUGGING, "dataset[i]", columns_of),
    Way("onecopy take", onecopy.TABLE, f'rows.take(i, columns={list(COLUMNS)}, out="numpy")', columns_of, arrays=True),
)
_STRING = (
    Way("list", heap.LIST, "rows[i]"),
    Way("numpy S", heap.NUMPY_S, "rows[i].decode()"),
    Way("numpy StringDType", heap.NUMPY_STRINGS, "rows[i]"),
    Way("pyarrow large_string", files.LARGE_STRINGS, "rows[i].as_py()"),
    Way("polars series", files.POLARS, "value[i]"),
    Way("NumpySerializedList", heap.NUMPY, "rows[i]"),
    Way("TorchSerializedList", heap.TORCH, "rows[i]"),
    Way("HF datasets", files.HUGGING, 'dataset[i]["value"]'),
    Way("onecopy", onecopy.SHARED, "rows[i]"),
)
_PAIR = (
    Way("list", heap.LIST, "rows[i]"),
    Way("TorchSerializedList", heap.TORCH, "rows[i]"),
    Way("onecopy", onecopy.SHARED, "rows[i]"),
)
_KEY = (
    Way("dict", heap.DICT, "rows[i]"),
    Way("LMDB", files.LMDB, "loads(txn.get(i.encode()))"),
    Way("sqlite", files.SQLITE, "loads(get(QUERY, (i,)).fetchone()[0])"),
    Way("onecopy", onecopy.KEYED, "rows[i]"),
)
_ABSENT_KEY = (
    Way("dict", heap.DICT, "rows.get(i)"),
    Way("LMDB", files.LMDB, "txn.get(i.encode())"),
    Way("sqlite", files.SQLITE, "get(QUERY, (i,)).fetchone()"),
    Way("onecopy", onecopy.KEYED, "rows.get(i)"),
)
_IMPORT = tuple(
    Way(peer.name, peer, "rows[i]")
    if peer.name not in {"pyarrow.json", "polars ndjson"}
    else Way(
        peer.name, peer, "rows.slice(i, 1)", lambda v: (v.to_pylist() if hasattr(v, "to_pylist") else v.to_dicts())[0]
    )
    for peer in imports.PEERS
)

WAYS: dict[str, tuple[Way, ...]] = {
    "row": _ROW,
    "scalar": _SCALAR,
    "leaf": _LEAF,
    "polygon": _POLYGON,
    "batch rows": _BATCH_ROWS,
    "batch columns": _BATCH_COLUMNS,
    "string": _STRING,
    "pair": _PAIR,
    "key": _KEY,
    "absent key": _ABSENT_KEY,
    "import": _IMPORT,
    "shuffle": tuple(Way(peer.name, peer, "next(following)", int) for peer in samplers.PEERS),
}
"""The ways to answer each question, by its name."""


def case_named(name: str) -> Case:
    """Return the case of that name."""
    return next(case for case in CASES if case.name == name)


def way_named(case: str, name: str) -> Way:
    """Return the way of that name to answer a question."""
    return next(way for way in WAYS[case] if way.name == name)


def draw(source: Source, draws: int, seed: int) -> list[int]:
    """Return random positions, no two alike; the same for the same seed, in every process."""
    return random.Random(seed).sample(range(source.count), min(draws, source.count))  # noqa: S311


def subjects(case: Case, positions: Sequence[int], count: int, *, arrays: bool = False) -> list[Any]:
    """Return what `i` is, one after the other."""
    if case.subject == "batch":
        found = [list(positions[at : at + BATCH]) for at in range(0, len(positions), BATCH)]
        return [np.array(each) for each in found] if arrays else found
    if case.subject in {"key", "absent key"}:
        first = count if case.subject == "absent key" else 0
        return [f"train2017/{first + position:012d}.jpg" for position in positions]
    return list(positions)


def right_answer(case: Case, source: Source, positions: Sequence[int]) -> int:
    """Return the sum of the checksums that every way has to come to."""
    if case.subject == "next":
        return len(positions)
    rows = source.chosen(positions)
    return sum(checksum(position, case.pick(rows[position])) for position in positions)


def judged(case: Case, way: Way, answers: Sequence[Any], positions: Sequence[int], count: int) -> int:
    """Return what the answers come to: the sum of their checksums; of shuffled indices, how many are new and right."""
    plain = [way.plain(answer) for answer in answers]
    if case.subject == "next":
        return len({value for value in plain if 0 <= value < count})
    if case.subject == "batch":
        plain = [value for batch in plain for value in batch]
    return sum(checksum(position, value) for position, value in zip(positions, plain, strict=True))
