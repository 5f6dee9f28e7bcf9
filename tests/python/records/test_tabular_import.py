"""Rows of CSV and Parquet files are those of Python's csv and of pyarrow; what is no table is refused with its line."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import importlib
import io
import math
import sys

import pytest
from hypothesis import given, strategies as st

import onecopy as oc
from onecopy import records

FIELDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r\n"), max_size=8)


@pytest.fixture
def written(tmp_path):
    def write(text: str, encoding: str = "utf-8"):
        path = tmp_path / "table.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def imported(path, **options):
    return list(records.csv_rows(path, **options))


@given(st.lists(st.lists(FIELDS, min_size=3, max_size=3), max_size=8), st.sampled_from([",", ";", "\t"]))
def test_text_stays_as_it_stands(written, rows, delimiter):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerows([["a", "b b", "é"], *rows])
    wanted = [dict(zip(["a", "b b", "é"], row, strict=True)) for row in rows]
    assert imported(written(out.getvalue()), delimiter=delimiter) == wanted


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["1", "-7", ""], [1, -7, None]),
        (["1", "2.5", "-1e3", ".5"], [1.0, 2.5, -1000.0, 0.5]),
        (["", "inf", "3"], [None, math.inf, 3.0]),
        (["true", "FALSE", ""], [True, False, None]),
        (["1"] * 70_000 + ["x"], ["1"] * 70_000 + ["x"]),  # the type of a column is that of all its rows
        (["007", "7"], [7, 7]),
        ([" 1"], [1]),
        (["+49 171"], ["+49 171"]),
        (["", ""], [None, None]),
        (["'a\nb'", "''"], ["a\nb", ""]),
    ],
)
def test_pyarrow_infers_the_types_of_columns(written, fields, expected):
    pytest.importorskip("pyarrow")
    path = written("n,text\n" + "".join(f"{field},x\n" for field in fields))
    found = [row["n"] for row in imported(path, types="infer", quotechar="'")]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n3\n", {}, "CSV parse error: .*Expected 2 columns, got 1"),
        ("a,a\n1,2\n", {}, "duplicate column names: a, a"),
        ("a\n\x80\n", {"encoding": "ascii"}, "can't decode byte"),
    ],
)
def test_what_pyarrow_refuses_is_an_error_with_the_path(written, text, options, message):
    pytest.importorskip("pyarrow")
    path = written(text)
    with pytest.raises(oc.FormatError, match=message) as error:
        imported(path, types="infer", **options)
    assert str(error.value).startswith(f"{path}: ")


def test_an_option_that_pyarrow_lacks_is_refused(written):
    with pytest.raises(TypeError, match="option 'lineterminator' is not supported with types='infer'"):
        imported(written("a\n1\n"), types="infer", lineterminator=";")


def test_without_pyarrow_the_error_names_it(written, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="types='infer' needs pyarrow: pip install pyarrow"):
        imported(written("a\n1\n"), types="infer")


def test_types_are_functions_of_the_text(written):
    path = written("a,b\n1,2;3\n4,\n")
    rows = imported(path, types={"a": int, "b": lambda text: [int(part) for part in text.split(";") if part]})
    assert rows == [{"a": 1, "b": [2, 3]}, {"a": 4, "b": []}]


def test_names_of_columns_can_be_given_and_empty_lines_are_no_rows(written):
    assert imported(written("1,2\n\n3,4\n"), columns=["a", "b"]) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


def test_a_byte_order_mark_is_left_out_and_other_encodings_are_read(written):
    assert imported(written("\ufeffa\nx\n")) == [{"a": "x"}]
    assert imported(written("é\nü\n", "latin-1"), encoding="latin-1") == [{"é": "ü"}]


@pytest.mark.parametrize("types", [None, "infer"])
def test_without_rows_there_are_none(written, types):
    if types == "infer":
        pytest.importorskip("pyarrow")
    assert imported(written(""), types=types) == []
    assert imported(written("a,b\n"), types=types) == []


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n3\n", {}, "line 3: .*2.*1"),
        ("a,b\n1,2,3\n", {}, "line 2: .*2.*3"),
        ("a,a\n1,2\n", {}, "line 1: duplicate column names: a, a"),
        ("a\nx\n", {"types": {"a": int}}, "line 2: column 'a': invalid literal for int"),
        ("a\nx\n", {"types": {"b": int}}, "line 1: no column 'b': the columns are a"),
        ('a\n"x\n', {}, "unexpected end of data"),
        ("a\n\x80\n", {"encoding": "ascii"}, "can't decode byte"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(written, text, options, message):
    path = written(text)
    with pytest.raises(oc.FormatError, match=message) as error:
        imported(path, **options)
    assert str(error.value).startswith(f"{path}: line ")


def test_invalid_arguments_are_refused(written):
    with pytest.raises(ValueError, match="types must be None, 'infer' or a mapping"):
        records.csv_rows(written("a\n"), types="guess")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        imported(written("a\n1\n"), delimitter=";")


def test_progress_ends_with_all_of_it(written, tmp_path):
    path = written("a\n" + "x\n" * 5000)
    told: list[tuple[int, int]] = []
    rows = records.import_csv(path, tmp_path / "rows.oc", progress=lambda *done: told.append(done))
    size = path.stat().st_size
    assert told[-1] == (size, size)
    assert len(rows) == 5000
    assert rows[0] == {"a": "x"}


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


def test_csv_times_of_nanoseconds_are_those_of_python_or_refused(written):
    pytest.importorskip("pyarrow")
    text = "t\n2024-01-02 03:04:05.123456000\n"
    assert imported(written(text), types="infer") == [{"t": dt.datetime(2024, 1, 2, 3, 4, 5, 123456)}]
    with pytest.raises(oc.FormatError, match=r"table\.csv: column 't': .* would lose data"):
        imported(written(text.replace("456000", "456001")), types="infer")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**30])
def test_csv_integers_that_would_become_floats_are_refused_with_their_column(written, number):
    pytest.importorskip("pyarrow")
    for text in (f"id,n\n{number},1\n", f"id,n\n0.5,1\n{number},2\n"):
        with pytest.raises(
            oc.FormatError, match=rf"table\.csv: column 'id': {number} would become a float: give types="
        ):
            imported(written(text), types="infer")
    assert imported(written(f"id,n\n{number},1\n"), types={"id": int}) == [{"id": number, "n": "1"}]
    assert imported(written("a\n1e300\ninf\nnan\n9007199254740993.0\n1\n"), types="infer")[0] == {"a": 1e300}


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
    assert answer == "reading Parquet files needs pyarrow: pip install pyarrow\n"
