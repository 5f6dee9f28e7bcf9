"""A list whose rows are all dicts: a table, with columns.

    anns = oc.share(lambda: load_annotations(), key=...)     # a Table
    anns.columns, print(anns.schema)
    anns.column("area").numpy()                    # the whole column in place, no copy
    batch = anns.take([5, 3, 900], columns=["bbox", "category_id"], out="torch")
    pyarrow.table(anns), polars.DataFrame(anns)    # no copy: see docs/howto/arrow.md

Rows need not have the same keys, nor values of one type; see `take` for what becomes of that.
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
    """Rows of a records file that are dicts with str keys; made by `onecopy.share` and `onecopy.open`.

    Everything a `List` does, and columns.

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
        """The keys of all rows, in the order in which they first came."""
        return tuple(self._rows_fields)

    def column(self, name: str) -> List[Any]:
        """Return one column as a list: a view, no copy; rows without the key have None.

        A column of dicts is a Table again. KeyError when no row has that key.

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
        """Gather rows into columns of the caller's own, in one call without Python objects for numbers.

        Parameters
        ----------
        indices
            Row numbers in any order and as often as wanted; negative ones count from the end. A list, an array, a
            tensor.
        columns
            Their names; None: all.
        out
            "numpy", or "torch": tensors on the same memory, by ``torch.from_numpy``.

        Returns
        -------
        dict
            An entry for each column, in the order asked for. What becomes of it follows from the type of the column
            (see `schema`), and is the same for every batch:

            * integers: an array as narrow as the column. With None among them anywhere in the column: float64, NaN for
              None, and beyond 2**53 rounded, as pyarrow and pandas have it.
            * floats, and floats and ints mixed: float64, NaN for None. Booleans without None: bool.
            * lists and tuples of those, of any length: ``Ragged(values, offsets)``; None has no items, like an empty
              list. Lists of lists: a Ragged whose values are one. Arrays of one dimension: a Ragged of their own dtype.
            * dicts and tuples with a type for each place, where none is None, and some place: a dict, a tuple of
              columns.
            * anything else: a list of Python values, as the rows have them: text, bytes, None or booleans with None,
              big ints, dates and other objects, arrays of several dimensions, values of several types.

            A key that a row does not have counts as None.

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
            raise TypeError(f"columns is a list of names: [{columns!r}]")
        names = None if columns is None else list(columns)
        return self._rows_take_columns(row_numbers(indices), names, Ragged, wrapper_of(out))

    def rows(self, indices: Iterable[SupportsIndex]) -> list[T]:
        """Return several rows as dicts, faster than one by one; the same as ``__getitems__``, which torch calls."""
        return self.__getitems__(indices)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows_arrow_stream()

    def to_arrow(self, *, unions: Literal["dense", "struct"] = "dense") -> Any:
        """Return the table as a ``pyarrow.Table`` on the same memory: no copy; needs pyarrow.

        Other libraries take the Table itself: ``polars.DataFrame(table)``, ``duckdb.sql("select ... from rows")``. The
        arrays keep the memory alive. Rows that were selected or sliced with a step are copied. Every offset and text is
        checked once, because Arrow's consumers trust them. docs/howto/arrow.md says what becomes of each type.

        Parameters
        ----------
        unions
            What becomes of a column whose values have several types. "dense": a dense union, on the same memory, which
            datasets and polars do not read. "struct": a struct with a field for each type (``int``, ``string``,
            ``list``, ``struct``, ...), of which only the value's own is not null; these columns are copied.

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
