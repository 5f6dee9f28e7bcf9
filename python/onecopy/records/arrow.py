"""Rows out of other libraries' tables, without making Python objects of them.

    rows = oc.share(lambda: records.arrow_rows(dataset.data.table), key=...)

What `arrow_rows` gives is for `onecopy.share`, `onecopy.records.save` and `Writer.extend`, which read it batch by batch
in the compiled half: no more than a batch is in memory, and no Python object is made for a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["ArrowRows", "arrow_rows"]


class ArrowRows(Iterable[dict[str, Any]]):
    """Rows that are still to be read from an Arrow stream; made by `arrow_rows`."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def _arrow_stream(self) -> object:
        """Return a capsule; the compiled half's builder asks for it."""
        return self._table.__arrow_c_stream__()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        raise TypeError("rows of Arrow are read by onecopy.share, onecopy.records.save and Writer.extend")

    def __repr__(self) -> str:
        return f"<onecopy rows from a {type(self._table).__name__}>"


def arrow_rows(table: Any) -> ArrowRows:
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
    >>> from onecopy import records
    >>> table = oc.share([{"id": 1, "box": [0.5]}, {"id": 2, "box": None}])
    >>> oc.share(records.arrow_rows(table))[1]
    {'id': 2, 'box': None}
    """
    if not hasattr(table, "__arrow_c_stream__"):
        raise TypeError(f"{type(table).__name__} has no __arrow_c_stream__: it is no table of Arrow's")
    return ArrowRows(table)
