"""A List is what went in: equal, of the same types, in every order that is asked for. Judged by Python's own lists."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pickle
import struct
import uuid
import zoneinfo
from collections import OrderedDict, deque
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.places import DATA, needs

import onecopy as oc


class Colour(enum.Enum):
    RED = 1
    GREEN = "g"


class Point(NamedTuple):
    x: float
    y: int


@dataclasses.dataclass(frozen=True)
class Box:
    corner: Point
    label: str | None
    sizes: list[int]


def same(mine: Any, theirs: Any) -> bool:
    """Tell whether two values are the same: types, order of keys and bits of floats included."""
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, float):
        return struct.pack("d", mine) == struct.pack("d", theirs)
    if isinstance(mine, (list, tuple)):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, dict):
        return same(list(mine.items()), list(theirs.items()))
    if isinstance(mine, np.ndarray):
        return mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()
    return bool(mine == theirs)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-300, 300)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.datetimes()
    | st.sampled_from([Colour.RED, Colour.GREEN, Point(1.5, 2), decimal.Decimal("1.50")])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=11).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.dictionaries(st.integers(-5, 5) | st.tuples(st.booleans()), inner, max_size=3)
    ),
    max_leaves=25,
)


@given(st.lists(VALUES, max_size=12))
@settings(deadline=None, max_examples=300)
def test_what_was_shared_comes_back_as_it_was(rows):
    shared = oc.share(rows)
    assert len(shared) == len(rows)
    assert all(map(same, shared, rows))


@given(
    st.lists(st.fixed_dictionaries({"id": st.integers(0, 300)}, optional={"a": st.none() | st.floats(), "b": VALUES}))
)
@settings(deadline=None, max_examples=150)
def test_missing_is_not_none_and_keys_keep_their_order(rows):
    rows = [dict(reversed(row.items())) if i % 3 == 0 else row for i, row in enumerate(rows)]
    assert all(map(same, oc.share(rows), rows))


@given(st.lists(st.integers(), max_size=20), st.data())
@settings(deadline=None, max_examples=200)
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


ODD = [
    dt.datetime(2026, 3, 29, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone(dt.timedelta(minutes=-7), "x")),
    dt.date(2026, 2, 28),
    dt.time(23, 59, 59, 999999, fold=1),
    dt.timedelta(-999999, 5, 7),
    decimal.Decimal("-0.10"),
    Fraction(-3, 7),
    complex(-0.0, math.inf),
    uuid.UUID(int=7),
    Path("/a/b"),
    PurePosixPath("c"),
    bytearray(b"x"),
    range(3, -9, -2),
    {1, "a", (2,)},
    frozenset({b"z"}),
    OrderedDict(b=1, a=2),
    deque([1, 2], maxlen=5),
    Box(Point(0.5, 1), None, [1, 2]),
    Box(Point(0.5, 1), "l", []),
    "lone \udc80 surrogate",
    2**63,
    -(2**63) - 1,
    2**1000,
    -(2**53) - 1,
    np.float32(1.5),
    np.int64(-3),
    np.bool_(True),
    np.datetime64("2026-01-01", "ns"),
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_objects_come_back_as_objects_of_their_type(value):
    (back,) = oc.share([value])
    assert type(back) is type(value)
    assert back == value
    assert getattr(back, "tzinfo", None) == getattr(value, "tzinfo", None)
    assert getattr(back, "fold", 0) == getattr(value, "fold", 0)
    assert getattr(back, "maxlen", 0) == getattr(value, "maxlen", 0)


def test_odd_objects_side_by_side_come_back_too():
    assert all(map(same, oc.share(ODD * 3), ODD * 3))


ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.arange(4, dtype=">i2"),
    np.zeros((0, 5), np.float16),
    np.array(3.5),
    np.arange(8)[::2],
    np.array(["a", "bcd"]),
    np.array([b"x", b"yz"]),
    np.asfortranarray(np.arange(6).reshape(3, 2)),
    np.array([1 + 2j]),
    np.array([True, False]),
    np.array(["2026-01-01"], "M8[D]"),
]


def test_arrays_come_back_with_dtype_and_shape_as_private_copies():
    shared = oc.share([{"a": array, "n": i} for i, array in enumerate(ARRAYS)])
    for i, array in enumerate(ARRAYS):
        back = shared[i]["a"]
        assert same(back, array)
        back[...] = back  # writable, and nobody else's
        view = shared.lazy[i].a
        assert not isinstance(view, np.ndarray) or not view.flags.writeable


@pytest.mark.parametrize(
    ("rows", "path"),
    [
        ([1, object()], r"\[1\]: an object of type object"),
        ([{"a": [1, {"b c": {1: open}}]}], r"\[0\].a\[1\]\[.b c.\]\[1\]: "),
        ([(1, 2, lambda: 0)], r"\[0\]\[2\]: an object of type function"),
        ([np.array([object()])], r"\[0\]: "),
        ([np.zeros(1, [("x", "i4")])], r"\[0\]: "),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_path(rows, path):
    with pytest.raises(oc.NotShareable, match=path):
        oc.share(rows)


def test_what_contains_itself_is_refused():
    rows: list[Any] = [[]]
    rows[0].append(rows)
    with pytest.raises(oc.NotShareable, match=r"\[0\]\[0\]\[0\]"):
        oc.share(rows)


def test_a_subclass_is_not_taken_for_its_base():
    class Name(str):
        __slots__ = ()

    with pytest.raises(oc.NotShareable, match=r"\[0\]: an object of type .*Name"):
        oc.share([Name("x")])


def test_a_local_class_is_refused_because_others_cannot_find_it():
    @dataclasses.dataclass
    class Local:
        x: int

    with pytest.raises(oc.NotShareable, match=r"\[0\]: .*defined inside a function"):
        oc.share([Local(1)])


def test_pickle_is_used_where_it_was_asked_for_and_never_on_open(tmp_path):
    rows = oc.share([{"f": math.sqrt, "n": 1}], codec="pickle")
    assert rows[0]["f"] is math.sqrt
    with pytest.raises(oc.NotShareable):
        oc.share([{"f": math.sqrt}])
    path = tmp_path / "rows.oc"
    path.write_bytes(Path(rows.path).read_bytes())
    opened = oc.records.open(path)
    with pytest.raises(oc.FormatError, match="executes no code"):
        opened[0]
    assert opened.lazy[0].n == 1


def test_a_file_makes_objects_only_of_classes_that_are_imported(tmp_path, monkeypatch):
    (tmp_path / "their_module.py").write_text("import enum\nclass E(enum.Enum):\n    A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import sys

    import their_module  # type: ignore[import-not-found]

    path = tmp_path / "rows.oc"
    oc.records.save(path, [their_module.E.A])
    shared = oc.share([their_module.E.A])
    handle = pickle.dumps(shared)
    monkeypatch.delitem(sys.modules, "their_module")
    with pytest.raises(oc.FormatError, match="import their_module first"):
        oc.records.open(path)[0]
    assert "their_module" not in sys.modules
    assert repr(oc.records.open(path))
    assert pickle.loads(handle)[0].name == "A"  # a share of this job imports it


def test_a_handle_is_small_whatever_it_leads_to(tmp_path):
    rows = oc.share(list(range(100_000)))
    assert len(pickle.dumps(rows)) < 200
    part = rows[10:90_000:7]
    assert len(pickle.dumps(part)) < 200
    assert pickle.loads(pickle.dumps(part)) == part
    chosen = rows.select([5, 1])
    assert list(pickle.loads(pickle.dumps(chosen))) == [5, 1]
    oc.records.save(tmp_path / "rows.oc", list("abc"))
    opened = oc.records.open(tmp_path / "rows.oc")
    assert pickle.loads(pickle.dumps(opened)) == ["a", "b", "c"]


def test_a_handle_to_another_file_by_now_is_refused(tmp_path):
    path = tmp_path / "rows.oc"
    oc.records.save(path, ["old"])
    handle = pickle.dumps(oc.records.open(path))
    oc.records.save(path, ["new"])
    with pytest.raises(oc.FileChanged):
        pickle.loads(handle)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(handle)


def test_data_that_is_gone_says_who_had_it():
    handle = pickle.dumps(oc.share(["x"]))
    with pytest.raises(FileNotFoundError, match="has ended or closed it"):
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


def test_an_empty_list_is_one():
    rows = oc.share([])
    assert len(rows) == 0
    assert rows == []
    assert list(rows[::-1]) == []
    assert not rows


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


def test_a_builder_is_called_once_and_its_error_comes_through():
    calls = []

    def load():
        calls.append(1)
        raise LookupError("no such split")

    with pytest.raises(LookupError, match="no such split"):
        oc.share(load, where="here")
    assert calls == [1]


@pytest.mark.parametrize("where", ["child", "here"])
@pytest.mark.parametrize("place", ["auto", "memory", "disk"])
def test_nameless_data_is_where_it_was_asked_for(where, place):
    rows = oc.share(lambda: ([i, str(i)] for i in range(1000)), where=where, place=place)
    assert rows[999] == [999, "999"]
    behind = str(Path(rows.path).readlink())
    assert behind.startswith("/memfd:") == (place != "disk")
    assert behind.endswith("(deleted)")


def test_keyed_data_is_built_once(tmp_path):
    calls = []
    build = lambda: calls.append(1) or ["a"]  # noqa: E731
    first = oc.share(build, "k", folder=tmp_path / "c", where="here")
    again = oc.share(build, "k", folder=tmp_path / "c", where="here")
    assert (calls, first == again) == ([1], True)
    assert first.report is not None
    assert (first.report.built, again.report.built) == (True, False)


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
    oc.records.register(Closer, lambda _: "x" * 1000, lambda _: rows.close())
    rows = oc.share([(1, Closer(), "after")])
    assert rows[0] == (1, None, "after")
    assert rows.closed
