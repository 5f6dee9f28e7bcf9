"""Rows of Parquet files are those of pyarrow."""

from __future__ import annotations

import datetime as dt
import decimal
import importlib

import pytest
from hypothesis import given, strategies as st

import onecopy as oc
from onecopy import records


def test_parquet_rows_are_those_of_to_pylist(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"id": i, "box": [i / 2, None], "name": f"n{i}" if i % 3 else None, "more": {"b": b"x"}} for i in range(5000)
    ]
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=700)
    told: list[tuple[int, int]] = []
    imported = records.import_parquet(path, tmp_path / "rows.oc", progress=lambda *done: told.append(done))
    assert list(imported) == rows
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
    assert list(records.parquet_rows(path, columns=["id"])) == [{"id": row["id"]} for row in rows]
    with pytest.raises(FileNotFoundError):
        list(records.parquet_rows(tmp_path / "missing.parquet"))


def test_a_writer_counts_the_rows_of_all_sources(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"id": [1, 2, 3]}), tmp_path / "rows.parquet")
    told: list[int] = []
    with records.Writer(tmp_path / "rows.oc") as writer:
        for _ in range(2):
            writer.extend(records.parquet_rows(tmp_path / "rows.parquet"), progress=told.append)
    assert told == [3, 6]


def test_parquet_types_that_only_python_has_come_back_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    day = dt.datetime(2026, 1, 2, 3, 4, 5, 6)
    rows = [{"when": day, "price": decimal.Decimal("1.50"), "n": 2**63, "f": 0.1, "map": [("k", 1)], "no": None}] * 3
    schema = pyarrow.schema(
        [
            ("when", pyarrow.timestamp("us")),
            ("price", pyarrow.decimal128(10, 2)),
            ("n", pyarrow.uint64()),
            ("f", pyarrow.float64()),
            ("map", pyarrow.map_(pyarrow.string(), pyarrow.int8())),
            ("no", pyarrow.null()),
        ]
    )
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)
    imported = list(records.import_parquet(path, tmp_path / "rows.oc"))
    assert imported == rows
    assert [type(value) for value in imported[0].values()] == [type(value) for value in rows[0].values()]
    assert list(records.parquet_rows(path, columns=["n", "f"])) == [{"n": 2**63, "f": 0.1}] * 3


MOMENTS = st.none() | st.datetimes(dt.datetime(1678, 1, 1), dt.datetime(2262, 1, 1))


@given(st.lists(MOMENTS, min_size=1, max_size=5))
def test_parquet_times_of_nanoseconds_are_those_of_python(tmp_path, moments):
    pa = pytest.importorskip("pyarrow")
    times = [None if one is None else one.time() for one in moments]
    spans = [None if one is None else one - dt.datetime(1970, 1, 1) for one in moments]
    points = pa.array(moments, pa.timestamp("us")).cast(pa.timestamp("ns"))
    columns = {
        "points": points,
        "zoned": points.cast(pa.timestamp("ns", "UTC")),
        "times": pa.array(times, pa.time64("us")).cast(pa.time64("ns")),
        "spans": pa.array(spans, pa.duration("us")).cast(pa.duration("ns")),
        "lists": pa.array([[one] for one in moments], pa.list_(pa.timestamp("us"))).cast(pa.list_(pa.timestamp("ns"))),
        "structs": pa.StructArray.from_arrays([points], ["a"]),
        "maps": pa.MapArray.from_arrays(list(range(len(moments) + 1)), ["k"] * len(moments), points),
        "codes": points.dictionary_encode(),
    }
    importlib.import_module("pyarrow.parquet").write_table(pa.table(columns), tmp_path / "rows.parquet")
    rows = list(records.parquet_rows(tmp_path / "rows.parquet"))
    assert [row["points"] for row in rows] == [row["codes"] for row in rows] == moments
    assert [row["zoned"] for row in rows] == [one and one.replace(tzinfo=dt.UTC) for one in moments]
    assert [row["times"] for row in rows] == times
    assert [row["spans"] for row in rows] == spans
    assert [row["lists"] for row in rows] == [[one] for one in moments]
    assert [row["structs"] for row in rows] == [{"a": one} for one in moments]
    assert [row["maps"] for row in rows] == [[("k", one)] for one in moments]


@given(st.lists(st.none() | st.datetimes(), min_size=1, max_size=5))
def test_parquet_times_of_the_type_int96_are_exact_in_any_year(tmp_path, moments):
    pa = pytest.importorskip("pyarrow")
    table = pa.table(
        {"a": pa.array(moments, pa.timestamp("us")), "b": [[one] for one in moments], "n": [1] * len(moments)}
    )
    importlib.import_module("pyarrow.parquet").write_table(
        table, tmp_path / "rows.parquet", use_deprecated_int96_timestamps=True
    )
    rows = list(records.parquet_rows(tmp_path / "rows.parquet"))
    assert rows == [{"a": one, "b": [one], "n": 1} for one in moments]


@pytest.mark.parametrize("int96", [False, True])
@pytest.mark.parametrize("kind", ["timestamp[ns]", "duration[ns]", "time64[ns]"])
def test_parquet_times_with_nanoseconds_are_refused_with_their_column(tmp_path, kind, int96):
    pa = pytest.importorskip("pyarrow")
    column = pa.array([None, 5000, 1001], pa.int64()).cast(kind)
    columns = {
        "t": column,
        "many": pa.ListArray.from_arrays([0, 1, 2, 3], column),
        "parts": pa.StructArray.from_arrays([column, column], ["a", "b"]),
    }
    if kind != "duration[ns]":  # pyarrow reads the numbers of their codes
        columns["codes"] = column.dictionary_encode()
    for name, values in columns.items():
        table = pa.table({"n": [1, 2, 3], name: values})
        importlib.import_module("pyarrow.parquet").write_table(
            table, tmp_path / "rows.parquet", use_deprecated_int96_timestamps=int96
        )
        with pytest.raises(oc.FormatError, match=rf"rows\.parquet: column '{name}': .*microseconds"):
            list(records.parquet_rows(tmp_path / "rows.parquet"))


def test_parquet_without_pyarrow_reports_what_is_missing(tmp_path, python):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    answer = python(
        """
        import sys
        sys.modules["pyarrow"] = None
        from onecopy import records
        try:
            list(records.parquet_rows(sys.argv[1]))
        except ImportError as error:
            print(error)
        """,
        tmp_path / "rows.parquet",
    )
    assert answer == "reading Parquet files requires pyarrow: pip install pyarrow\n"
