"""Access to rows by column: a whole column in place, or several rows at once.

The common base of `List`, `Table` and the columns of a table. Reading random rows of a mapped file is dominated by
cache misses, one after the other. `take` reads all rows of a batch in one call of the compiled module, which prefetches
them, creates no Python objects for numbers, and releases the GIL.
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
    """Concatenated lists of different lengths: list i is ``values[offsets[i] : offsets[i + 1]]``."""

    values: Any
    """Values of all lists: an array; a Ragged for lists of lists; a dict of columns for lists of dicts; a tuple of
    columns for lists of tuples."""
    offsets: Any
    """int64 array with one element more than there are lists; the first is 0."""


class Columnar(_core.Rows):
    """Rows that can be read by column."""

    @property
    def schema(self) -> Schema:
        """The type of the rows; printed, it has one line per field."""
        return schema_of(self._rows_type)

    def numpy(self) -> NDArray[Any]:
        """Return a column of numbers as a read-only array without a copy; the array keeps the memory mapped.

        Integers have the narrowest type that fits the column (int8 to int64); floats, and floats mixed with ints, are
        float64.

        Raises
        ------
        TypeError
            The rows are not all numbers, contain None, or were selected in arbitrary order; `take` copies such columns.

        Examples
        --------
        >>> import onecopy as oc
        >>> oc.share([{"id": 7}, {"id": 300}]).column("id").numpy()
        array([  7, 300], dtype=int16)
        """
        why = self._reason_against_view()
        if why:
            raise TypeError(f"cannot view this column as an array: {why}")
        start, step, size = self._rows_range
        rows = range(start, start + step * size, step)
        whole: NDArray[Any] = self._rows_view()
        return whole[start : rows.stop if rows.stop >= 0 else None : step]

    def _reason_against_view(self) -> str:
        schema = self.schema
        if schema.kind not in {"integer", "real", "number"}:
            return f"its type is {schema}, and only numbers are stored contiguously"
        if schema.nullable:
            return "it contains None; take() converts None to NaN"
        if self._rows_places is not None:
            return "its rows are a selection; take() copies them"
        return ""

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Any]:
        """Return several rows as a list, prefetching the memory of each row while the one before is decoded.

        The fetcher of ``torch.utils.data.DataLoader`` calls this with the indices of a batch.
        """
        return self._rows_values(row_numbers(indices))

    # --- Arrow PyCapsule interface, for pyarrow, polars, DuckDB, datasets ------------------------------------------

    def __arrow_c_schema__(self) -> object:
        return self._rows_arrow_schema()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, ...]:
        return self._rows_arrow_array()


def row_numbers(indices: Iterable[SupportsIndex]) -> NDArray[Any]:
    """Return row numbers given as a list, array, tensor or range as a contiguous int64 array."""
    import numpy as np

    numbers = np.asarray(indices if hasattr(indices, "__array__") or hasattr(indices, "__len__") else list(indices))
    if numbers.size and numbers.dtype.kind not in "iu":
        raise TypeError(f"row numbers must be integers, not {numbers.dtype}; np.flatnonzero converts a mask")
    if numbers.ndim != 1:
        raise TypeError(f"row numbers must be one-dimensional, not {numbers.ndim}-dimensional")
    if numbers.dtype == np.uint64 and numbers.size and numbers.max() > np.iinfo(np.int64).max:
        raise IndexError("list index out of range")
    return np.ascontiguousarray(numbers, np.int64)


def wrapper_of(out: Out) -> Any:
    """Return the function that converts every array to the type of `out`; None for "numpy"."""
    if out == "numpy":
        return None
    if out == "torch":
        import torch

        return torch.from_numpy
    raise ValueError(f"out must be 'numpy' or 'torch', not {out!r}")
