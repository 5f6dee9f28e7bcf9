"""Rows as columns: whole, in place, and as many rows at once as a batch has.

What `List`, `Table` and the columns of a table have in common. Random rows of a mapped file are cache misses; asked for
one by one they are waited for one by one. `take` asks for all of them in one call of the compiled half, which fetches
ahead, makes no Python object for a number, and lets other threads run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex

from onecopy import _core
from onecopy.records.schema import Schema, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["Columnar", "Ragged"]

Out = Literal["numpy", "torch"]


class Ragged(NamedTuple):
    """Lists of different lengths, one after the other: list i is ``values[offsets[i] : offsets[i + 1]]``."""

    values: Any
    """Of all lists: an array; another Ragged for lists of lists; a dict of columns for lists of dicts; a tuple of
    columns for lists of tuples."""
    offsets: Any
    """int64, one more than there are lists, the first 0."""


class Columnar(_core.Rows):
    """Rows that can be looked at and gathered by the column."""

    @property
    def schema(self) -> Schema:
        """What the rows are made of; `print` it."""
        return schema_of(self._rows_type)

    def numpy(self) -> NDArray[Any]:
        """View a column of numbers as a read-only array: no copy; it keeps the memory alive, also after `close`.

        Integers are as narrow as the column (int8 to int64), floats are float64, and so are floats and ints mixed.

        Raises
        ------
        TypeError
            What this is no column of numbers, or has None among them, or is a selection: the message says which. `take`
            copies those.

        Examples
        --------
        >>> import onecopy as oc
        >>> oc.share([{"id": 7}, {"id": 300}]).column("id").numpy()
        array([  7, 300], dtype=int16)
        """
        why = self._why_no_view()
        if why:
            raise TypeError(f"no view of this column: {why}")
        start, step, size = self._rows_range
        rows = range(start, start + step * size, step)
        whole: NDArray[Any] = self._rows_view()
        return whole[start : rows.stop if rows.stop >= 0 else None : step]

    def _why_no_view(self) -> str:
        schema = self.schema
        if schema.kind not in {"integer", "real", "number"}:
            return f"it holds {schema}, and numbers only lie side by side"
        if schema.nullable:
            return "it has None among its numbers; take() makes them NaN"
        if self._rows_places is not None:
            return "its rows were selected in an order of their own; take() copies them"
        return ""

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Any]:
        """Return several rows at once; the memory of the next row is prefetched while one is decoded.

        torch's fetcher calls this with the indices of a batch.
        """
        return self._rows_values(row_numbers(indices))

    # --- Arrow: the PyCapsule protocol, for whoever reads it (pyarrow, polars, DuckDB, datasets) -------------------

    def __arrow_c_schema__(self) -> object:
        return self._rows_arrow_schema()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, ...]:
        return self._rows_arrow_array()


def row_numbers(indices: Iterable[SupportsIndex]) -> NDArray[Any]:
    """Make int64 of anything that numbers rows: lists, arrays, tensors, ranges."""
    import numpy as np

    numbers = np.asarray(indices if hasattr(indices, "__array__") or hasattr(indices, "__len__") else list(indices))
    if numbers.size and numbers.dtype.kind not in "iu":
        raise TypeError(f"rows are numbered by integers, not {numbers.dtype}; np.flatnonzero turns a mask into numbers")
    if numbers.ndim != 1:
        raise TypeError(f"row numbers are a list, not an array of {numbers.ndim} dimensions")
    if numbers.dtype == np.uint64 and numbers.size and numbers.max() > np.iinfo(np.int64).max:
        raise IndexError("list index out of range")
    return np.ascontiguousarray(numbers, np.int64)


def wrapper_of(out: Out) -> Any:
    """Return the function that every array is passed to; None for NumPy arrays."""
    if out == "numpy":
        return None
    if out == "torch":
        import torch

        return torch.from_numpy
    raise ValueError(f"out is 'numpy' or 'torch', not {out!r}")
