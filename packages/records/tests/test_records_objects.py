"""Objects in rows: those that come back as they were, and those that are refused."""

import dataclasses
import datetime as dt
import decimal
import importlib
import math
import pickle
import re
import uuid
import zoneinfo
from collections import OrderedDict, deque
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.golden.records.classes import Box, Point
from tests.support.rows import same

import onecopy as oc
import onecopy.records

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


@given(st.lists(st.binary(max_size=4).map(np.bytes_) | st.text(max_size=4).map(np.str_) | st.just(np.str_("\0"))))
def test_text_of_numpy_keeps_the_zeros_at_its_end(values):
    back = list(oc.share([{"digest": value, "more": [value]} for value in values]))
    assert [row["digest"] for row in back] == [row["more"][0] for row in back] == values
    assert [(type(row["digest"]), len(row["digest"])) for row in back] == [(type(v), len(v)) for v in values]


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
        back[...] = back  # writable, and private
        view = shared.lazy[i].a
        assert not isinstance(view, np.ndarray) or not view.flags.writeable


@dataclasses.dataclass
class Sample:
    label: str


def test_objects_that_would_come_back_as_others_or_not_at_all_are_refused():
    class Name(str):  # not taken for its base
        __slots__ = ()

    @dataclasses.dataclass
    class Local:
        x: int

    sample: Any = Sample("a")
    sample.cache = [1]
    with Path(zoneinfo.TZPATH[0], "Europe/Berlin").open("rb") as file:
        nameless = zoneinfo.ZoneInfo.from_file(file)
    for value, words in (
        (Name("x"), r"\[0\]: an object of type .*Name"),
        (Local(1), r"\[0\]: .*defined in a function"),
        (sample, r"\[0\]: .*not fields: cache"),
        (dt.datetime(2026, 1, 1, tzinfo=nameless), "ZoneInfo"),
        (Fraction(1 << 100_000_000, 3), "Fraction"),  # of millions of digits
    ):
        with pytest.raises(oc.errors.NotShareable, match=words):
            oc.share([value])


ROWS = "tests.golden.records.classes"


@pytest.mark.parametrize(
    ("type_name", "plain", "words"),
    [
        (f"dataclass:{ROWS}:Box", [1], "Box"),
        (f"namedtuple:{ROWS}:Point", (1,), "do not match the fields of Point: x, y"),
        (f"namedtuple:{ROWS}:Point", {"x": 1, "y": 2}, "do not match the fields of Point: x, y"),
        (f"enum:{ROWS}:Point", "x", f"{ROWS}.Point"),
        (f"dataclass:{ROWS}:dataclasses.field", {}, f"{ROWS}.dataclasses.field"),
        (f"enum:{ROWS}:dataclasses.Field", "x", f"{ROWS}.dataclasses.Field"),
        ("ZoneInfo", "/etc/passwd", "'/etc/passwd'"),
        ("ZoneInfo", "../../../etc/passwd", "/etc/passwd'"),
        ("Fraction", (1 << 100_000_000, 3), "Fraction"),
        ("deque", ((1, 2), None), "expected a list, found a tuple"),
        ("array", ("d", "text"), "expected a bytes, found a str"),
    ],
)
def test_a_file_that_names_a_type_and_holds_something_else_is_refused(type_name, plain, words):
    rows = oc.share([onecopy.records.Unloaded(type_name, plain)])
    with pytest.raises(oc.FormatError, match=re.escape(words)):
        rows[0]


def test_what_is_not_loaded_is_compared_hashed_and_pickled_by_its_parts():
    one = onecopy.records.Unloaded("enum:nowhere:E", "A")
    same_again = pickle.loads(pickle.dumps(one))
    assert (one, hash(one)) == (same_again, hash(same_again))
    assert one != onecopy.records.Unloaded("enum:nowhere:E", "B")
    assert one != "A"
    assert repr(one) == "<Unloaded enum nowhere.E 'A': import nowhere, then read it again>"
    for type_name, words in {"nowhere:E": "nowhere.E 1: import nowhere,", "E": "E 1: register the type,"}.items():
        assert repr(onecopy.records.Unloaded(type_name, 1)) == f"<Unloaded {words} then read it again>"


def test_pickle_is_used_where_requested_and_never_on_open(tmp_path):
    rows = oc.share([{"f": math.sqrt, "n": 1}], codec="pickle")
    assert rows[0]["f"] is math.sqrt
    with pytest.raises(oc.errors.NotShareable):
        oc.share([{"f": math.sqrt}])
    path = tmp_path / "rows.oc"
    path.write_bytes(Path(rows.path).read_bytes())
    opened = oc.open_records(path)
    with pytest.raises(oc.FormatError, match="pickled value"):
        opened[0]
    assert opened.lazy[0].n == 1


def test_a_file_makes_objects_only_of_classes_that_are_imported(tmp_path, monkeypatch):
    (tmp_path / "their_module.py").write_text("import enum\nclass E(enum.Enum):\n    A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import sys

    import their_module  # type: ignore[import-not-found]

    path = tmp_path / "rows.oc"
    onecopy.records.save(path, [their_module.E.A])
    shared = oc.share([their_module.E.A])
    handle = pickle.dumps(shared)
    monkeypatch.delitem(sys.modules, "their_module")
    opened = oc.open_records(path)
    for rows in (opened, shared, pickle.loads(handle)):
        assert repr(rows)
        (found,) = rows
        assert type(found) is onecopy.records.Unloaded
        facts = found.type_name, found.module, found.name, found.fields
        assert facts == ("enum:their_module:E", "their_module", "E", "A")
        with pytest.raises(AttributeError, match="import their_module"):
            assert found.value
    assert "their_module" not in sys.modules
    assert oc.share(opened)[0] == opened[0]  # what is not known is written as it was
    again = importlib.import_module("their_module")
    assert opened[0] is again.E.A
    assert oc.share(oc.share([opened[0]]))[0] is again.E.A
