"""`List`: a read-only list of Python values in a mapped file, shared by all processes.

    data = oc.share(lambda: load_annotations(), key=oc.file_key("annotations.json"))
    data[7]              # a new Python object
    data[::2], data.select([5, 3, 5]), data.concat(more)     # no copies
    data.lazy[7].bbox    # decodes only this field; numbers are viewed in place

A pickled List contains the path and the identity of its file, less than 200 bytes, so it can be passed to DataLoader
workers and other processes cheaply with any start method.

**Threads.** All methods may be called from any thread.
"""

from __future__ import annotations

import bisect
import itertools
import operator
import reprlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, overload

from onecopy.errors import FormatError
from onecopy.records.backing import Backed
from onecopy.records.columnar import Columnar
from onecopy.text import size

if TYPE_CHECKING:
    from typing import Self

    from onecopy import _core
    from onecopy.records.backing import Origin

    Base = Sequence
else:  # the compiled base class has its own metaclass; registered as a Sequence below
    Base = Generic

__all__ = ["Chain", "List"]

T = TypeVar("T", covariant=True)  # noqa: PLC0105


class Joined(Base[T]):
    """Base class of `List` and `Chain`: concatenation, and comparison with lists row by row."""

    def concat(self, *others: Sequence[T]) -> Chain[T]:
        """Return this sequence followed by others, as a Chain that copies no rows; ``a + b`` is the same."""
        return Chain(self, *others)

    def __add__(self, other: Sequence[T]) -> Chain[T]:
        return self.concat(other) if _is_sequence(other) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (List, Chain, list)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # like list


class List(Columnar, Backed, Joined[T]):
    """The rows of a records file as a read-only sequence; created by `onecopy.share` and `onecopy.open_records`.

    ``data[i]`` decodes row i into a new Python object, equal to the original and of the same types. A slice is a List
    on the same memory, created in constant time. ``data.lazy[i]`` is a view that decodes only the fields that are read.

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

    def __init__(self, rows: _core.Rows, origin: Origin, fields: tuple[str | int, ...] = ()) -> None:
        super().__init__(rows)
        self._origin = origin
        self._fields = fields  # path of nested fields from the rows of the file to these rows

    def _derive(self, rows: _core.Rows) -> Self:
        return type(self)(rows, self._origin, self._fields)

    # --- sequence -------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:  # implemented in the compiled module

        @overload
        def __getitem__(self, index: SupportsIndex) -> T: ...
        @overload
        def __getitem__(self, index: slice) -> Self: ...
        def __getitem__(self, index: Any) -> Any: ...

    def _other_index(self, index: Any) -> Self:
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
        """Return the first row if the type of the rows makes all of them equal, else all rows."""
        return self[:1] if self._rows_alike else self

    def __contains__(self, value: object) -> bool:
        return any(row is value or row == value for row in self._different())

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the index of the first row that equals `value`; ValueError if there is none."""
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
        """Return some rows, in any order and with repetitions, as a List of 8 bytes per index, without copying a row.

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

    def __repr__(self) -> str:
        name = type(self).__name__
        if self.closed:
            return f"<onecopy.{name}, closed>"
        return f"<onecopy.{name} of {len(self):,} rows in {size(self.nbytes)}, {self.path}: {_start(self)}>"

    def close(self) -> None:
        """Release the file; slices and views made from this list stay valid."""
        self._rows_close()

    def __reduce__(self) -> tuple[Any, ...]:
        from onecopy.records.opening import attach  # here, because it imports this module

        places = self._rows_places
        rows = self._rows_range if places is None else array("q", places).tobytes()
        return attach, self._origin.handle(rows, self._fields)


Sequence.register(List)


class Chain(Joined[T], Sequence[T]):
    """Concatenated sequences, or a selection of their rows; refers to the parts and copies no rows."""

    def __init__(self, *parts: Sequence[T], rows: Sequence[int] | None = None) -> None:
        self._parts = [part for part in parts if len(part)]
        self._ends = list(itertools.accumulate(len(part) for part in self._parts))
        self._rows = range(self._ends[-1] if self._ends else 0) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Chain[T]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Chain(*self._parts, rows=self._rows[index])
        row = self._rows[operator.index(index)]
        part = bisect.bisect_right(self._ends, row)
        return self._parts[part][row - self._ends[part]]

    def select(self, indices: Iterable[SupportsIndex]) -> Chain[T]:
        """Return some rows, in any order and with repetitions, as a Chain that takes 8 bytes per index."""
        return Chain(*self._parts, rows=array("q", (self._rows[operator.index(i)] for i in indices)))

    def __getitems__(self, indices: Sequence[int]) -> list[T]:
        """Return several rows as a list; called by the fetcher of ``torch.utils.data.DataLoader``."""
        return [self[i] for i in indices]

    def __repr__(self) -> str:
        return f"<onecopy.Chain of {len(self):,} rows in {len(self._parts)} parts: {_start(self)}>"


class _Short(reprlib.Repr):
    """A `reprlib.Repr` that keeps the keys of dicts in their order, where the base class sorts them."""

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return the first entries of a dict as text."""
        if not x:
            return "{}"
        if level <= 0:
            return "{...}"
        first = itertools.islice(x.items(), self.maxdict)
        shown = [f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}" for key, value in first]
        return "{" + ", ".join(shown + ["..."] * (len(x) > self.maxdict)) + "}"


SHORT = _Short()
"""Formatter of values in the `repr` of lists and dicts."""


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _start(rows: Sequence[Any]) -> str:
    """Return the first rows as shortened text; the message of the error if a row cannot be decoded."""
    try:
        shown = [SHORT.repr(rows[i]) for i in range(min(len(rows), 2))]
    except FormatError as error:
        return f"<{error}>"
    return "[" + ", ".join(shown + ["..."] * (len(rows) > len(shown))) + "]"
