"""Rows out of other libraries' tables, without making Python objects of them.

    oc.records.save("rows.oc", oc.records.from_parquet("rows.parquet"))
    rows = oc.share(lambda: oc.records.from_arrow(dataset.data.table), key=...)

What these functions give is for `onecopy.share`, `onecopy.records.save` and `Writer.extend`, which read it batch by
batch in the compiled half: no more than a batch is in memory, and no Python object is made for a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onecopy.base import path_text

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

__all__ = ["ArrowRows", "from_arrow", "from_parquet"]


class ArrowRows(Iterable[dict[str, Any]]):
    """Rows that are still to be read from an Arrow stream; made by `from_arrow` and `from_parquet`."""

    def __init__(self, open_stream: Callable[[], Any], about: str) -> None:
        self._open_stream = open_stream
        self._about = about

    def _arrow_stream(self) -> object:
        """Give a capsule; the compiled half's builder asks for it."""
        return self._open_stream().__arrow_c_stream__()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        raise TypeError("rows of Arrow are read by onecopy.share, onecopy.records.save and Writer.extend")

    def __repr__(self) -> str:
        return f"<onecopy rows from {self._about}>"


def from_arrow(table: Any) -> ArrowRows:
    """Read the rows of anything that has Arrow's PyCapsule protocol, as dicts with a key for each column.

    Parameters
    ----------
    table
        A ``pyarrow.Table`` or ``RecordBatchReader``, a ``polars.DataFrame``, a DuckDB relation, ``dataset.data.table``
        of Hugging Face's datasets, a `Table`: whatever has ``__arrow_c_stream__``, and whose rows are structs.

    Returns
    -------
    Rows for `onecopy.share`, `onecopy.records.save` and `Writer.extend`. Integers become int and are stored as narrow
    as the column, floats of every width float, text str, binary bytes, lists list, structs dict, maps dict, nulls
    None; dictionary-encoded values and unions the values themselves.

    Raises
    ------
    TypeError
        It has no such protocol.
    FormatError
        When it is read: a type that records do not have (decimals, dates, times), with the name of the column.

    Examples
    --------
    >>> import onecopy as oc
    >>> table = oc.share([{"id": 1, "box": [0.5]}, {"id": 2, "box": None}])
    >>> oc.share(oc.records.from_arrow(table))[1]
    {'id': 2, 'box': None}
    """
    if not hasattr(table, "__arrow_c_stream__"):
        raise TypeError(f"{type(table).__name__} has no __arrow_c_stream__: it is no table of Arrow's")
    return ArrowRows(lambda: table, f"a {type(table).__name__}")


def from_parquet(
    path: str | os.PathLike[str], *, columns: Iterable[str] | None = None, batch_size: int = 65536
) -> ArrowRows:
    """Read the rows of a Parquet file, `batch_size` of them in memory at a time; needs pyarrow.

    Parameters
    ----------
    path
        The file.
    columns
        Names, to read only these; None: all.
    batch_size
        Rows that are decoded at once.

    Raises
    ------
    OSError
        The file cannot be opened.
    FormatError
        When it is read: see `from_arrow`.
    """
    import pyarrow as pa
    from pyarrow import parquet

    text = path_text(path)
    names = None if columns is None else list(columns)

    def read() -> Any:
        file = parquet.ParquetFile(text)
        batches = file.iter_batches(batch_size=batch_size, columns=names)
        wanted = file.schema_arrow if names is None else pa.schema([file.schema_arrow.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(wanted, batches)

    return ArrowRows(read, text)
