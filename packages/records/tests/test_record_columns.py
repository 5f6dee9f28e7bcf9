"""Columns of records at the limits of their widths, and where another kind or a rare field comes up late."""

import struct
from typing import Any

import pytest
from tests.support.record_files import file_of_builder
from tests.support.rows import same

from onecopy import _core


def columns_of(rows: list[Any], folder: object = "/nowhere") -> dict[str, str]:
    """Save rows, which must come back; return the element types of their buffers by name."""
    builder = _core.RecordBuilder(str(folder), "list", {})
    builder.extend(rows, lambda _: None)
    file = file_of_builder(builder)
    back = _core.Rows(_core.open_records(file.compiled, lambda *_: None))
    assert len(back) == len(rows)
    assert all(same(back[i], row) for i, row in enumerate(rows))
    return {name.removeprefix("records.0."): file.entry(name).dtype for name in file}


@pytest.mark.parametrize(
    ("bits", "dtype", "narrower"), [(8, "I8", 0), (16, "I16", 8), (32, "I32", 16), (64, "I64", 32)]
)
def test_integers_are_as_narrow_as_the_column_allows_at_every_limit(bits, dtype, narrower):
    limit, below = 1 << (bits - 1), (1 << narrower) >> 1
    for value in (limit - 1, -limit, below, -below - 1):
        assert columns_of([1, value])["data"] == dtype


def test_integers_and_reals_share_a_column_as_long_as_reals_hold_the_integers():
    limit = 2**53
    for rows in ([1, -limit, 0.5, limit], [2.0, 0.5, 2]):
        assert "ints" in columns_of(rows)
    assert columns_of([2.0, 0.5]) == {"data": "F64"}
    for wide in (limit + 1, -limit - 1, 2**63 - 1, -(2**63)):
        for rows in ([0.5, wide, 3, 1.5], [wide, 0.5, 3]):
            assert "tag" in columns_of(rows)


@pytest.mark.parametrize("bits", [0x7FF8 << 48, 0xFFF8000000000123, 0x7FF0 << 48, 0xFFF0 << 48, 1 << 63, 1])
def test_the_bits_of_reals_are_kept(bits):
    (real,) = struct.unpack("<d", struct.pack("<Q", bits))
    columns_of([1, real])  # with an integer, so that they are converted
    columns_of([real])


@pytest.mark.parametrize("before", [0, 1, 7, 8, 9, 64, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("nulls", [0, 1, 9, 9000])
def test_a_second_kind_of_value_makes_a_choice_after_any_number_of_values_and_of_none(tmp_path, before, nulls):
    columns = columns_of([None] * nulls + list(range(before)) + ["x", None, 5, True, "y"], tmp_path)
    assert (columns["tag"], columns["offsets"]) == ("I8", "I32")
    assert "validity" not in columns


def test_dicts_that_are_alike_have_no_shapes_and_others_keep_the_order_of_their_keys():
    assert "shape" not in columns_of([{"b": i, "a": "x"} for i in range(3)])
    orders = ["ab", "ba", "", "a", "cab", "ab", "c"]
    assert columns_of([None, *({key: key for key in keys} for keys in orders), None])["shape"] == "U8"


@pytest.mark.parametrize("apart", [2, 9, 1000, 1024, 1025, 8192, 9000])
def test_fields_that_are_rare_come_back_however_far_apart(tmp_path, apart):
    rare = [{"n": i, "r": float(i), "b": i % 2 == 0, "t": str(i)} for i in range(30_000)]
    columns_of([row if i % apart == 1 else {} for i, row in enumerate(rare)], tmp_path)


def test_a_field_that_comes_up_after_many_rows_costs_nothing_for_those():
    rows = [{"a": True}] * 100_000 + [{"a": True, "n": 3, "r": 3.0, "t": "x", "l": []}]
    columns_of(rows)  # nothing had to leave the memory for the folder that does not exist


@pytest.mark.parametrize(("shapes", "dtype"), [(256, "U8"), (257, "U16"), (65536, "U16")])
def test_shapes_are_numbered_in_as_few_bytes_as_they_need(tmp_path, shapes, dtype):
    fields = [f"f{bit}" for bit in range(17)]
    rows = [{name: True for bit, name in enumerate(fields) if number >> bit & 1} for number in range(shapes)]
    assert columns_of(rows, tmp_path)["shape"] == dtype
