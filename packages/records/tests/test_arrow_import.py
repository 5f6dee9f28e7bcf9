"""What an import of Arrow accepts comes back as pyarrow itself gives it, with maps as dicts; the rest is refused."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

import onecopy as oc
from onecopy.records import arrow_rows

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

FEW = st.integers(0, 3)
NUMBERS = st.floats(width=16, allow_nan=False) | FEW.map(float)
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), FEW),
    (pa.uint8(), st.integers(0, 255)),
    (pa.uint32(), st.integers(0, 2**32 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float16(), NUMBERS),
    (pa.float32(), NUMBERS),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), st.text("ab", max_size=2)),
    (pa.large_string(), st.text(max_size=3)),
    (pa.string_view(), st.text("ab", max_size=14) | st.text("ab", min_size=12, max_size=13)),
    (pa.binary(), st.binary(max_size=2)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.dictionary(pa.int8(), pa.string()), st.text("ab", max_size=1)),
]


def nested(inner: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    def a_list(one: tuple[Any, Any]) -> tuple[Any, Any]:
        return pa.list_(one[0]), st.lists(st.none() | one[1], max_size=3)

    def a_large_list(one: tuple[Any, Any]) -> tuple[Any, Any]:
        return pa.large_list(one[0]), st.lists(one[1], max_size=2)

    def a_pair(one: tuple[Any, Any]) -> tuple[Any, Any]:
        return pa.list_(one[0], 2), st.lists(one[1], min_size=2, max_size=2)

    def a_struct(one: tuple[Any, Any]) -> tuple[Any, Any]:
        return pa.struct([("s", one[0]), ("n", pa.int8())]), st.fixed_dictionaries({"s": one[1], "n": FEW})

    def a_map(two: tuple[Any, Any]) -> tuple[Any, Any]:
        (key, keys), (item, items) = two
        return pa.map_(key, item), st.lists(st.tuples(keys, items), max_size=4)

    keys = inner.filter(lambda one: one[0] != pa.null())
    lists = inner.map(a_list) | inner.map(a_large_list) | inner.map(a_pair)
    return lists | inner.map(a_struct) | st.tuples(keys, inner).map(a_map)


COLUMN = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=5)
MAPS = nested(st.sampled_from(LEAVES)).filter(lambda one: pa.types.is_map(one[0]))


class Refused(Exception):
    """A value that no dict has."""


def expected(kind: Any, value: Any) -> Any:
    """Return a value of `to_pylist` with maps as dicts."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [(expected(kind.key_type, key), expected(kind.item_type, item)) for key, item in value]
        if len(dict(pairs)) < len(pairs):
            raise Refused
        return dict(pairs)
    if pa.types.is_struct(kind):
        return {field.name: expected(field.type, value[field.name]) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [expected(kind.value_type, item) for item in value]
    return float(value) if pa.types.is_floating(kind) else value


def has_odd_keys(kind: Any) -> bool:
    """Return whether a type has a map whose keys no dict has."""
    if pa.types.is_map(kind) and pa.types.is_nested(kind.key_type):
        return True
    return any(has_odd_keys(kind.field(number).type) for number in range(kind.num_fields))


@given(COLUMN | MAPS, st.data(), st.integers(0, 6), st.integers(0, 6))
def test_what_is_accepted_comes_back_as_pyarrow_gives_it(column, data, start, length):
    kind, values = column
    table = pa.table({"x": pa.array(data.draw(st.lists(st.none() | values, max_size=6)), kind)})
    table = pa.concat_tables([table.slice(start, length), table])
    try:
        rows = [] if has_odd_keys(kind) else [{"x": expected(kind, row["x"])} for row in table.to_pylist()]
        is_refused = has_odd_keys(kind)
    except Refused:
        is_refused = True
    if is_refused:
        with pytest.raises(oc.FormatError, match=r"the column 'x(\.s)*' has a map (whose keys|that contains the key)"):
            oc.share(arrow_rows(table))
    else:
        assert list(oc.share(arrow_rows(table))) == rows


def test_a_map_with_equal_keys_is_refused_with_its_row_and_key():
    columns = {
        "'k'": pa.array([[], [("a", 1), ("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64())),
        "7": pa.array([None, [(7, 1), (7, 2)]], pa.map_(pa.uint64(), pa.int64())),
        "0": pa.array([[], [(0.0, 1), (-0.0, 2)]], pa.map_(pa.float64(), pa.int64())),
        "b'k'": pa.array([[], [(b"k", 1), (b"k", 2)]], pa.map_(pa.binary(), pa.int64())),
    }
    for shown, column in columns.items():
        with pytest.raises(
            oc.FormatError, match=f"^row 1: the column 'x' has a map that contains the key {shown} twice"
        ):
            oc.share(arrow_rows(pa.table({"x": column})))


def test_text_that_is_not_utf8_is_refused_and_never_stored():
    offsets = pa.array([0, 1, 3], pa.int32()).buffers()[1]
    text = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"a\xff\xfe"))
    with pytest.raises(oc.FormatError, match=r"^row 1: the column 'x' has text that is not UTF-8"):
        oc.share(arrow_rows(pa.table({"x": text})))


def test_the_refusal_of_a_table_names_the_function_that_reads_its_rows():
    with pytest.raises(oc.errors.NotShareable, match=r"pass onecopy\.records\.arrow_rows\(data\) to share only its"):
        oc.share(pa.table({"x": [1]}))
