"""A List is what went in: equal, of the same types, in every order that is asked for. Judged by Python's own lists."""

from __future__ import annotations

import decimal
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.golden.records.classes import Colour, Point
from tests.support.places import DATA, needs
from tests.support.rows import INTEGERS, same

import onecopy as oc
import onecopy.records

DTYPES = ["?", "u1", "<i2", ">i4", "<u8", "<f2", ">f8", "<c16", "<U3", "S2", "M8[ns]", "m8[D]"]


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Arrays of up to three axes, some of them not in C order."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size)) if dtype.kind not in "U?" else bytes(size)
    array = np.frombuffer(data, dtype).reshape(shape) if size else np.zeros(shape, dtype)
    return draw(st.sampled_from([array, array.T, array[::-1] if array.ndim else array]))


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-300, 300)
    | st.sampled_from(INTEGERS)
    | st.floats()
    | st.text(st.characters(), max_size=8)  # lone surrogates among them
    | st.binary(max_size=8)
    | st.sets(st.integers(0, 5), max_size=3)
    | st.complex_numbers()
    | st.datetimes()
    | arrays()
    | st.sampled_from([np.float32(1.5), np.int64(-3), np.uint8(3), np.bool_(True), np.datetime64("2026-01-01", "s")])
    | st.sampled_from([Colour.RED, Colour.GREEN, Point(1.5, 2), decimal.Decimal("1.50")])
)
KEYS = st.none() | st.integers(-5, 5) | st.text(max_size=2) | st.tuples(st.booleans(), st.text(max_size=1))
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=11).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "b", "é", "", "x y", "a.b", "%#"]), inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=30,
)


@given(st.lists(VALUES, max_size=12), st.integers(1, 3))
@settings(max_examples=200)
@pytest.mark.slow
def test_what_was_shared_comes_back_as_it_was(rows, repeats):
    rows *= repeats
    shared = oc.share(rows)
    assert len(shared) == len(rows)
    assert all(map(same, shared, rows))


@given(
    st.lists(st.fixed_dictionaries({"id": st.integers(0, 300)}, optional={"a": st.none() | st.floats(), "b": VALUES}))
)
def test_missing_is_not_none_and_keys_keep_their_order(rows):
    rows = [dict(reversed(row.items())) if i % 3 == 0 else row for i, row in enumerate(rows)]
    assert all(map(same, oc.share(rows), rows))


@given(st.lists(st.integers(), max_size=20), st.data())
def test_slices_of_slices_are_those_of_a_list(rows, data):
    shared: Any = oc.share(rows)
    for _ in range(3):
        part = data.draw(st.slices(len(rows)))
        shared, rows = shared[part], rows[part]
        assert list(shared) == rows
        assert shared == rows
        chosen = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=5)) if rows else []
        assert list(shared.select(chosen)) == [rows[i] for i in chosen]
        assert shared.__getitems__(chosen) == [rows[i] for i in chosen]
        selected, expected = shared.select(chosen)[::-2], [rows[i] for i in chosen][::-2]
        assert list(selected) == expected
        assert list(reversed(shared)) == rows[::-1]


def test_a_handle_is_small_whatever_it_leads_to(tmp_path):
    rows = oc.share(list(range(100_000)))
    assert len(pickle.dumps(rows)) < 200
    part = rows[10:90_000:7]
    assert len(pickle.dumps(part)) < 200
    assert pickle.loads(pickle.dumps(part)) == part
    chosen = rows.select([5, 1])
    assert list(pickle.loads(pickle.dumps(chosen))) == [5, 1]
    onecopy.records.save(tmp_path / "rows.oc", list("abc"))
    opened = oc.open_records(tmp_path / "rows.oc")
    assert pickle.loads(pickle.dumps(opened)) == ["a", "b", "c"]


def test_a_handle_to_another_file_by_now_is_refused(tmp_path):
    path = tmp_path / "rows.oc"
    onecopy.records.save(path, ["old"])
    handle = pickle.dumps(oc.open_records(path))
    onecopy.records.save(path, ["new"])
    with pytest.raises(oc.errors.FileChanged):
        pickle.loads(handle)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(handle)


def test_the_error_for_data_that_is_gone_names_the_process_that_shared_it():
    handle = pickle.dumps(oc.share(["x"]))
    with pytest.raises(FileNotFoundError, match="has ended or has closed it"):
        pickle.loads(handle)


def test_concat_is_one_sequence_of_all():
    a, b = oc.share([1, 2, 3]), oc.share([4, 5])
    both = a + b
    plain = [1, 2, 3, 4, 5]
    assert both == plain
    assert both[::-2] == plain[::-2]
    assert list(both.select([4, 0])) == [5, 1]
    assert both[1:4][-1] == 4
    assert list(a.concat(["x"], b)) == [1, 2, 3, "x", 4, 5]
    assert pickle.loads(pickle.dumps(both)) == plain
    with pytest.raises(IndexError):
        both[5]


@pytest.mark.parametrize("kind", ["list", "table", "chain"])
def test_an_array_of_indices_or_a_mask_selects_rows(kind):
    plain: list[Any] = [{"id": i} for i in range(5)] if kind == "table" else list("abcde")
    rows: Any = oc.share(plain[:2]) + oc.share(plain[2:]) if kind == "chain" else oc.share(plain)
    chosen = rows[np.array([3, 0, -1, 3])]
    assert type(chosen) is type(rows)
    assert list(chosen) == [plain[3], plain[0], plain[-1], plain[3]]
    assert list(rows[np.array([4], np.uint8)]) == [plain[4]]
    assert list(rows[np.array([], int)]) == []
    assert list(rows[np.array([True, False, False, True, False])]) == [plain[0], plain[3]]
    assert rows[np.array(2)] == rows[np.int64(2)] == plain[2]  # without an axis
    for wrong in (np.array([5]), np.array([-6]), np.array([2**64 - 1], np.uint64), np.array([True, False])):
        with pytest.raises(IndexError):
            rows[wrong]
    for wrong in (np.array([0.5]), np.zeros((2, 2), int)):
        with pytest.raises(TypeError, match="row numbers must be"):
            rows[wrong]


def test_lists_and_tuples_of_indices_are_an_error_that_names_select():
    for wrong in ([0], (0,), {0}):
        with pytest.raises(TypeError, match=r"not (list|tuple|set); see select\(\)"):
            oc.share(["a", "b"])[wrong]  # type: ignore[call-overload]


def test_it_behaves_as_a_sequence():
    rows = oc.share(["a", "b", "a"])
    assert "b" in rows
    assert "c" not in rows
    assert (rows.index("a"), rows.index("a", 1), rows.count("a")) == (0, 2, 2)
    with pytest.raises(ValueError, match="'c' is not in the list"):
        rows.index("c")
    for index in (3, -4, 2**70, -(2**70)):
        with pytest.raises(IndexError):
            rows[index]
    with pytest.raises(TypeError, match="select"):
        rows["a"]  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        rows[0] = "x"  # type: ignore[index]
    assert rows != ["a", "b"]
    assert rows != ("a", "b", "a")
    assert "3 rows" in repr(rows)
    with pytest.raises(TypeError):
        hash(rows)
    rows.close()
    assert repr(rows) == "<onecopy.List, closed>"
    with pytest.raises(ValueError, match="closed"):
        rows[0]


def test_lazy_rows_decode_what_is_touched():
    row = {
        "id": 7,
        "name": "x",
        "box": [1, 2.5],
        "path": ["a", None],
        "more": {"k": [1, 2]},
        "t": (1, "z"),
        "m": {1: 2},
    }
    shared = oc.share([row, {"id": 8}])
    lazy = shared.lazy[0]
    assert (lazy.id, lazy["name"], lazy.t[1], lazy.t[-1], lazy.more.k.tolist()) == (7, "x", "z", "z", [1, 2])
    assert lazy.box.tolist() == [1.0, 2.5]
    assert lazy.box.dtype == np.float64
    assert not lazy.box.flags.writeable
    assert (lazy.path[0], lazy.path[1], len(lazy.path), list(lazy.path)) == ("a", None, 2, ["a", None])
    assert lazy == row
    assert lazy.copy() == row
    assert lazy.keys() == list(row)
    assert list(lazy) == list(row)
    assert (lazy.m[1], list(lazy.m), "id" in lazy, "no" in lazy, len(lazy)) == (2, [1], True, False, 7)
    assert (len(shared.lazy), "z" in lazy.t, "y" in lazy.t, 1 in lazy.m) == (2, True, False, True)
    with pytest.raises(AttributeError, match="no attribute 'keys'"):
        lazy.t.keys()
    other = shared.lazy[1]
    assert list(other) == ["id"]
    with pytest.raises(KeyError):
        other["name"]
    with pytest.raises(AttributeError):
        _ = other.name
    with pytest.raises(IndexError):
        lazy.t[2]
    assert repr(lazy).startswith("<lazy {'id': 7")
    del shared
    assert lazy.box[1] == 2.5  # views keep the memory


@pytest.mark.parametrize("where", ["fork", "here"])
@pytest.mark.parametrize("place", [None, "memory", "disk"])
def test_nameless_data_is_in_the_place_of_the_store(where, place):
    store = oc.Store(place=place, where=where) if place else None  # without a store, and little data: memory
    rows = oc.share(lambda: ([i, str(i)] for i in range(1000)), store=store)
    assert rows[999] == [999, "999"]
    behind = str(Path(rows.path).readlink())
    assert behind.startswith(("/memfd:", "/dev/shm/#", "/dev/shm/.onecopy-")) == (place != "disk")
    assert behind.endswith("(deleted)")


REAL = DATA / "coco"


@needs(REAL)
@pytest.mark.parametrize("name", ["instances_train2017_mini", "captions_train2017_mini"])
def test_real_annotations_come_back_and_take_less_than_their_pickles(name):
    content = json.loads((REAL / f"{name}.json").read_text())
    for rows in content.values():
        if isinstance(rows, list):
            shared = oc.share(rows)
            assert all(map(same, shared, rows))
            assert all(lazy == row for lazy, row in zip((shared.lazy[i] for i in range(len(rows))), rows, strict=True))
            assert shared.nbytes < sum(len(pickle.dumps(row, 5)) for row in rows)


class Closer:
    """Of a type whose objects close the rows they come from."""


def test_rows_that_are_closed_while_one_is_made_live_until_it_is_there():
    opened: list[oc.records.List] = []  # what is registered stays for good, and must not keep the rows
    onecopy.records.register(Closer, lambda _: "x" * 1000, lambda _: opened.pop().close())
    rows = oc.share([(1, Closer(), "after")])
    opened.append(rows)
    assert rows[0] == (1, None, "after")
    assert rows.closed


def test_what_is_shown_of_rows_has_their_keys_in_their_order():
    row = {"zeta": 1, "alpha": {"y": [], "x": {}}, "mid": 2, "beta": 3, "more": 4}
    assert "[{'zeta': 1, 'alpha': {'y': [], 'x': {}}, 'mid': 2, 'beta': 3, ...}, " in repr(oc.share([row, row]))
    deep = {"b": {"b": {"b": {"b": {"b": {"b": {"b": 1}}}}}}, "a": {}}
    assert "{'b': {'b': {'b': {'b': {'b': {'b': {...}}}}}}, 'a': {}}" in repr(oc.share([deep]))
    assert "'k': {'zeta': 1, 'alpha': " in repr(oc.share({"k": row}))


def test_a_field_beyond_64_bits_is_no_field():
    pairs = oc.share([(1, "a"), (2, "b")])
    assert list(pairs._rows_field(1)) == ["a", "b"]
    for number in (2, -1, 2**63, -(2**70)):
        with pytest.raises(KeyError):
            pairs._rows_field(number)
