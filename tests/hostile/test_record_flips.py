"""Files of records with any byte changed, also while they are read: a value or an error, and the process lives.

A child reads everything in every way after each change: rows, views, columns, keys, Arrow.
"""

# ruff: noqa: B023 - functions that are called at once
import contextlib
import json
import mmap
import multiprocessing
import os
import struct
import time
import warnings
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.damage import flipped
from tests.support.record_files import file_of_rows, node, numbers

import onecopy as oc
import onecopy.records

TABLE = [
    {
        "id": i * 100,
        "name": "é" * i,
        "score": [None, 0.5][i % 2],
        "mixed": [1, 2.5, 3][i % 3],
        "box": [i / 2] * i,
        "lists": [[i], []],
        "tags": ["a", "b" * i],
        "pair": (i, "x"),
        "map": {i: "m"},
        "any": [i, "text", None, [i]][i % 4],
        "array": np.arange(i, dtype="i2"),
        "matrix": np.zeros((i, 2), "f4"),
        "big": 2**70 + i,
        "flag": [True, None][i % 2],
        **({"late": 1} if i == 4 else {}),
    }
    for i in range(6)
]
DICT = {f"key {i}": [i] for i in range(9)} | {(1, b"t"): [2], 0.5: [], None: [3], 2**80: [4]}
FILES = {"list": ["", "ab", None, "é€"], "table": TABLE, "dict": DICT}
MARKS = {"table": pytest.mark.unsanitized}  # 40 s there, and the fuzz target reads tables under the sanitizers


def attempt(act: Callable[[], object]) -> None:
    with contextlib.suppress(LookupError, ValueError, OverflowError, MemoryError, TypeError):  # ValueError: FormatError
        act()


def touch_rows(rows: Any) -> None:
    count = range(len(rows))
    for i in count:
        attempt(lambda: repr(rows[i]))
        attempt(lambda: repr(rows.lazy[i]))
        attempt(lambda: touch_keys(rows.lazy[i], rows.lazy[i]))
    attempt(lambda: rows.__getitems__(count))
    attempt(rows.numpy)
    if hasattr(rows, "columns"):
        for name in rows.columns:
            attempt(lambda: rows.take([*count, *count[::-1]], [name]))
            attempt(lambda: touch_rows(rows.column(name)))
        attempt(lambda: oc.share(onecopy.records.arrow_rows(rows))[:])
        attempt(lambda: oc.share(onecopy.records.arrow_rows(rows[::-1]))[:])
    attempt(rows.__arrow_c_array__)


def touch_keys(value: Any, keys: Any) -> None:
    for key in keys:
        attempt(lambda: value[key])


def touch(path: Path) -> None:
    """Read everything in every way."""
    opened: Any = oc.open_records(path)
    if isinstance(opened, onecopy.records.Dict):
        touch_keys(opened, ["key 0", "key 8", "none", (1, b"t"), 0.5, None, 2**80, 7])
        attempt(lambda: list(opened.items()))
        attempt(lambda: touch_rows(opened.values()))
    else:
        touch_rows(opened)


def touch_with_each_byte_changed(path: Path) -> int:
    warnings.simplefilter("ignore")
    touch(path)
    entries = oc.open_records(path).file.entries
    places = [at for entry in entries for at in range(entry.offset, entry.offset + entry.nbytes)]
    for at in places:
        with flipped(path, at, 0xFF if at % 2 else 1 << at // 2 % 8):
            attempt(lambda: touch(path))
    return len(places)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in FILES])
def test_no_changed_byte_of_the_data_is_more_than_an_error(kind, tmp_path: Path, in_child):
    path = tmp_path / "rows.oc"
    onecopy.records.save(path, FILES[kind])
    assert in_child(touch_with_each_byte_changed, path) > 10


@pytest.mark.parametrize("dtype", ["<U1", ">U1", "=U1", "U1", "U1,", "1U1", "<u2,<u2", "<i4"])
def test_an_array_of_text_with_an_impossible_character_is_refused_in_every_spelling(tmp_path, dtype):
    character = struct.pack(">I" if dtype == ">U1" else "<I", 0x7FFF_FFFF)
    types = node("array", 1, name=dtype, ndim=1, item_size=4)
    path = tmp_path / "rows.oc"
    path.write_bytes(file_of_rows(types, {"offsets": numbers("i", [0, 1]), "data": ("U8", [4], character)}))
    with oc.open_records(path) as rows:
        if dtype == "<i4":
            assert rows[0].tolist() == [0x7FFF_FFFF]
        else:
            with pytest.raises(oc.FormatError, match="the file is damaged"):
                rows[0]


# --- a process that changes a file while it is read ------------------------------------------------------------------

COUNT = 1 << 16
SECONDS = 2


def place_of_offsets(path: Path) -> int:
    """Return where the offsets of the one list begin: two numbers of four bytes."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    entries = json.loads(raw[8 : 8 + size])
    offsets = next(entry for name, entry in entries.items() if name.endswith("offsets"))
    assert offsets["dtype"] == "I32"
    return 8 + size + int(offsets["data_offsets"][0])


def flip(path: Path, at: int, ends: Event) -> None:
    """Change the first offset between 0 and the last item, again and again."""
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, 0) as memory:
        good, bad = memory[at : at + 4], (COUNT - 1).to_bytes(4, "little")
        while not ends.is_set():
            for _ in range(1000):
                memory[at : at + 4] = bad
                memory[at : at + 4] = good
        memory[at : at + 4] = good
    os.close(fd)


def answers(path: Path, rows: list[Any], ask: Callable[[Any], Any]) -> set[Any]:
    """Return what a function of rows has answered while another process changed the offsets of their list."""
    onecopy.records.save(path, rows)
    context = multiprocessing.get_context("spawn")
    ends = context.Event()
    writer = context.Process(target=flip, args=(path, place_of_offsets(path), ends))
    writer.start()
    found = set()
    with oc.open_records(path) as opened:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                found.add(ask(opened))
            except (IndexError, oc.FormatError):
                found.add("an error")
    ends.set()
    writer.join()
    return found


@pytest.mark.slow
def test_an_item_of_a_lazy_list_is_in_the_list_while_its_offsets_change(tmp_path):
    rows = [{"a": [{"v": i} for i in range(COUNT)]}]
    found = answers(tmp_path / "rows", rows, lambda opened: opened.lazy[0]["a"][COUNT - 1]["v"])
    assert COUNT - 1 in found
    assert found <= {COUNT - 1, "an error"}


@pytest.mark.slow
def test_the_items_that_are_taken_are_those_of_the_list_while_its_offsets_change(tmp_path):
    whole = np.arange(COUNT, dtype=float)
    whole[0] = np.nan
    good = {"all": whole, "the last one": whole[-1:]}

    def taken(opened: Any) -> str:
        values = opened.take([0])["a"].values
        return next((name for name, one in good.items() if np.array_equal(one, values, equal_nan=True)), "other memory")

    found = answers(tmp_path / "rows", [{"a": [None, *range(1, COUNT)]}], taken)
    assert "all" in found
    assert found <= {*good, "an error"}
