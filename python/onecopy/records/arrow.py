"""Rows of Arrow tables of other libraries, read without creating Python objects.

    rows = oc.share(lambda: records.arrow_rows(dataset.data.table), key=...)

`onecopy.share`, `onecopy.records.save` and `Writer.extend` read the result of `arrow_rows` batch by batch in the
compiled module: one batch is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["ArrowRows", "arrow_rows"]


class ArrowRows(Iterable[dict[str, Any]]):
    """Rows of an Arrow stream that has not been read yet; created by `arrow_rows`."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def _arrow_stream(self) -> object:
        """Return the capsule of the stream, for the builder of the compiled module."""
        return self._table.__arrow_c_stream__()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        raise TypeError("cannot iterate Arrow rows: give them to onecopy.share, onecopy.records.save or Writer.extend")

    def __repr__(self) -> str:
        return f"<onecopy rows from a {type(self._table).__name__}>"


def arrow_rows(table: Any) -> ArrowRows:
    """Return the rows of a table that has the Arrow PyCapsule interface, as dicts with one key per column.

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
        structs and maps dict, nulls None; dictionary-encoded values and values of unions become the values themselves.

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
        raise TypeError(f"not an Arrow table: {type(table).__name__} has no __arrow_c_stream__")
    return ArrowRows(table)
