"""Rows of CSV and Parquet files, for `share`, `save` and `Writer.extend`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onecopy.errors import FormatError
from onecopy.files import open_regular
from onecopy.records.arrow import arrow_rows
from onecopy.records.sources import OnProgress, RowSource, Tell

if TYPE_CHECKING:
    import os

    from onecopy import _core

__all__ = ["csv_rows", "parquet_rows"]

Converter = Callable[[str], Any]
Types = Mapping[str, Converter] | Literal["infer"] | None


def csv_rows(
    source: str | os.PathLike[str],
    *,
    types: Types = None,
    columns: Sequence[str] | None = None,
    encoding: str = "utf-8-sig",
    progress: OnProgress | None = None,
    **dialect: Any,
) -> RowSource:
    r"""Name the rows of a CSV file: each a dict from column to value, read by Python's `csv`.

    Parameters
    ----------
    source
        A file whose first line names the columns, unless `columns` does.
    types
        None: all is text, as it stands. A mapping from column to a function of the text: `int`, `float`, any other;
        columns that are not in it stay text. "infer": pyarrow reads the file, the whole table in memory, and infers
        booleans, integers, floats, dates and times, with None for empty fields; ``007`` becomes 7, and integers beyond
        64 bits become floats, so name the type of columns with such identifiers instead.
    columns
        Names, where the file has none.
    encoding
        Of the text; a byte order mark of UTF-8 is left out.
    progress
        See `json_rows`.
    **dialect
        Options of `csv.reader`: ``delimiter="\t"``, ``quotechar="'"``, ...; with "infer", delimiter, quotechar,
        escapechar and doublequote.

    Raises
    ------
    FormatError
        When the rows are read: a row of another length than the header, a column that is there twice, a field that its
        function refuses, text that is not in `encoding`; with file and line.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "files.csv")
    >>> _ = path.write_text("name,label,score\na.jpg,3,0.5\nb.jpg,1,\n")
    >>> oc.share(records.csv_rows(path, types="infer"))[1]
    {'name': 'b.jpg', 'label': 1, 'score': None}
    """
    if not (types is None or types == "infer" or isinstance(types, Mapping)):
        raise ValueError(f"types must be None, 'infer' or a mapping from column to function, not {types!r}")
    if types == "infer":
        return InferredCsvRows(source, columns, encoding, dialect, progress)
    return CsvRows(source, types or {}, columns, encoding, {"strict": True, **dialect}, progress)


def parquet_rows(
    source: str | os.PathLike[str], *, columns: Sequence[str] | None = None, progress: OnProgress | None = None
) -> RowSource:
    """Name the rows of a Parquet file: each a dict from column to value, as pyarrow's `to_pylist` has them.

    Needs pyarrow, which reads one batch of rows after the other. Numbers, text, bytes, lists and structs go from
    Arrow's memory straight into columns; beside other types (times, decimals, maps) by way of Python's objects.

    Parameters
    ----------
    source
        The file.
    columns
        Only these; None: all.
    progress
        See `json_rows`; bytes are the share of the rows.

    Raises
    ------
    ImportError
        When the rows are read: there is no pyarrow. What pyarrow raises comes through.
    """
    return ParquetRows(source, columns, progress)


class CsvRows(RowSource):
    """Rows of a CSV file, read by Python's `csv`."""

    def __init__(
        self,
        source: str | os.PathLike[str],
        types: Mapping[str, Converter],
        columns: Sequence[str] | None,
        encoding: str,
        dialect: dict[str, Any],
        progress: OnProgress | None,
    ) -> None:
        super().__init__(source, progress)
        self._types = types
        self._columns = columns
        self._encoding = encoding
        self._dialect = dialect

    def add_to(self, builder: _core.RecordBuilder, registry: Any, tell: Tell | None) -> int:
        """Append all rows and return how many there were."""
        lines = _Lines(self._path, self._encoding, self._dialect, self._columns)
        before, size = builder.length, Path(self._path).stat().st_size

        def report(rows: int) -> None:
            self._report(lines.done, size)
            if tell is not None:
                tell(rows)

        count = builder.extend(lines.rows(self._types), registry, report)
        report(before + count)
        return count


class _Lines:
    """A CSV file, read as often as needed."""

    def __init__(self, path: str, encoding: str, dialect: dict[str, Any], columns: Sequence[str] | None) -> None:
        self._path = path
        self._encoding = encoding
        self._dialect = dialect
        self._columns = columns
        self._line = 0
        self.done = 0  # bytes

    def rows(self, types: Mapping[str, Converter]) -> Iterator[dict[str, Any]]:
        """Return the rows, converted."""
        converters: list[tuple[str, Converter]] | None = None
        for header, fields in self._fields():
            if converters is None:
                if missing := types.keys() - set(header):
                    raise self._error(f"no column {min(missing)!r}: there are {', '.join(header)}")
                converters = list(types.items())
            row: dict[str, Any] = dict(zip(header, fields, strict=True))
            for name, convert in converters:
                try:
                    row[name] = convert(row[name])
                except (ArithmeticError, TypeError, ValueError) as error:
                    raise self._error(f"column {name!r}: {error}") from error
            yield row

    def _fields(self) -> Iterator[tuple[Sequence[str], list[str]]]:
        """Return the fields of each row, with the names of the columns."""
        header = self._columns
        with open_regular(self._path) as binary, io.TextIOWrapper(binary, self._encoding, newline="") as text:
            reader = csv.reader(text, **self._dialect)
            try:
                for fields in reader:
                    self._line, self.done = reader.line_num, binary.tell()
                    if header is None:
                        header = fields
                        if len(set(header)) < len(header):
                            raise self._error(f"a column twice: {', '.join(header)}")
                    elif len(fields) == len(header):
                        yield header, fields
                    elif fields:
                        raise self._error(f"{len(fields)} fields, and there are {len(header)} columns")
            except (UnicodeDecodeError, csv.Error) as error:
                raise self._error(str(error)) from error

    def _error(self, what: str) -> FormatError:
        return FormatError(f"{self._path}: line {self._line}: {what}")


class InferredCsvRows(RowSource):
    """Rows of a CSV file whose column types pyarrow infers."""

    def __init__(
        self,
        source: str | os.PathLike[str],
        columns: Sequence[str] | None,
        encoding: str,
        dialect: dict[str, Any],
        progress: OnProgress | None,
    ) -> None:
        super().__init__(source, progress)
        if unknown := dialect.keys() - _ARROW_DIALECT.keys():
            known = ", ".join(_ARROW_DIALECT)
            raise TypeError(f"types='infer' has no option {min(unknown)!r}: pyarrow.csv has {known}")
        self._columns = columns
        self._encoding = encoding
        self._dialect = dialect

    def add_to(self, builder: _core.RecordBuilder, registry: Any, tell: Tell | None) -> int:
        """Append all rows and return how many there were."""
        size = Path(self._path).stat().st_size
        if size == 0:
            return 0
        table = self._read()
        names = table.column_names
        if len(set(names)) < len(names):
            raise FormatError(f"{self._path}: duplicate column names: {', '.join(names)}")
        before, count = builder.length, 0
        for batch in table.to_batches(max_chunksize=_BATCH):
            count += _extend(builder, batch, registry)
            self._report(size * count // len(table), size)
            if tell is not None:
                tell(before + count)
        return count

    def _read(self) -> Any:
        try:
            from pyarrow import csv as arrow_csv
        except ImportError as error:
            raise ImportError("types='infer' needs pyarrow: pip install pyarrow") from error
        given = {_ARROW_DIALECT[name]: value for name, value in self._dialect.items()}
        try:
            with open_regular(self._path) as file:
                return arrow_csv.read_csv(
                    file,
                    arrow_csv.ReadOptions(column_names=self._columns, encoding=self._encoding),
                    arrow_csv.ParseOptions(newlines_in_values=True, **given),
                )
        except (UnicodeDecodeError, ValueError) as error:  # ArrowInvalid is a ValueError
            raise FormatError(f"{self._path}: {error}") from error


_ARROW_DIALECT = {
    "delimiter": "delimiter",
    "quotechar": "quote_char",
    "escapechar": "escape_char",
    "doublequote": "double_quote",
}
"""Options of `csv.reader`, and their names in ``pyarrow.csv.ParseOptions``."""
_BATCH = 1 << 16  # rows between two reports of progress


class ParquetRows(RowSource):
    """Rows of a Parquet file."""

    def __init__(
        self, source: str | os.PathLike[str], columns: Sequence[str] | None, progress: OnProgress | None
    ) -> None:
        super().__init__(source, progress)
        self._columns = columns

    def add_to(self, builder: _core.RecordBuilder, registry: Any, tell: Tell | None) -> int:
        """Append all rows and return how many there were."""
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise ImportError("Parquet files are read by pyarrow: pip install pyarrow") from error
        size = Path(self._path).stat().st_size
        before, count = builder.length, 0
        with parquet.ParquetFile(self._path) as file:
            for batch in file.iter_batches(columns=self._columns):
                count += _extend(builder, batch, registry)
                self._report(size * count // file.metadata.num_rows, size)
                if tell is not None:
                    tell(before + count)
        return count


def _extend(builder: _core.RecordBuilder, batch: Any, registry: Any) -> int:
    """Append the rows of a record batch: from Arrow's memory where all types allow it, else as Python objects."""
    plain = all(_is_plain(column.type) for column in batch.columns)
    return builder.extend(arrow_rows(batch) if plain else batch.to_pylist(), registry, None)


def _is_plain(kind: Any) -> bool:
    """Return whether the compiled half reads a type of Arrow's by itself, and to what `to_pylist` makes of it."""
    from pyarrow import types

    if types.is_struct(kind) or types.is_list(kind) or types.is_large_list(kind):
        return all(_is_plain(kind.field(i).type) for i in range(kind.num_fields))
    leaves = ("boolean", "integer", "float32", "float64", "string", "large_string", "binary", "large_binary")
    return any(getattr(types, f"is_{leaf}")(kind) for leaf in leaves)
