"""A list of Python values in a mapped file: one copy for every process, however it was started.

    data = oc.share(lambda: load_annotations(), key=oc.file_key("annotations.json"))
    data[7]              # an ordinary object of the caller's own
    data[::2], data.select([5, 3, 5]), data.concat(more)     # no copies
    data.lazy[7].bbox    # decodes this field only; numbers are viewed in place

A `List` cannot be written to. In a pickle it is the path and the identity of its file, under 200 bytes, so it travels
to DataLoader workers and other processes for nothing, whatever the start method. Threads: any.
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
else:  # of the compiled half's metaclass; registered as a Sequence below
    Base = Generic

__all__ = ["Chain", "List"]

T = TypeVar("T", covariant=True)  # noqa: PLC0105


class Joined(Base[T]):
    """What lists and chains have in common: they are put together, and compared with lists, row by row."""

    def concat(self, *others: Sequence[T]) -> Chain[T]:
        """Put other sequences behind this one, without copying any; ``a + b`` is the same."""
        return Chain(self, *others)

    def __add__(self, other: Sequence[T]) -> Chain[T]:
        return self.concat(other) if _is_sequence(other) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (List, Chain, list)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as lists


class List(Columnar, Backed, Joined[T]):
    """Rows of a records file as a read-only sequence; made by `onecopy.share` and `onecopy.open`.

    ``data[i]`` decodes row i into an ordinary private object, equal to the one that went in and of the same types. A
    slice is another List on the same memory, made in constant time. ``data.lazy[i]`` is a view that decodes only what
    is touched of it.

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
        self._fields = fields  # which field of which field of the file's rows these are

    def _derive(self, rows: _core.Rows) -> Self:
        return type(self)(rows, self._origin, self._fields)

    # --- sequence -------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:  # the compiled half has it

        @overload
        def __getitem__(self, index: SupportsIndex) -> T: ...
        @overload
        def __getitem__(self, index: slice) -> Self: ...
        def __getitem__(self, index: Any) -> Any: ...

    def _other_index(self, index: Any) -> Self:
        if not isinstance(index, slice):
            raise TypeError(f"rows are numbered by integers or slices, not {type(index).__name__}; see select()")
        rows = range(*index.indices(len(self)))
        step = rows.step if len(rows) > 1 else 1  # which may be any number otherwise
        return self._derive(self._rows_slice(rows.start, step, len(rows)))

    def __iter__(self) -> Iterator[T]:
        return self._rows_iter(False)

    def __reversed__(self) -> Iterator[T]:
        return self._rows_iter(True)

    def _different(self) -> Self:
        """Return one row where no bytes of the file could differ between rows; else all rows."""
        return self[:1] if self._rows_alike else self

    def __contains__(self, value: object) -> bool:
        return any(row is value or row == value for row in self._different())

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Find the first row that equals `value`; ValueError when there is none."""
        first, last, _ = slice(start, stop).indices(len(self))
        for i, row in enumerate(self[first:last]._different()):
            if row == value:
                return first + i
        raise ValueError(f"{reprlib.repr(value)} is not in the list")

    def count(self, value: Any) -> int:
        """Count the rows that equal `value`."""
        found = sum(1 for row in self._different() if row == value)
        return found * len(self) if self._rows_alike else found

    def select(self, indices: Iterable[SupportsIndex]) -> Self:
        """Take some rows, in any order and as often as wanted: no row is copied, 8 bytes are kept for each index.

        Raises
        ------
        IndexError
            An index is out of range; negative ones count from the end.

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
        """Let go of the file: of this list. Slices, and views that came from it, live on."""
        self._rows_close()

    def __reduce__(self) -> tuple[Any, ...]:
        from onecopy.records.opening import attach  # which knows all classes, this one too

        places = self._rows_places
        rows = self._rows_range if places is None else array("q", places).tobytes()
        return attach, self._origin.handle(rows, self._fields)


Sequence.register(List)


class Chain(Joined[T], Sequence[T]):
    """Several sequences one after the other, or some of their rows: keeps the parts, copies nothing."""

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
        """Take some rows, in any order and as often as wanted."""
        return Chain(*self._parts, rows=array("q", (self._rows[operator.index(i)] for i in indices)))

    def __getitems__(self, indices: Sequence[int]) -> list[T]:
        """Return several rows at once; torch's fetcher calls it."""
        return [self[i] for i in indices]

    def __repr__(self) -> str:
        return f"<onecopy.Chain of {len(self):,} rows in {len(self._parts)} parts: {_start(self)}>"


class _Short(reprlib.Repr):
    """Shortens as `reprlib.repr` does, which sorts the keys of dicts: here they stay in the order of the row."""

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Show the first entries."""
        if not x:
            return "{}"
        if level <= 0:
            return "{...}"
        first = itertools.islice(x.items(), self.maxdict)
        shown = [f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}" for key, value in first]
        return "{" + ", ".join(shown + ["..."] * (len(x) > self.maxdict)) + "}"


SHORT = _Short()
"""What `repr` of rows shows them with."""


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _start(rows: Sequence[Any]) -> str:
    """Show the first rows, shortened; a row that cannot be made is no reason to raise here."""
    try:
        shown = [SHORT.repr(rows[i]) for i in range(min(len(rows), 2))]
    except FormatError as error:
        return f"<{error}>"
    return "[" + ", ".join(shown + ["..."] * (len(rows) > len(shown))) + "]"
