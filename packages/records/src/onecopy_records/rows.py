"""`List`, `Table` and `Dict`: read-only rows of Python values in a mapped file, shared by all processes.

    data = oc.share(lambda: load_annotations(), key=oc.file_key("annotations.json"))
    data[7]              # a new Python object
    data[::2], data.select([5, 3, 5]), data.concat(more)     # no copies
    data.lazy[7].bbox    # decodes only this field; numbers are viewed in place

    data.take([5, 3, 900], columns=["bbox", "area"], out="torch")    # of a Table, whose rows are all dicts
    data.column("area").numpy()                                      # the whole column, without a copy

    boxes = oc.share(lambda: {name: box_of(name) for name in names}, key=...)    # a Dict; the file contains its index
    boxes["a.jpg"], boxes.select(train)

Opening a file builds nothing and reads no data. A pickled List contains only the path and the identity of its file
(less than 200 bytes), so passing it to DataLoader workers and other processes is cheap with any start method. Keys of a
Dict are str, bytes, int, float, bool, None, and tuples of these.

When random rows of a mapped file are read one by one, most of the time is spent on cache misses. `take` reads all rows
of a batch in one call of the compiled module, which prefetches them, creates no Python objects for numbers, and
releases the GIL.

**Threads.** All methods may be called from any thread.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
import os
import reprlib
from array import array
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, SupportsIndex, TypeVar, overload

from onecopy import _core, arrays
from onecopy.base.text import size
from onecopy.errors import FormatError, Kind
from onecopy.files.mapping import Closeable, absolute
from onecopy.store.location import resolve
from onecopy_records.schema import Ragged, Schema, schema_of

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

    from onecopy.arrays import VerifyReport
    from onecopy.arrays.file import OneFile
    from onecopy.files.mapping import Identity
    from onecopy.files.page_cache import EvictReport, PinReport, Residency, WarmJob, WarmReport
    from onecopy.store import Artefact

    Base = Sequence
else:  # the compiled base class has its own metaclass, so List is registered as a Sequence below
    Base = Generic


Out = Literal["numpy", "torch"]
K = TypeVar("K")
T = TypeVar("T", covariant=True)  # noqa: PLC0105
V = TypeVar("V", covariant=True)  # noqa: PLC0105


_ADVICE = "shared data is read-only: change it before sharing, or change a copy made with list(data) or dict(data)"


class Origin:
    """An open records file, which all lists and views of it share.

    `core` is the compiled module's file, which suffices for reading rows; `onecopy.arrays` is loaded on demand.
    `trusted` is True for files that this job wrote for itself; only in these files are pickled values unpickled.
    """

    def __init__(self, core: _core.ArrayFile, given: str, source: _core.RecordSource, *, trusted: bool) -> None:
        self.core = core
        self.given = given
        self.source = source
        self.trusted = trusted

    @functools.cached_property
    def file(self) -> OneFile:
        """The file as named arrays, created on first use."""
        return arrays.OneFile.of_compiled(self.core, self.given)

    def path(self) -> str:
        """Return a path that other processes can open while this process has the file open."""
        if not self.given.startswith("/proc/"):
            return absolute(self.given)
        return f"/proc/{os.getpid()}/fd/{self.core.mapping.fileno()}"

    def handle(self, rows: tuple[int, int, int] | bytes | None, fields: tuple[str | int, ...] = ()) -> tuple[Any, ...]:
        """Return the arguments of `onecopy_records.rows.attach` that open these rows in another process."""
        handle = (self.path(), self.core.mapping.identity, rows)
        return (*handle, fields, self.trusted) if fields or self.trusted else handle


class Backed(Closeable):
    """Base class of lists and dicts of records, with access to their file, and errors with advice on changing data."""

    _origin: Origin
    report: Artefact | None = None
    """The artefact that `onecopy.share` found or built, or None for data without a key."""

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            is_method = hasattr(list, name) or hasattr(dict, name)
            raise AttributeError(f"{text}: {_ADVICE}" if is_method else text, name=name, obj=self)

        def __setitem__(self, index: Any, value: Any) -> None:
            raise TypeError(f"{type(self).__name__!r} object does not support item assignment: {_ADVICE}")

        def __delitem__(self, index: Any) -> None:
            raise TypeError(f"{type(self).__name__!r} object does not support item deletion: {_ADVICE}")

    @property
    def path(self) -> str:
        """Path of the file. Without a key, it is in /proc, and valid only while this process has the file open."""
        return self._origin.path()

    @property
    def nbytes(self) -> int:
        """Size in bytes of the values in the whole file, of which the machine has a single copy."""
        return self._origin.source.payload

    @property
    def file(self) -> OneFile:
        """The file as named arrays, which can be individually warmed, pinned and verified."""
        return self._origin.file

    def warm(self, **options: Any) -> WarmReport | WarmJob:
        """Read the file into memory at the speed of the device; see `onecopy.warm`."""
        done: WarmReport | WarmJob = self._origin.file.warm(**options)
        return done

    def evict(self) -> EvictReport:
        """Drop the file from memory; see `onecopy.evict`."""
        return self._origin.file.evict()

    def pin(self) -> PinReport:
        """Lock the file in memory; see `onecopy.files.pin`."""
        return self._origin.file.pin()

    def residency(self) -> Residency:
        """Report how much of the file is in memory; see `onecopy.residency`."""
        return self._origin.file.residency()

    def verify(self, **options: Any) -> VerifyReport:
        """Compare the file with its checksums; see `onecopy.ArrayFile.verify`."""
        return self._origin.file.verify(**options)


class Joined(Base[T]):
    """Base class of `List` and `Chain`: concatenation, and comparison with lists row by row."""

    def concat(self, *others: Sequence[T]) -> Chain[T]:
        """Return this sequence followed by others, as a Chain, which copies no rows. ``a + b`` does the same."""
        return Chain(self, *others)

    def __add__(self, other: Sequence[T]) -> Chain[T]:
        is_sequence = isinstance(other, Sequence) and not isinstance(other, (str, bytes))
        return self.concat(other) if is_sequence else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (List, Chain, list)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # like list


class List(_core.Rows, Backed, Joined[T]):
    """The rows of a records file as a read-only sequence; created by `onecopy.share` and `onecopy.open_records`.

    ``data[i]`` decodes row i into a new Python object that equals the original and has the same types. A slice is a
    List on the same memory, created in constant time. ``data.lazy[i]`` is a view that decodes only accessed fields.
    An integer array or a boolean mask selects rows, as `select` does; a tensor with one element is an index.

    Examples
    --------
    >>> import onecopy as oc
    >>> data = oc.share([{"id": 1, "box": [0.5, 2]}, {"id": 2, "box": []}])
    >>> data[0]
    {'id': 1, 'box': [0.5, 2]}
    >>> data[::-1][0]["id"], data.select([1, 1]) == [data[1], data[1]]
    (2, True)
    >>> data.lazy[0].box
    array([0.5, 2. ])
    """

    def __init__(
        self, rows: _core.Rows | _core.RecordSource, origin: Origin, fields: tuple[str | int, ...] = ()
    ) -> None:
        super().__init__(rows)
        self._origin = origin
        self._fields = fields  # names of nested fields, from the rows of the file to these rows

    def _derive(self, rows: _core.Rows) -> Self:
        return type(self)(rows, self._origin, self._fields)

    # --- sequence -------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:  # the compiled module defines it

        @overload  # type: ignore[override]  # an array is SupportsIndex, too
        def __getitem__(self, index: slice | NDArray[Any]) -> Self: ...
        @overload
        def __getitem__(self, index: SupportsIndex) -> T: ...
        def __getitem__(self, index: Any) -> Any: ...

    def _other_index(self, index: Any) -> Self:
        if hasattr(index, "__array__"):
            return self.select(numbers_in(index, len(self)))
        if not isinstance(index, slice):
            raise TypeError(f"row indices must be integers or slices, not {type(index).__name__}; see select()")
        rows = range(*index.indices(len(self)))
        step = rows.step if len(rows) > 1 else 1  # the step of fewer rows may exceed 64 bits
        return self._derive(self._rows_slice(rows.start, step, len(rows)))

    def __iter__(self) -> Iterator[T]:
        return self._rows_iter(backwards=False)

    def __reversed__(self) -> Iterator[T]:
        return self._rows_iter(backwards=True)

    def _different(self) -> Self:
        """Return all rows, or only the first one if their type implies that all rows are equal."""
        return self[:1] if self._rows_alike else self

    def __contains__(self, value: object) -> bool:
        return any(row is value or row == value for row in self._different())

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the index of the first row that equals `value`. Raise ValueError if no row does."""
        first, last, _ = slice(start, stop).indices(len(self))
        for i, row in enumerate(self[first:last]._different()):
            if row == value:
                return first + i
        raise ValueError(f"{reprlib.repr(value)} is not in the list")

    def count(self, value: Any) -> int:
        """Return the number of rows that equal `value`."""
        found = sum(1 for row in self._different() if row == value)
        return found * len(self) if self._rows_alike else found

    def select(self, indices: Iterable[SupportsIndex]) -> Self:
        """Return some rows, in any order and with repetitions, as a List that takes 8 bytes per index, without copying.

        Negative indices count from the end.

        Raises
        ------
        IndexError
            An index is out of range.

        Examples
        --------
        >>> import onecopy as oc
        >>> list(oc.share(["a", "b", "c"]).select([2, 0, -1]))
        ['c', 'a', 'c']
        """
        return self._derive(self._rows_select([int(i) for i in indices]))

    # --- columns --------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The type of the rows. When printed, it has one line per field."""
        return schema_of(self._rows_type)

    def numpy(self) -> NDArray[Any]:
        """Return a column of numbers as a read-only array, without copying. The array keeps the memory mapped.

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
        schema, cannot = self.schema, "cannot view this column as an array"
        if schema.kind not in {"integer", "real", "number"}:
            raise TypeError(f"{cannot}: its type is {schema}, and only numbers are stored contiguously")
        if schema.nullable:
            raise TypeError(f"{cannot}: it contains None; take() converts None to NaN")
        if self._rows_places is not None:
            raise TypeError(f"{cannot}: its rows are a selection; take() copies them")
        start, step, count = self._rows_range
        stop = start + step * count
        whole: NDArray[Any] = self._rows_view()
        return whole[start : stop if stop >= 0 else None : step]

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Any]:
        """Return several rows as a list. While a row is decoded, the memory of the next one is prefetched.

        The fetcher of ``torch.utils.data.DataLoader`` calls this method with the indices of a batch.
        """
        return self._rows_values(row_numbers(indices))

    # --- Arrow PyCapsule interface, for pyarrow, polars, DuckDB, datasets ------------------------------------------

    def __arrow_c_schema__(self) -> object:
        return self._rows_arrow_schema()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, ...]:
        return self._rows_arrow_array()

    # --- the file -------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        name = type(self).__name__
        if self.closed:
            return f"<onecopy.{name}, closed>"
        start = _start(map(_SHORT.repr, self), len(self), "[]")
        return f"<onecopy.{name} of {len(self):,} rows in {size(self.nbytes)}, {self.path}: {start}>"

    def close(self) -> None:
        """Release the file; slices and views made from this list stay valid."""
        self._rows_close()

    def __reduce__(self) -> tuple[Any, ...]:
        places = self._rows_places
        rows = self._rows_range if places is None else array("q", places).tobytes()
        return attach, self._origin.handle(rows, self._fields)


Sequence.register(List)


class Chain(Joined[T], Sequence[T]):
    """Concatenated sequences, or a selection of their rows. It only refers to the parts, and copies no rows."""

    def __init__(self, *parts: Sequence[T], rows: Sequence[int] | None = None) -> None:
        self._parts = [part for part in parts if len(part)]
        self._ends = list(itertools.accumulate(len(part) for part in self._parts))
        self._rows = range(self._ends[-1] if self._ends else 0) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload  # type: ignore[override]  # an array is SupportsIndex, too
    def __getitem__(self, index: slice | NDArray[Any]) -> Chain[T]: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Chain(*self._parts, rows=self._rows[index])
        if getattr(index, "shape", None):
            return self.select(numbers_in(index, len(self)))
        row = self._rows[operator.index(index)]
        part = bisect.bisect_right(self._ends, row)
        return self._parts[part][row - self._ends[part]]

    def select(self, indices: Iterable[SupportsIndex]) -> Chain[T]:
        """Return selected rows, in any order and possibly repeated, as a Chain that takes 8 bytes per index."""
        return Chain(*self._parts, rows=array("q", (self._rows[operator.index(i)] for i in indices)))

    def __repr__(self) -> str:
        start = _start(map(_SHORT.repr, self), len(self), "[]")
        return f"<onecopy.Chain of {len(self):,} rows in {len(self._parts)} parts: {start}>"


class _Short(reprlib.Repr):
    """A `reprlib.Repr` that does not sort the keys of dicts."""

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return the first entries of a dict as text."""
        if not x:
            return "{}"
        if level <= 0:
            return "{...}"
        first = itertools.islice(x.items(), self.maxdict)
        shown = [f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}" for key, value in first]
        return "{" + ", ".join(shown + ["..."] * (len(x) > self.maxdict)) + "}"


_SHORT = _Short()


def _start(shown: Iterator[str], count: int, brackets: str) -> str:
    """Return the first two of `count` texts in brackets, or an error message if a row cannot be decoded."""
    try:
        first = list(itertools.islice(shown, 2))
    except FormatError as error:
        return f"<{error}>"
    return brackets[0] + ", ".join(first + ["..."] * (count > len(first))) + brackets[1]


def numbers_in(index: Any, count: int) -> NDArray[Any]:
    """Return the row numbers in an integer array or a boolean mask for `count` rows."""
    import numpy as np

    mask = np.asarray(index)
    if mask.dtype != bool:
        return row_numbers(mask)
    if mask.shape != (count,):
        raise IndexError(f"the mask has the shape {mask.shape}, but there are {count} rows")
    return np.flatnonzero(mask)


def row_numbers(indices: Iterable[SupportsIndex]) -> NDArray[Any]:
    """Convert row numbers, given as a list, array, tensor or range, to a contiguous int64 array."""
    import numpy as np

    numbers = np.asarray(indices if hasattr(indices, "__array__") or hasattr(indices, "__len__") else list(indices))
    if numbers.size and numbers.dtype.kind not in "iu":
        raise TypeError(f"row numbers must be integers, not {numbers.dtype}: np.flatnonzero converts a mask")
    if numbers.ndim != 1:
        raise TypeError(f"row numbers must be one-dimensional, not {numbers.ndim}-dimensional")
    if numbers.dtype == np.uint64 and numbers.size and numbers.max() > np.iinfo(np.int64).max:
        raise IndexError("list index out of range")
    return np.ascontiguousarray(numbers, np.int64)


class Table(List[T]):
    """A `List` with columns: the rows of a records file in which all rows are dicts with str keys.

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
        """Return a column as a List, or a Table if it consists of dicts, without copying. Missing keys become None.

        Raise KeyError if no row contains the key.

        Examples
        --------
        >>> import onecopy as oc
        >>> table = oc.share([{"id": 1, "at": {"x": 3}}, {"id": 2, "at": {"x": 4}}])
        >>> list(table.column("id")), table.column("at").column("x")[-1]
        ([1, 2], 4)
        """
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
            Names of the columns; None: all columns.
        out
            "numpy", or "torch" for tensors on the memory of the arrays, made by ``torch.from_numpy``.

        Returns
        -------
        dict
            One entry per column, in the order of `columns`. Its form depends only on the type of the column (see
            `schema`), so it is the same for every batch:

            * integers: an array of the narrowest type that fits the column. If the column contains None anywhere:
              float64 with NaN for None, where integers beyond 2**53 are rounded, as in pyarrow and pandas.
            * floats, and floats mixed with ints: float64, NaN for None. Booleans without None: bool.
            * lists and tuples of these, of any length: ``Ragged(values, offsets)``; None becomes an empty list. Lists
              of lists: a Ragged whose values are a Ragged. One-dimensional arrays: a Ragged of their dtype.
            * dicts, and tuples with one type per element, if they are not empty and none is None: a dict or a tuple of
              columns.
            * any other type (text, bytes, None, booleans with None, integers beyond 64 bits, dates and other objects,
              arrays of several dimensions, values of several types): a list of Python values.

            A key that is missing in a row counts as None.

        Raises
        ------
        KeyError
            A column does not exist.
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
            raise TypeError(f"columns must be a list, not one name: pass [{columns!r}]")
        if out not in ("numpy", "torch"):
            raise ValueError(f"out must be 'numpy' or 'torch', not {out!r}")
        wrap = import_module("torch").from_numpy if out == "torch" else None
        names = None if columns is None else list(columns)
        return self._rows_take_columns(row_numbers(indices), names, ragged=Ragged, wrap=wrap)

    def rows(self, indices: Iterable[SupportsIndex]) -> list[T]:
        """Return several rows as a list of dicts and prefetch their memory, like ``__getitems__``."""
        return self.__getitems__(indices)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows_arrow_stream()

    def to_arrow(self, *, unions: Literal["dense", "struct"] = "dense") -> Any:
        """Return the table as a ``pyarrow.Table`` on the same memory, without copying. This requires pyarrow.

        Other libraries accept the Table itself: ``polars.DataFrame(table)``, ``duckdb.sql("select ... from rows")``.
        The arrays keep the memory mapped. Selections, and slices with a step, are copied. All offsets and strings are
        validated once, because consumers of Arrow trust them. docs/howto/tables.md lists the Arrow type for each type.

        Parameters
        ----------
        unions
            The type of columns with values of several types. "dense": a dense union on the same memory, which datasets
            and polars cannot read. "struct": a struct with one field per type (``int``, ``string``, ``list``,
            ``struct``, ...), in which all fields except that of the value's type are null; these columns are copied.

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
        from onecopy_records._arrow_unions import unions_as_structs

        return unions_as_structs(table)


class Dict(_core.DictRows, Backed, Generic[K, V]):
    """The pairs of a records file as a read-only mapping; created by `onecopy.share` and `onecopy.open_records`.

    ``d[key]`` decodes the value into a new Python object. Keys are compared with ``==`` and ``hash``, as in a dict: 1,
    1.0 and True are the same key, and NaN is never found.

    Examples
    --------
    >>> import onecopy as oc
    >>> ages = oc.share({"Ada": 36, "Grace": 85})
    >>> ages["Ada"], ages.get("Alan"), "Grace" in ages, len(ages)
    (36, None, True, 2)
    >>> list(ages.items())
    [('Ada', 36), ('Grace', 85)]
    """

    def __init__(self, source: _core.RecordSource, origin: Origin) -> None:
        super().__init__(source)
        self._origin = origin

    if TYPE_CHECKING:  # the compiled module defines it

        def __getitem__(self, key: Any) -> V: ...

    def __iter__(self) -> Iterator[K]:
        return iter(self._part(0))

    def keys(self) -> KeysView[K]:
        """Return the keys, in the order in which they were written."""
        return KeysView(self)

    def values(self) -> List[V]:
        """Return the values in key order, as a List, or as a Table if all values are dicts, without copying."""
        return self._part(1)

    def items(self) -> ItemsView[K, V]:
        """Return the pairs (key, value), in the order in which they were written."""
        return _Items(self)

    def select(self, keys: Iterable[K]) -> List[V]:
        """Return the values for some keys as a List or Table that takes 8 bytes per key and copies no values.

        Raises
        ------
        KeyError
            One of the keys is missing.

        Examples
        --------
        >>> import onecopy as oc
        >>> sizes = oc.share({"a": {"w": 3}, "b": {"w": 4}, "c": {"w": 5}})
        >>> sizes.select(["c", "a"]).take([0, 1])["w"]
        array([5, 3], dtype=int8)
        """
        return self._part(1).select(self._dict_rows(keys))

    def _part(self, position: int) -> List[Any]:
        return list_of(self._dict_part(position), self._origin, (position,))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        missing = object()
        return len(self) == len(other) and all(other.get(key, missing) == value for key, value in self.items())

    __hash__ = None  # type: ignore[assignment]  # like dict

    def __repr__(self) -> str:
        if self.closed:
            return "<onecopy.Dict, closed>"
        pairs = (f"{_SHORT.repr(key)}: {_SHORT.repr(value)}" for key, value in self.items())
        about = f"{len(self):,} keys in {size(self.nbytes)}, {self._origin.given}"
        return f"<onecopy.Dict of {about}: {_start(pairs, len(self), '{}')}>"

    def close(self) -> None:
        """Release the file; lists and views made from this dict stay valid."""
        self._dict_close()

    def __reduce__(self) -> tuple[Any, ...]:
        return attach, self._origin.handle(None)


Mapping.register(Dict)  # like List


class _Items(ItemsView[K, V]):
    """An items view that iterates without a lookup per key."""

    _mapping: Dict[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return zip(self._mapping, self._mapping.values(), strict=True)


KindT = TypeVar("KindT", bound="List[Any] | Dict[Any, Any]")


@overload
def open_records(path: str | os.PathLike[str] | Artefact) -> List[Any] | Dict[Any, Any]: ...


@overload
def open_records(path: str | os.PathLike[str] | Artefact, kind: type[KindT]) -> KindT: ...


def open_records(path: str | os.PathLike[str] | Artefact, kind: type[Any] | None = None) -> Any:
    """Map a records file, and return a List, a Table (a List whose rows are all dicts) or a Dict.

    Opening reads no data and runs no code from the file; `onecopy_records.types` describes how values of classes are
    read.

    Parameters
    ----------
    path
        Path of a file that `onecopy.share`, `onecopy.records.save` or a `Writer` wrote, or an `Artefact` of a `Store`.
    kind
        The expected class, `List`, `Table` or `Dict`, which is also the static type of the result. None: any.

    Raises
    ------
    FormatError
        The file contains no records, or records of a different kind, or its buffers do not match its schema.
    OSError
        The file cannot be opened or mapped: FileNotFoundError, PermissionError, ...

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "names.oc")
    >>> records.save(path, ["Ada", "Grace"])
    >>> oc.open_records(path, oc.records.List)[1]
    'Grace'
    """
    given, handle = resolve(path)
    opened = of_path(given, trusted=False, handle=handle)
    if kind is not None and not isinstance(opened, kind):
        opened.close()
        found = f"expected a {kind.__name__} of records, found a {type(opened).__name__}"
        raise FormatError(found, Kind.NOT_THIS_FORMAT, path=given)
    return opened


_CLASSES: dict[str, type[Any]] = {"list": List, "table": Table, "dict": Dict}


def of_path(path: str, *, trusted: bool, handle: _core.FileHandle | None = None) -> Any:
    """Open a file, by its path or its open `handle`, as a List, a Table or a Dict. See `Origin` for `trusted`."""
    core, source, kind = _core.open_rows(path, _maker_of, trusted=trusted, handle=handle)
    return _CLASSES[kind](source, Origin(core, path, source, trusted=trusted))


def of_descriptor(descriptor: int, *, trusted: bool) -> Any:
    """Open an unnamed file through its descriptor, and close the descriptor, which the mapping does not need."""
    try:
        return of_path(f"/proc/self/fd/{descriptor}", trusted=trusted)
    finally:
        os.close(descriptor)


def list_of(rows: _core.Rows, origin: Origin, fields: tuple[str | int, ...] = ()) -> List[Any]:
    """Return rows as a Table if all of them are dicts with str keys, or otherwise as a List."""
    return (Table if rows._rows_are_dicts else List)(rows, origin, fields)


def _maker_of(name: str, kinds: tuple[str, ...], *, pickles: bool = False) -> Any:
    from onecopy_records import types  # here: it imports many modules, and few rows need it

    return types.maker_of(name, kinds, pickles=pickles)


def attach(
    path: str,
    identity: Identity,
    rows: tuple[int, int, int] | bytes | None,
    fields: tuple[str | int, ...] = (),
    trusted: bool = False,
) -> List[Any] | Dict[Any, Any]:
    """Open the rows of a pickled List, Table or Dict. Raise FileChanged or FileNotFoundError if their file is gone."""
    try:
        core, source, kind = _core.open_rows(path, _maker_of, trusted=trusted, expected=identity)
    except FileNotFoundError as error:
        if not path.startswith("/proc/"):
            raise
        gone = f"process {path.split('/')[2]}, which shared the data, has ended or has closed it"
        raise FileNotFoundError(error.errno, gone, path) from None
    origin = Origin(core, path, source, trusted=trusted)
    if rows is None:
        whole: List[Any] | Dict[Any, Any] = _CLASSES[kind](source, origin)
        return whole
    part = _core.Rows(source) if isinstance(rows, bytes) else _core.Rows(source, *rows)
    for field in fields:
        part = part._rows_field(field)
    return list_of(part._rows_select(array("q", rows)) if isinstance(rows, bytes) else part, origin, fields)
