"""Rows of CSV and Parquet files, as sources for `share`, `save` and `Writer.extend`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onecopy.errors import FormatError
from onecopy.files import open_regular
from onecopy.records.arrow import arrow_rows
from onecopy.records.sources import OnProgress, OnRows, RowSource

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
    r"""Return the rows of a CSV file as a source; each row is a dict from column to value.

    Parameters
    ----------
    source
        Path of a file whose first line has the names of the columns, unless `columns` is given.
    types
        None: all values are str. A mapping from column to a function of the text, such as `int` or `float`; other
        columns are str. "infer": pyarrow reads the whole table into memory and infers booleans, integers, floats, dates
        and times, with None for empty fields; ``007`` becomes 7, and integers beyond 64 bits become floats, so give the
        types of columns with such identifiers instead.
    columns
        Names of the columns, for a file without a header line.
    encoding
        Encoding of the text; "utf-8-sig" skips a byte order mark of UTF-8.
    progress
        Called about 20 times per second with (bytes done, bytes in total).
    **dialect
        Options of `csv.reader`: ``delimiter="\t"``, ``quotechar="'"``, ...; with "infer", delimiter, quotechar,
        escapechar and doublequote.

    Raises
    ------
    FormatError
        When the rows are read: a row has another number of fields than the header, a column name is duplicate, a
        function of `types` raises, or the text is invalid in `encoding`. The message has the file and, unless
        ``types="infer"``, the line.

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
    """Return the rows of a Parquet file as a source; each row is a dict as in ``pyarrow.Table.to_pylist``.

    Needs pyarrow, which reads one batch of rows at a time. Numbers, text, bytes, lists and structs are copied from the
    memory of Arrow; a batch with a column of another type (times, decimals, maps) is converted to Python objects first.

    Parameters
    ----------
    source
        Path of the file.
    columns
        Names of the columns to read; None: all.
    progress
        Called with (bytes done, bytes in total), estimated from the number of rows, after each batch.

    Raises
    ------
    ImportError
        When the rows are read: pyarrow is not installed. Errors of pyarrow are passed on.
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

    def add_to(self, builder: _core.RecordBuilder, registry: Any, on_rows: OnRows | None) -> int:
        """Append all rows to a builder and return their number."""
        lines = _Lines(self._path, self._encoding, self._dialect, self._columns)
        before, size = builder.length, Path(self._path).stat().st_size

        def report(rows: int) -> None:
            self._report(lines.done, size)
            if on_rows is not None:
                on_rows(rows)

        count = builder.extend(lines.rows(self._types), registry, progress=report)
        report(before + count)
        return count


class _Lines:
    """The lines of a CSV file."""

    def __init__(self, path: str, encoding: str, dialect: dict[str, Any], columns: Sequence[str] | None) -> None:
        self._path = path
        self._encoding = encoding
        self._dialect = dialect
        self._columns = columns
        self._line = 0
        self.done = 0  # bytes read so far

    def rows(self, types: Mapping[str, Converter]) -> Iterator[dict[str, Any]]:
        """Yield the rows with converted values."""
        converters: list[tuple[str, Converter]] | None = None
        for header, fields in self._fields():
            if converters is None:
                if missing := types.keys() - set(header):
                    raise self._error(f"no column {min(missing)!r}: the columns are {', '.join(header)}")
                converters = list(types.items())
            row: dict[str, Any] = dict(zip(header, fields, strict=True))
            for name, convert in converters:
                try:
                    row[name] = convert(row[name])
                except (ArithmeticError, TypeError, ValueError) as error:
                    raise self._error(f"column {name!r}: {error}") from error
            yield row

    def _fields(self) -> Iterator[tuple[Sequence[str], list[str]]]:
        """Yield the names of the columns and the fields of each row."""
        header = self._columns
        with open_regular(self._path) as binary, io.TextIOWrapper(binary, self._encoding, newline="") as text:
            reader = csv.reader(text, **self._dialect)
            try:
                for fields in reader:
                    self._line, self.done = reader.line_num, binary.tell()
                    if header is None:
                        header = fields
                        if len(set(header)) < len(header):
                            raise self._error(f"duplicate column names: {', '.join(header)}")
                    elif len(fields) == len(header):
                        yield header, fields
                    elif fields:
                        raise self._error(f"{len(fields)} fields, but {len(header)} columns")
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
            raise TypeError(f"option {min(unknown)!r} is not supported with types='infer': pyarrow.csv has {known}")
        self._columns = columns
        self._encoding = encoding
        self._dialect = dialect

    def add_to(self, builder: _core.RecordBuilder, registry: Any, on_rows: OnRows | None) -> int:
        """Append all rows to a builder and return their number."""
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
            if on_rows is not None:
                on_rows(before + count)
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

    def add_to(self, builder: _core.RecordBuilder, registry: Any, on_rows: OnRows | None) -> int:
        """Append all rows to a builder and return their number."""
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise ImportError("reading Parquet files needs pyarrow: pip install pyarrow") from error
        size = Path(self._path).stat().st_size
        before, count = builder.length, 0
        with parquet.ParquetFile(self._path) as file:
            for batch in file.iter_batches(columns=self._columns):
                count += _extend(builder, batch, registry)
                self._report(size * count // file.metadata.num_rows, size)
                if on_rows is not None:
                    on_rows(before + count)
        return count


def _extend(builder: _core.RecordBuilder, batch: Any, registry: Any) -> int:
    """Append the rows of a record batch, from the memory of Arrow if all types allow it, else as Python objects."""
    plain = all(_is_plain(column.type) for column in batch.columns)
    return builder.extend(arrow_rows(batch) if plain else batch.to_pylist(), registry)


def _is_plain(kind: Any) -> bool:
    """Return whether the compiled module reads an Arrow type itself, with the same values as `to_pylist`."""
    from pyarrow import types

    if types.is_struct(kind) or types.is_list(kind) or types.is_large_list(kind):
        return all(_is_plain(kind.field(i).type) for i in range(kind.num_fields))
    leaves = ("boolean", "integer", "float32", "float64", "string", "large_string", "binary", "large_binary")
    return any(getattr(types, f"is_{leaf}")(kind) for leaf in leaves)
