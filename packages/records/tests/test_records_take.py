"""`take` gives what the rows themselves give, column by column, whatever they are."""

import datetime as dt
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import onecopy as oc
from onecopy.records import Ragged, Table

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
ITEMS = st.sampled_from(
    [
        st.integers(-100, 100),
        st.floats(),
        st.booleans(),
        NUMBERS,
        st.text(max_size=3),
        st.binary(max_size=3),
        st.none() | st.integers(-1000, 1000),
        st.none() | st.booleans(),
        st.none() | st.text(max_size=2),
        st.lists(st.integers(0, 9), max_size=3),
        st.lists(st.none() | st.floats(allow_nan=False), max_size=3),
        st.lists(st.lists(st.floats(), max_size=2), max_size=3),
        st.lists(st.booleans(), max_size=3),
        st.lists(st.text(max_size=2), max_size=2),
        st.none() | st.lists(st.integers(0, 9), max_size=2),
        st.tuples(st.integers(0, 9), st.text(max_size=2)),
        st.lists(st.tuples(st.integers(0, 9), st.floats()), max_size=2),
        st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.none() | st.floats()}),
        st.lists(st.fixed_dictionaries({"z": st.lists(st.integers(0, 9), max_size=2)}), max_size=2),
        st.dictionaries(st.integers(0, 5), st.integers(0, 5), max_size=2),
        st.integers(0, 9) | st.text(max_size=2) | st.lists(st.integers(0, 3), max_size=2),
    ]
)
COLUMNS = ITEMS.flatmap(lambda item: st.lists(item, min_size=1, max_size=40))


def same(mine, theirs):
    """Compare one value, NaN equal to itself and None to NaN."""
    if isinstance(theirs, dict):
        return set(mine) == set(theirs) and all(same(mine[key], theirs[key]) for key in theirs)
    if isinstance(theirs, (list, tuple)):
        return len(mine) == len(theirs) and all(same(a, b) for a, b in zip(mine, theirs, strict=True))
    if isinstance(mine, float) and math.isnan(mine):
        return theirs is None or (isinstance(theirs, float) and math.isnan(theirs))
    if isinstance(mine, float) and isinstance(theirs, int):
        return mine == float(theirs)
    return mine == theirs


def rows_of(column):
    """Turn what `take` made of a column into rows again."""
    if isinstance(column, Ragged):
        items = rows_of(column.values)
        return [items[a:b] for a, b in zip(column.offsets[:-1], column.offsets[1:], strict=True)]
    if isinstance(column, dict):
        return [dict(zip(column, row, strict=True)) for row in zip(*map(rows_of, column.values()), strict=True)]
    if isinstance(column, tuple):
        return list(zip(*map(rows_of, column), strict=True))
    return list(column)


@pytest.mark.parametrize("nothing", [{}, ()])
def test_dicts_and_tuples_of_nothing_are_as_many_as_the_rows(nothing):
    assert oc.share([{"c": nothing}] * 3).take([0, 2])["c"] == [nothing] * 2


@given(COLUMNS, st.data())
def test_take_gives_the_values_of_the_rows(values, data):
    indices = data.draw(st.lists(st.integers(-len(values), len(values) - 1), max_size=50))
    table = oc.share([{"c": value} for value in values])
    taken = rows_of(table.take(indices)["c"])
    expected = [values[i] for i in indices]
    for mine, theirs in zip(taken, expected, strict=True):
        if theirs is None and isinstance(mine, list):  # no items: as documented
            assert mine == []
        else:
            assert same(mine, theirs), (mine, theirs)


@given(COLUMNS, st.data())
def test_rows_gives_what_indexing_gives(values, data):
    indices = data.draw(st.lists(st.integers(-len(values), len(values) - 1), max_size=50))
    table = oc.share([{"c": value} for value in values])
    assert repr(table.rows(indices)) == repr([table[i] for i in indices])
    assert repr(table.column("c").__getitems__(indices)) == repr([values[i] for i in indices])


@given(st.lists(st.integers(-300, 300) | st.floats(allow_nan=False), min_size=1), st.slices(20))
def test_a_column_of_numbers_is_a_view_of_it(values, part):
    column = oc.share([{"c": value} for value in values]).column("c")
    view = column[part].numpy()
    assert view.tolist() == values[part]
    assert not view.flags.writeable


def test_integers_stay_as_narrow_as_their_column():
    table = oc.share([{"a": 1, "b": 300, "c": 70_000, "d": 2**40, "e": True}])
    assert [table.take([0])[name].dtype for name in "abcde"] == ["i1", "i2", "i4", "i8", "?"]


def test_numpy_gives_the_reason_there_is_no_view():
    table = oc.share([{"a": "x", "b": None, "c": 1}, {"a": "y", "b": 2, "c": 1}])
    for column, why in (("a", "its type is text"), ("b", "it contains None")):
        with pytest.raises(TypeError, match=why):
            table.column(column).numpy()
    with pytest.raises(TypeError, match="take"):
        table.select([1, 0]).column("c").numpy()


def test_slices_and_selections_are_taken_from_in_their_own_numbers():
    table = oc.share([{"n": i} for i in range(100)])
    assert table[10:90:2].take([0, -1])["n"].tolist() == [10, 88]
    assert table[::-1].take([0])["n"].tolist() == [99]
    assert table.select([7, 3]).take([1, 0, 1])["n"].tolist() == [3, 7, 3]


def test_what_does_not_number_rows_is_refused():
    table = oc.share([{"n": 1}, {"n": 2}])
    assert table.take([])["n"].tolist() == []
    assert table.take(range(2))["n"].tolist() == [1, 2]
    assert table.take(iter([1]))["n"].tolist() == [2]
    assert table.take(np.array([1, 0], np.uint8))["n"].tolist() == [2, 1]
    for error, message, arguments in (
        (IndexError, None, [[2]]),
        (IndexError, None, [[-3]]),
        (IndexError, None, [np.array([2**64 - 1], np.uint64)]),
        (TypeError, "mask", [np.array([True, False])]),
        (TypeError, None, [[0.0]]),
        (TypeError, None, [[[0]]]),
        (KeyError, None, [[0], ["m"]]),
        (TypeError, "must be a list, not one name", [[0], "n"]),
    ):
        with pytest.raises(error, match=message):
            table.take(*arguments)
    with pytest.raises(ValueError, match="numpy"):
        table.take([0], out="jax")


def test_what_is_taken_is_the_callers_own():
    table = oc.share([{"n": [1.5, 2]}, {"n": [3]}])
    taken = table.take([0, 1])["n"]
    taken.values[:] = 0
    assert table[0] == {"n": [1.5, 2]}
    table.close()
    assert taken.values.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="closed"):
        table.take([0])


def test_arrays_keep_their_dtype():
    table = oc.share([{"a": np.arange(i, dtype="f4"), "b": np.float32(i), "c": np.zeros((1, i))} for i in range(3)])
    taken = table.take([2, 1])
    assert taken["a"].values.dtype == np.float32
    assert taken["a"].values.tolist() == [0, 1, 0]
    assert taken["a"].offsets.tolist() == [0, 2, 3]
    assert isinstance(taken["b"], list)
    assert [item.shape for item in taken["c"]] == [(1, 2), (1, 1)]


def test_rows_without_a_key_have_nothing_there():
    table = oc.share([{"a": 1}, {"b": "x"}, {"a": 3, "b": None}])
    assert table.columns == ("a", "b")
    assert np.array_equal(table.take([0, 1, 2])["a"], [1, np.nan, 3], equal_nan=True)
    assert table.take([0, 1, 2])["b"] == [None, "x", None]
    assert list(table.column("a")) == [1, None, 3]


def test_a_column_of_dicts_is_a_table():
    table = oc.share([{"at": {"x": i, "y": [i] * i}} for i in range(4)])
    assert isinstance(table.column("at"), Table)
    assert table.column("at")[::2].column("x").numpy().tolist() == [0, 2]
    assert table.column("at").take([3], ["y"])["y"].values.tolist() == [3, 3, 3]


def test_the_schema_reads_like_the_data():
    more = {"no": (), "many": (1,) * 9, "days": [dt.date(2026, 1, 1)], "at": np.ones((2, 3), "f4")}
    first = {"id": 1, "box": [1, 2.5], "in": {"k": ("a", 2), "m": {1: None}}, "tags": [{"t": "x"}], "big": 2**70}
    second = {"id": 1000, "box": [], "in": {"k": ("b", 3), "m": {2: None}}, "tags": [], "big": "none"}
    table = oc.share([{**first, **more}, {**second, **more}])
    assert str(table.schema).splitlines() == [
        "id: int16",
        "box: list[number]",
        "in: dict",
        "  k: tuple[text, int8]",
        "  m: dict[int8, None]",
        "tags: list[dict]",
        "  t: text",
        "big: int | text",
        "no: tuple",
        "many: tuple[int8, ...]",
        "days: list[date]",
        "at: array[<f4, 2d]",
    ]
    assert table.schema.field("id").width == 2
    with pytest.raises(KeyError):
        table.schema.field("nothing")
