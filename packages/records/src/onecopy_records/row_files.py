"""`RowSource`: the rows of JSON and Parquet files as input of `share`, `save` and `Writer.extend`.

    anns = oc.share(records.json_rows("instances.json", "annotations"), key=oc.file_key("instances.json"))

JSON is parsed by the compiled module without the GIL, and Parquet by pyarrow. The file is opened when the rows are
read, so a source costs nothing if the store already contains the artefact. An import needs a few MB of memory, whatever
the size of the file. Iterate over a source to see its rows. Rows of other libraries' Arrow tables (`arrow_rows`) are
read batch by batch, without creating Python objects. `import_json`, `import_jsonl` and `import_parquet` write the rows
of a source to a file of records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onecopy import _core
from onecopy.base.text import path_text
from onecopy.errors import FormatError, Kind, NotShareable
from onecopy.files.mapping import Closeable, Mapping as FileMapping, open_regular
from onecopy.store import digest_of
from onecopy.store.location import resolve
from onecopy_records.rows import Chain, Dict, List, of_descriptor, open_records
from onecopy_records.types import plain_of

if TYPE_CHECKING:
    import os
    from types import TracebackType


Container = Literal["list", "dict"]
OnProgress = Callable[[int, int], object]
"""Called about 20 times per second with (source bytes done, bytes in total). An exception stops the import."""


@dataclass(frozen=True, slots=True)
class _Import:
    """The import of a file into a builder."""

    path: str
    nbytes: int
    builder: _core.RecordBuilder
    registry: Any
    on_bytes: OnProgress | None
    on_rows: Callable[[int], object] | None

    def report(self, rows: int, done: int) -> None:
        """Report the number of rows in the builder and the number of bytes read."""
        if self.on_bytes is not None:
            self.on_bytes(done, self.nbytes)
        if self.on_rows is not None:
            self.on_rows(rows)


class RowSource:
    """The rows in a file; created by `json_rows`, `jsonl_rows` and `parquet_rows`.

    Iteration imports the whole file into an unnamed records file, and yields its rows (or pairs, for a dict). It raises
    the same errors as an import.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        read: Callable[..., int],
        options: dict[str, Any],
        progress: OnProgress | None,
        container: Container = "list",
    ) -> None:
        self.path = resolve(source)[0]
        """Path of the file."""
        self.container = container
        """"list", or "dict" for rows that are pairs (key, value)."""
        self._read, self._options, self._on_progress = read, options, progress

    def name(self) -> str:
        """Return text that identifies the kind of source, the selected part of the file, and the options."""
        options = {"path": self.path, "container": self.container, **self._options}
        # This name is part of keys, so renaming a function causes files to be imported again.
        return f"{self._read.__name__} {digest_of(options, 'an option of the source')}"

    def add_to(self, builder: _core.RecordBuilder, registry: Any, on_rows: Callable[[int], object] | None) -> int:
        """Append all rows to a builder and return their number."""
        nbytes = Path(self.path).stat().st_size
        file = _Import(self.path, nbytes, builder, registry, self._on_progress, on_rows)
        return self._read(file, **self._options)

    def __iter__(self) -> Iterator[Any]:
        folder = spool_folder(Path(tempfile.gettempdir()))
        builder = _core.RecordBuilder(folder, self.container, {})
        self.add_to(builder, plain_of, None)
        rows = of_descriptor(builder.save_nameless(folder), trusted=False)
        return iter(rows.items() if self.container == "dict" else rows)

    def __repr__(self) -> str:
        return f"<onecopy.records.RowSource of {self.path}>"


def _read_json(file: _Import, *, members: Sequence[str], lines: bool) -> int:
    before = file.builder.length
    if not file.nbytes and Path(file.path).is_file():  # an empty file cannot be mapped
        if lines:
            return 0
        raise FormatError("expected JSON, found an empty file", Kind.NOT_THIS_FORMAT, path=file.path)
    with FileMapping(file.path) as text:
        return file.builder.extend_json(
            text.core, path=list(members), lines=lines, progress=lambda rows, done: file.report(before + rows, done)
        )


def json_rows(
    source: str | os.PathLike[str],
    path: str | Sequence[str] = (),
    *,
    container: Container = "list",
    progress: OnProgress | None = None,
) -> RowSource:
    r"""Return the rows in a JSON file as a source: the items of an array, or the members of an object.

    The values are the same as with `json.load`: integers of any size, the nearest floats, NaN and Infinity, and the
    last value of a duplicate key. The whole file is validated, including the parts outside of the rows. The file is
    mapped. An import needs a few MB of memory, plus 16 bytes per value in the largest object in a row.

    Parameters
    ----------
    source
        Path of a file in UTF-8, without a byte order mark.
    path
        Position of the rows in the document: ``"annotations"``, ``"data.items"``, or a list of keys if a key contains a
        dot. Empty: the whole document.
    container
        "list": the value at `path` is an array of rows. "dict": it is an object, whose members become a Dict; its keys
        must be unique.
    progress
        Called about 20 times per second with (bytes done, bytes in total).

    Raises
    ------
    FormatError
        When the rows are read: the text is not valid JSON, it has no value at `path`, the value is not an array, or the
        text contains an unpaired surrogate (``"\ud800"``), which UTF-8 cannot represent, or more than 60 levels of
        nesting. The message gives the file, byte, line and column, and the path of the value.
    OSError
        The file cannot be opened or mapped.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "instances.json")
    >>> _ = path.write_text('{"info": "", "annotations": [{"id": 7, "bbox": [1, 2.5]}]}')
    >>> oc.share(records.json_rows(path, "annotations"))[0]
    {'id': 7, 'bbox': [1, 2.5]}
    """
    if container not in ("list", "dict"):
        raise ValueError(f"container must be 'list' or 'dict', not {container!r}")
    members = path.split(".") if isinstance(path, str) else list(path)
    return RowSource(source, _read_json, {"members": members, "lines": False}, progress, container)


def jsonl_rows(source: str | os.PathLike[str], *, progress: OnProgress | None = None) -> RowSource:
    r"""Return the rows in a JSON Lines file as a source. Each line contains one value; empty lines are skipped.

    See `json_rows` for values, memory and errors.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "rows.jsonl")
    >>> _ = path.write_text('{"id": 1}\n{"id": 2}\n')
    >>> oc.share(records.jsonl_rows(path))[1]
    {'id': 2}
    """
    return RowSource(source, _read_json, {"members": [], "lines": True}, progress)


def parquet_rows(
    source: str | os.PathLike[str], *, columns: Sequence[str] | None = None, progress: OnProgress | None = None
) -> RowSource:
    """Return the rows in a Parquet file as a source. Each row is a dict as in ``pyarrow.Table.to_pylist``.

    This requires pyarrow, which reads one batch of rows at a time. Numbers, text, bytes, lists and structs are copied
    from Arrow's memory; a batch with a column of another type (times, decimals, maps) is first converted to Python
    objects. Timestamps, durations and times in nanoseconds become `datetime` objects, in microseconds.

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
        When the rows are read: pyarrow is not installed. Errors from pyarrow are passed on.
    FormatError
        When the rows are read: a time has nanoseconds that would be lost; the message names the column.
    """
    return RowSource(source, _read_parquet, {"columns": columns}, progress)


def _read_parquet(file: _Import, *, columns: Sequence[str] | None) -> int:
    try:
        from pyarrow import parquet

        from onecopy_records._arrow_times import exact, in_microseconds
    except ImportError as error:
        raise ImportError("reading Parquet files requires pyarrow: pip install pyarrow") from error
    # Pass open files, because pyarrow rejects names that are not UTF-8; two, because `exact` reads the file twice.
    with open_regular(file.path) as binary, parquet.ParquetFile(binary) as table, open_regular(file.path) as other:
        batches = table.iter_batches(columns=columns)
        if any(table.schema.column(number).physical_type == "INT96" for number in range(len(table.schema))):
            coarse = parquet.ParquetFile(other, coerce_int96_timestamp_unit="us").iter_batches(columns=columns)
            batches = (exact(file.path, *pair) for pair in zip(batches, coarse, strict=True))
        count = 0
        for batch in batches:
            is_plain = all(_is_plain(column.type) for column in batch.columns)
            rows = arrow_rows(batch) if is_plain else in_microseconds(file.path, batch).to_pylist()
            count += file.builder.extend(rows, file.registry)
            file.report(file.builder.length, file.nbytes * count // table.metadata.num_rows)
        return count


def _is_plain(kind: Any) -> bool:
    """Return whether the compiled module reads the same values as `to_pylist` from an Arrow type."""
    from pyarrow import types

    if types.is_struct(kind) or types.is_list(kind) or types.is_large_list(kind):
        return all(_is_plain(kind.field(i).type) for i in range(kind.num_fields))
    leaves = ("boolean", "integer", "float32", "float64", "string", "large_string", "binary", "large_binary")
    return any(getattr(types, f"is_{leaf}")(kind) for leaf in leaves)


class ArrowRows(Iterable[dict[str, Any]]):
    """The rows in an Arrow stream that has not been read yet; created by `arrow_rows`."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def _arrow_stream(self) -> object:
        """Return the stream's capsule, for the compiled module's builder."""
        return self._table.__arrow_c_stream__()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        raise TypeError("cannot iterate over Arrow rows: pass them to onecopy.share, records.save or Writer.extend")

    def __repr__(self) -> str:
        return f"<onecopy rows from a {type(self._table).__name__}>"


def arrow_rows(table: Any) -> ArrowRows:
    """Return the rows in a table that supports the Arrow PyCapsule interface, as dicts with one key per column.

    Parameters
    ----------
    table
        A ``pyarrow.Table`` or ``RecordBatchReader``, a ``polars.DataFrame``, a DuckDB relation, ``dataset.data.table``
        of Hugging Face datasets, a `Table`, or another object with ``__arrow_c_stream__`` whose rows are structs.

    Returns
    -------
    ArrowRows
        Rows for `onecopy.share`, `onecopy.records.save` and `Writer.extend`. Integers become int and are stored in the
        narrowest type that fits the column; floats of any width become float, strings str, binary bytes, lists list,
        structs and maps dict, nulls None; dictionary-encoded values and members of unions become plain values.

    Raises
    ------
    TypeError
        The object has no ``__arrow_c_stream__``.
    FormatError
        When the rows are read: a column has a type that records do not support (decimals, dates, times).

    Examples
    --------
    >>> import onecopy as oc
    >>> from onecopy import records
    >>> table = oc.share([{"id": 1, "box": [0.5]}, {"id": 2, "box": None}])
    >>> oc.share(records.arrow_rows(table))[1]
    {'id': 2, 'box': None}
    """
    if not hasattr(table, "__arrow_c_stream__"):
        raise TypeError(f"expected an Arrow table, found a {type(table).__name__} without __arrow_c_stream__")
    return ArrowRows(table)


def import_json(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    path: str | Sequence[str] = (),
    container: Container = "list",
    progress: OnProgress | None = None,
) -> List[Any] | Dict[Any, Any]:
    """Write the rows in a JSON file to a records file, and open it. See `json_rows` for the options and errors.

    As with `save`, the write is atomic: readers of `target` see either the old file or the new one.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "captions.json").write_text('{"annotations": [{"id": 1, "caption": "a cat"}]}')
    >>> rows = records.import_json(folder / "captions.json", folder / "captions.oc", path="annotations")
    >>> rows[0]["caption"]
    'a cat'
    """
    return _into(target, json_rows(source, path, container=container, progress=progress))  # type: ignore[no-any-return]


def import_jsonl(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, progress: OnProgress | None = None
) -> List[Any]:
    """Write the rows in a JSON Lines file to a records file, and open it. See `jsonl_rows` for the errors."""
    return _into(target, jsonl_rows(source, progress=progress))  # type: ignore[no-any-return]


def import_parquet(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    progress: OnProgress | None = None,
) -> List[Any]:
    """Write the rows in a Parquet file to a records file, and open it. See `parquet_rows` for options and errors."""
    return _into(target, parquet_rows(source, columns=columns, progress=progress))  # type: ignore[no-any-return]


def _into(target: str | os.PathLike[str], rows: RowSource) -> Any:
    save(target, rows)
    return open_records(target)


class Writer(Closeable):
    """Writes rows to a records file, which appears complete or not at all when the writer is closed.

    Rows are first written to an unnamed spool file in the target's folder (or in a folder on disk if the target's is in
    memory), because even the last row can change the width and the type of a column. Closing copies them to the target
    in order. During this time, the data occupies twice its size.

    Parameters
    ----------
    path
        Path of the file; an existing file is replaced atomically.
    container
        "list", or "dict" for rows that are pairs (key, value) and are looked up by key.

    Raises
    ------
    NotShareable
        From `append` and `extend`: a value cannot be stored; the message begins with its path. Rows that were appended
        earlier remain.
    OSError
        The disk is full (ENOSPC), or the folder is not writable.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "rows.oc")
    >>> with records.Writer(path) as writer:
    ...     writer.append({"id": 1})
    ...     writer.extend({"id": i} for i in range(2, 5))
    3
    >>> len(oc.open_records(path))
    4
    """

    def __init__(self, path: str | os.PathLike[str], *, container: Container = "list") -> None:
        self._path = path_text(path)
        folder = spool_folder(Path(self._path).parent)
        self._core: _core.RecordBuilder | None = _core.RecordBuilder(folder, container, {})

    def _builder(self) -> _core.RecordBuilder:
        if self._core is None:
            raise ValueError("the writer is closed")
        return self._core

    def append(self, row: Any) -> None:
        """Append one row, which for ``container="dict"`` is a pair (key, value)."""
        self._builder().append(row, plain_of)

    def extend(self, rows: Iterable[Any], *, progress: Callable[[int], object] | None = None) -> int:
        """Append rows and return their number.

        `progress` is called from time to time with the number of rows so far. An exception that it raises is passed on.
        """
        return fill(self._builder(), rows, plain_of, progress)

    def __len__(self) -> int:
        return self._builder().length

    def close(self) -> None:
        """Write the file; further calls do nothing."""
        if self._core is not None:
            builder, self._core = self._core, None
            builder.save(self._path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        self._core = None


def save(path: str | os.PathLike[str], data: Iterable[Any] | Mapping[Any, Any]) -> None:
    """Write a list, a dict or an iterator of rows to a records file, for `onecopy.open_records`.

    The write is atomic: readers see either the old file or the new one. See `Writer` for errors and disk space.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "rows.oc")
    >>> records.save(path, [("a.jpg", 3), ("b.jpg", 1)])
    >>> oc.open_records(path)[0]
    ('a.jpg', 3)
    """
    container, rows = rows_of(data)
    with Writer(path, container=container) as writer:
        writer.extend(rows)


def fill(
    builder: _core.RecordBuilder, rows: Iterable[Any], registry: Any, progress: Callable[[int], object] | None
) -> int:
    """Append rows to a builder and return their number. Rows from a `RowSource` do not become Python objects."""
    if isinstance(rows, RowSource):
        return rows.add_to(builder, registry, progress)
    return builder.extend(rows, registry, progress=progress)


def rows_of(data: Any) -> tuple[Container, Iterable[Any]]:
    """Return the container of the data ("list" or "dict") and its rows, which for a dict are pairs.

    Raise NotShareable for other containers, because reading them would return a List or a Dict instead.
    """
    kind = type(data)
    if kind is dict or isinstance(data, Dict):
        return "dict", data.items()
    if isinstance(data, RowSource):
        return data.container, data
    if kind is list or isinstance(data, (List, Chain)) or (hasattr(kind, "__iter__") and not hasattr(kind, "__len__")):
        return "list", data
    rows = ""
    if hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__dataframe__"):  # iterating a table may yield columns
        rows = "data.to_dict('records')" if hasattr(kind, "iloc") else "onecopy.records.arrow_rows(data)"
    elif hasattr(kind, "__iter__") and kind not in (str, bytes):
        rows = "dict(data)" if isinstance(data, Mapping) else "list(data)"
    hint = f"pass {rows} to share only its rows, or " if rows else ""
    raise NotShareable(
        f"rows must be a list, a dict or an iterator, not {kind.__name__}: {hint}use share_object, or "
        "cached(codec='object'), for any object that can be pickled"
    )


def spool_folder(target: Path) -> str:
    """Return the folder for the spool file, which is `target`, or a folder on disk if `target` is in memory."""
    folders = [target, Path(tempfile.gettempdir()), Path("/var/tmp")]  # noqa: S108 - the file is nameless
    on_disk = [folder for folder in folders if folder.is_dir() and not _core.is_in_memory(str(folder))]
    return str((on_disk or folders)[0])
