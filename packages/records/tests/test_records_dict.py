"""A Dict finds what a dict finds."""

import datetime as dt
import decimal
import enum
import fractions
import pickle
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.support.record_files import file_of_rows, node, numbers

import onecopy as oc
import onecopy.records
from onecopy.records import Table

LEAVES = (
    st.text(max_size=4)
    | st.binary(max_size=4)
    | st.integers()
    | st.integers(-3, 3)
    | st.integers(-3, 3).map(float)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.none()
)
KEYS = st.recursive(LEAVES, lambda keys: st.lists(keys, max_size=10).map(tuple), max_leaves=12)


@given(st.dictionaries(KEYS, st.integers(0, 9)), st.lists(KEYS))
def test_every_key_is_found_and_no_other(plain, others):
    mapped = oc.share(plain)
    assert {key: mapped[key] for key in plain} == plain
    for key in others:
        assert (key in mapped) == (key in plain)
        assert mapped.get(key, "nothing") == plain.get(key, "nothing")


@given(st.dictionaries(KEYS, st.integers(0, 9)))
def test_it_is_a_mapping(plain):
    mapped = oc.share(plain)
    assert isinstance(mapped, Mapping)
    assert len(mapped) == len(plain)
    assert repr(list(mapped)) == repr(list(plain))
    assert list(mapped.keys()) == list(plain)
    assert list(mapped.values()) == list(plain.values())
    assert list(mapped.items()) == list(plain.items())
    assert mapped == plain
    assert mapped == oc.share(plain)
    assert dict(mapped) == plain
    assert mapped != {**plain, "one more": 1}
    assert mapped.keys() & {"one more"} == set(plain) & {"one more"}


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 8, 9, 48, 1000, 20_000])
def test_dicts_of_any_size(count):
    plain = {f"key {i * 7919}": i for i in range(count)}
    mapped = oc.share(plain)
    assert all(mapped[key] == value for key, value in plain.items())
    assert not any(f"key {i * 7919 + 1}" in mapped for i in range(count))


class Colour(enum.StrEnum):
    RED = "red"


class Location(str):
    __slots__ = ()

    def __hash__(self):
        return 1


def test_keys_of_other_types_are_found_where_a_dict_finds_them():
    plain = {"red": 1, 2: 3, 0.5: 4, (1, "a"): 5, b"b": 6, 2**70: 7, 1e300: 8, "1": 9}
    mapped = oc.share(plain)
    asked = [
        Colour.RED, Location("red"), np.str_("red"), np.int64(2), np.float32(0.5), decimal.Decimal("0.5"), 2.0, "2",
        fractions.Fraction(1, 2), decimal.Decimal(2), (True, "a"), (1.0, np.str_("a")), (1, "a", None), 2.0**70,
        int(1e300), decimal.Decimal("0.1"), "\ud800", float("nan"), object(), np.float64("inf"), frozenset(), 1j,
        b"1", bytearray,
    ]  # fmt: skip
    for key in asked:
        assert mapped.get(key) == plain.get(key), key


def test_what_cannot_be_hashed_raises_as_in_a_dict():
    mapped = oc.share({"a": 1})
    for key in ([], {}, ([],), bytearray(b"a"), (1, {2})):
        with pytest.raises(TypeError, match="unhashable"):
            mapped[key]
        with pytest.raises(TypeError, match="unhashable"):
            key in mapped  # noqa: B015
    for depth in (2_000, 30_000, 100_000):
        deep = ()
        for _ in range(depth):
            deep = (deep,)
        with pytest.raises(RecursionError, match="in a key"):
            mapped.get(deep)


def test_a_missing_key_is_named():
    mapped = oc.share({"a": 1})
    for key in ("b", 1, None, ("a", 1), ()):
        for find in (mapped.__getitem__, mapped.lazy.__getitem__):
            with pytest.raises(KeyError) as raised:
                find(key)
            assert raised.value.args == (key,)


def test_nan_is_a_key_that_nobody_finds():
    mapped = oc.share({float("nan"): 1, 2.5: 2})
    assert len(mapped) == 2
    assert float("nan") not in mapped  # noqa: PLW0177
    assert mapped[2.5] == 2


def test_what_no_index_knows_is_refused_with_its_place():
    with pytest.raises(
        oc.errors.NotShareable, match=r"^\.keys\(\)\[1\]: a dict key must not be of type frozenset: keys are str"
    ):
        oc.share({"a": 1, frozenset([1]): 2})
    with pytest.raises(oc.errors.NotShareable, match=r"^\.keys\(\)\[0\]: a dict key must not be of type tuple"):
        oc.share({(1, dt.date(2026, 1, 1)): 2})


def test_values_are_a_list_and_of_dicts_a_table():
    mapped = oc.share({"a": {"w": 3}, "b": {"w": 4}, "c": {"w": 5}})
    assert isinstance(mapped.values(), Table)
    assert mapped.values().column("w").numpy().tolist() == [3, 4, 5]
    picked = mapped.select(["c", "a", "c"])
    assert list(picked) == [{"w": 5}, {"w": 3}, {"w": 5}]
    assert picked.take([1])["w"].tolist() == [3]
    with pytest.raises(KeyError):
        mapped.select(["c", "d"])


def test_it_travels_as_a_path(tmp_path):
    path = tmp_path / "d.oc"
    onecopy.records.save(path, {f"{i}": i for i in range(1000)})
    mapped = oc.open_records(path)
    handle = pickle.dumps(mapped)
    assert len(handle) < 200 + len(str(path))
    assert pickle.loads(handle)["7"] == 7
    assert list(pickle.loads(pickle.dumps(mapped.select(["9", "3"])))) == [9, 3]
    assert list(pickle.loads(pickle.dumps(mapped.values()[5:7]))) == [5, 6]


def test_after_close_there_is_nothing_to_find(tmp_path):
    mapped = oc.share({"a": [1]})
    values = mapped.values()
    with mapped:
        pass
    assert mapped.closed
    for touch in (lambda: mapped["a"], lambda: "a" in mapped, lambda: len(mapped), lambda: mapped.lazy["a"]):
        with pytest.raises(ValueError, match="closed"):
            touch()
    assert values[0] == [1]
    assert "closed" in repr(mapped)


def test_the_index_is_an_array_of_the_file(tmp_path):
    path = tmp_path / "d.oc"
    onecopy.records.save(path, {"a": 1})
    assert oc.open_records(path).file["records.0.index.slots"].shape == (1, 8)
    assert oc.open_records(path).verify().bytes > 0


def test_an_index_that_points_behind_the_last_row_is_an_error(tmp_path):
    path, pairs = tmp_path / "d.oc", {"a": 1, "b": 2}
    onecopy.records.save(path, pairs)
    with oc.open_records(path) as rows:
        place = rows.file.entry("records.0.index.slots")
    words = np.memmap(path, "<u8", "r+", place.offset, place.nbytes // 8)
    words[words != 0] = words[words != 0] >> 48 << 48 | len(pairs) + 1
    words.flush()
    with pytest.raises(oc.FormatError, match="refers to rows that do not exist"):
        oc.open_records(path, oc.records.Dict)["a"]


@pytest.mark.parametrize(
    "index",
    [
        {},
        {"slots": numbers("Q", [])},
        {"slots": numbers("Q", [0] * 7)},
        {"slots": numbers("q", [0] * 8)},
        {"seeded": numbers("Q", [0] * 8)},  # its seed alone
    ],
)
def test_an_index_that_is_missing_or_incomplete_is_an_error(tmp_path, index):
    path = tmp_path / "d.oc"
    pair = node("fixed", 1, node("null", 1), node("null", 1))
    path.write_bytes(file_of_rows(pair, {f"index.{name}": words for name, words in index.items()}, "dict"))
    with pytest.raises(oc.FormatError, match="missing or incomplete") as raised:
        oc.open_records(path)
    assert raised.value.path == str(path)


def test_a_key_that_closes_the_dict_while_it_is_hashed_finds_it_closed():
    mapped = oc.share({2: "two"})

    class Closeable:
        def __hash__(self):
            mapped.close()
            return hash(2)

        def __eq__(self, other):
            return other == 2

        def __index__(self):
            return 2

    with pytest.raises(ValueError, match="closed"):
        mapped.get(Closeable())
