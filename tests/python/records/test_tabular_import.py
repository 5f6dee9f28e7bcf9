"""Rows of CSV and Parquet files are those of Python's csv and of pyarrow; what is no table is refused with its line."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import io
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        ("a,b\n1,2\n3\n", {}, "line 3: 1 fields, but 2 columns"),
        ("a,b\n1,2,3\n", {}, "line 2: 3 fields, but 2 columns"),
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
