"""`Table`: a list whose rows are all dicts, with access by column.

    anns = oc.share(lambda: load_annotations(), key=...)     # a Table
    anns.columns, print(anns.schema)
    anns.column("area").numpy()                    # the whole column, without a copy
    batch = anns.take([5, 3, 900], columns=["bbox", "category_id"], out="torch")
    pyarrow.table(anns), polars.DataFrame(anns)    # without a copy: see docs/howto/arrow.md

Rows may have different keys, and values of different types; `take` describes how they are converted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar

from onecopy.records.columnar import Out, Ragged, row_numbers, wrapper_of
from onecopy.records.rows import List

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Table"]

T = TypeVar("T", covariant=True)  # noqa: PLC0105


class Table(List[T]):
    """The rows of a records file that are all dicts with str keys: a `List` with columns.

    Created by `onecopy.share` and `onecopy.open_records`.

    Examples
    --------
    >>> import onecopy as oc
    >>> boxes = oc.share([{"id": 1, "box": [0.5, 2.5]}, {"id": 2, "box": []}, {"id": 3, "box": [4.0]}])
    >>> boxes.columns
    ('id', 'box')
    >>> boxes.take([2, 0])["box"]
    Ragged(values=array([4. , 0.5, 2.5]), offsets=array([0, 1, 3]))
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys of all rows, in the order of their first occurrence."""
        return tuple(self._rows_fields)

    def column(self, name: str) -> List[Any]:
        """Return one column as a List without a copy, a column of dicts as a Table; None for rows without the key.

        KeyError if no row has the key.

        Examples
        --------
        >>> import onecopy as oc
        >>> table = oc.share([{"id": 1, "at": {"x": 3}}, {"id": 2, "at": {"x": 4}}])
        >>> list(table.column("id")), table.column("at").column("x")[-1]
        ([1, 2], 4)
        """
        from onecopy.records.opening import list_of

        return list_of(self._rows_field(name), self._origin, (*self._fields, name))

    def take(
        self, indices: Iterable[SupportsIndex], columns: Iterable[str] | None = None, *, out: Out = "numpy"
    ) -> dict[str, Any]:
        """Copy rows into columns, in one call that creates no Python objects for numbers.

        Parameters
        ----------
        indices
            Row numbers in any order, with repetitions: a list, an array or a tensor; negative ones count from the end.
        columns
            Names of the columns; None: all.
        out
            "numpy", or "torch" for tensors on the memory of the arrays, made by ``torch.from_numpy``.

        Returns
        -------
        dict
            One entry per column, in the order of `columns`. Its form depends on the type of the column (see `schema`),
            and so is the same for every batch:

            * integers: an array of the narrowest type that fits the column. If the column contains None anywhere:
              float64 with NaN for None, where integers beyond 2**53 are rounded, as in pyarrow and pandas.
            * floats, and floats mixed with ints: float64, NaN for None. Booleans without None: bool.
            * lists and tuples of these, of any length: ``Ragged(values, offsets)``; None becomes an empty list. Lists
              of lists: a Ragged whose values are a Ragged. One-dimensional arrays: a Ragged of their dtype.
            * dicts, and tuples with one type per element, without None and not empty: a dict or a tuple of columns.
            * any other type: a list of Python values: text, bytes, None, booleans with None, integers beyond 64 bits,
              dates and other objects, arrays of several dimensions, values of several types.

            A key that is missing in a row counts as None.

        Raises
        ------
        KeyError
            There is no such column.
        IndexError
            A row number is out of range.

        Examples
        --------
        >>> import onecopy as oc
        >>> table = oc.share([{"id": i, "label": "ab"[i % 2], "score": i / 2 or None} for i in range(1000)])
        >>> batch = table.take([0, 999, -1])
        >>> batch["id"], batch["score"], batch["label"]
        (array([  0, 999, 999], dtype=int16), array([  nan, 499.5, 499.5]), ['a', 'b', 'b'])
        """
        if isinstance(columns, str):
            raise TypeError(f"columns must be a list of names: [{columns!r}]")
        names = None if columns is None else list(columns)
        return self._rows_take_columns(row_numbers(indices), names, ragged=Ragged, wrap=wrapper_of(out))

    def rows(self, indices: Iterable[SupportsIndex]) -> list[T]:
        """Return several rows as a list of dicts, prefetching their memory; the same as ``__getitems__``."""
        return self.__getitems__(indices)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows_arrow_stream()

    def to_arrow(self, *, unions: Literal["dense", "struct"] = "dense") -> Any:
        """Return the table as a ``pyarrow.Table`` on the same memory, without a copy; needs pyarrow.

        Other libraries accept the Table itself: ``polars.DataFrame(table)``, ``duckdb.sql("select ... from rows")``.
        The arrays keep the memory mapped. Selections, and slices with a step, are copied. All offsets and strings are
        validated once, because consumers of Arrow trust them. docs/howto/arrow.md lists the Arrow type of each type.

        Parameters
        ----------
        unions
            The type of columns with values of several types. "dense": a dense union on the same memory, which datasets
            and polars cannot read. "struct": a struct with one field per type (``int``, ``string``, ``list``,
            ``struct``, ...), of which only the field of the value's type is not null; these columns are copied.

        Raises
        ------
        FormatError
            The file is damaged.

        Examples
        --------
        >>> import onecopy as oc
        >>> rows = oc.share([{"area": [0.5, 2.0]}, {"area": {"counts": [3]}}])
        >>> rows.to_arrow(unions="struct")["area"].to_pylist()
        [{'list': [0.5, 2.0], 'struct': None}, {'list': None, 'struct': {'counts': [3]}}]
        """
        import pyarrow as pa

        if unions not in ("dense", "struct"):
            raise ValueError(f"unions must be 'dense' or 'struct', not {unions!r}")
        table = pa.table(self)
        if unions == "dense":
            return table
        from onecopy.records._arrow_unions import unions_as_structs

        return unions_as_structs(table)
