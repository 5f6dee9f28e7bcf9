"""The file behind lists and dicts of records (`Origin`, `Backed`), and the types and values of columns."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex

from onecopy.files import Closeable, absolute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from onecopy import _core
    from onecopy.arrays import VerifyReport
    from onecopy.arrays.file import OneFile
    from onecopy.page_cache import EvictReport, PinReport, Residency, WarmJob, WarmReport
    from onecopy.store import Artefact

__all__ = ["Backed", "Ragged", "Schema"]


class Schema(NamedTuple):
    """The type of the values at one position in the rows, with the types below it; printed, it has one line per field.

    Examples
    --------
    >>> import onecopy as oc
    >>> print(oc.share([{"id": 1, "box": [0.5, 2.5], "tag": None}, {"id": 2, "box": [], "tag": "b"}]).schema)
    id: int8
    box: list[float]
    tag: text | None
    """

    kind: str
    """One of: null, boolean, integer, bigint, real (floats), number (floats and ints), text, bytes, list, tuple (of any
    length), fixed (a tuple with one type per element), record (a dict with str keys), map (any other dict), array,
    extension (an object stored as a plain value), choice (values of several types)."""
    nullable: bool
    """Whether some values are None, or the key is missing in some rows."""
    width: int
    """Size of an integer in bytes, 1 to 8; 0 for other kinds."""
    name: str
    """Name of the type of an extension, or of the dtype of an array; empty for other kinds."""
    ndim: int
    """Number of dimensions of an array; 0 for other kinds."""
    fields: tuple[str, ...]
    """Keys of a record, in the order of `children`; empty for other kinds."""
    children: tuple[Schema, ...]
    """Types of the elements, fields or alternatives."""

    def __str__(self) -> str:
        return "\n".join(self._lines()) if self.kind == "record" and self.fields else self.line

    @property
    def line(self) -> str:
        """The type as one line of text, without the fields of dicts."""
        return f"{self._word()} | None" if self.nullable and self.kind != "null" else self._word()

    def field(self, name: str) -> Schema:
        """Return the type of a field of a record; KeyError if there is no such field."""
        if name not in self.fields:
            raise KeyError(name)
        return self.children[self.fields.index(name)]

    def _lines(self) -> list[str]:
        """Return one line per field of a record, each followed by the indented lines of its own fields."""
        lines = []
        for field, child in zip(self.fields, self.children, strict=True):
            lines.append(f"{field}: {child.line}")
            while child.kind in {"list", "tuple", "extension"}:
                child = child.children[0]  # noqa: PLW2901
            if child.kind == "record":
                lines += [f"  {line}" for line in child._lines()]
        return lines

    def _word(self) -> str:
        below = [child.line for child in self.children]
        if self.kind == "choice":
            return " | ".join(below)
        if self.kind == "tuple":
            return f"tuple[{below[0]}, ...]"
        words = {
            "null": "None",
            "boolean": "bool",
            "integer": f"int{8 * self.width}",
            "bigint": "int",
            "real": "float",
            "fixed": "tuple",
            "record": "dict",
            "map": "dict",
            "array": f"array[{self.name}, {self.ndim}d]",
            "extension": self.name,
        }
        word = words.get(self.kind, self.kind)
        return f"{word}[{', '.join(below)}]" if below and self.kind in {"list", "fixed", "map"} else word


def schema_of(parts: tuple[Any, ...]) -> Schema:
    """Return the schema for the nested tuples of the compiled module."""
    kind, nullable, width, name, ndim, fields, children = parts
    below = tuple(schema_of(child) for child in children)
    return Schema(kind, nullable, width if kind == "integer" else 0, name, ndim, tuple(fields), below)


Out = Literal["numpy", "torch"]


class Ragged(NamedTuple):
    """Concatenated lists of different lengths: list i is ``values[offsets[i] : offsets[i + 1]]``."""

    values: Any
    """Values of all lists: an array; a Ragged for lists of lists; a dict of columns for lists of dicts; a tuple of
    columns for lists of tuples."""
    offsets: Any
    """int64 array with one element more than there are lists; the first is 0."""


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


_ADVICE = "shared data is read-only: change it before it is shared, or change a copy, list(data) or dict(data)"


class Origin:
    """The open file of records, shared by all lists and views of it.

    `core` is the file of the compiled module, which is sufficient for reading rows; `onecopy.arrays` is loaded on
    demand. `trusted` is True for files that this job wrote for itself: their pickled values are unpickled.
    """

    def __init__(self, core: _core.ArrayFile, given: str, source: _core.RecordSource, *, trusted: bool) -> None:
        self.core = core
        self.given = given
        self.source = source
        self.trusted = trusted

    @functools.cached_property
    def file(self) -> OneFile:
        """The file as named arrays, created on first use."""
        from onecopy.arrays.file import OneFile

        return OneFile.of_compiled(self.core, self.given)

    def path(self) -> str:
        """Return a path by which other processes can open the file while this process has it open."""
        if not self.given.startswith("/proc/"):
            return absolute(self.given)
        return f"/proc/{os.getpid()}/fd/{self.core.mapping.fileno()}"

    def handle(self, rows: tuple[int, int, int] | bytes | None, fields: tuple[str | int, ...] = ()) -> tuple[Any, ...]:
        """Return the arguments with which `onecopy.records.rows.attach` opens these rows in another process."""
        handle = (self.path(), self.core.mapping.identity, rows)
        return (*handle, fields, self.trusted) if fields or self.trusted else handle


class Backed(Closeable):
    """Base class of lists and dicts of records: access to their file; errors of writing methods give advice."""

    _origin: Origin
    report: Artefact | None = None
    """The artefact that `onecopy.share` found or built; None for data without a key."""

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
        """Path of the file; a path under /proc, valid while this process has it open, for data without a key."""
        return self._origin.path()

    @property
    def nbytes(self) -> int:
        """Size of the values in the whole file, in bytes; the machine holds one copy of them."""
        return self._origin.source.payload

    @property
    def file(self) -> OneFile:
        """The file as named arrays, for `warm`, `pin` and `verify` by name, and its identity."""
        return self._origin.file

    def warm(self, **options: Any) -> WarmReport | WarmJob:
        """Read the file into memory at the speed of the device; see `onecopy.warm`."""
        done: WarmReport | WarmJob = self._origin.file.warm(**options)
        return done

    def evict(self) -> EvictReport:
        """Drop the file from memory; see `onecopy.evict`."""
        return self._origin.file.evict()

    def pin(self) -> PinReport:
        """Lock the file into memory; see `onecopy.pin`."""
        return self._origin.file.pin()

    def residency(self) -> Residency:
        """Report how much of the file is in memory; see `onecopy.residency`."""
        return self._origin.file.residency()

    def verify(self, **options: Any) -> VerifyReport:
        """Compare the file with its checksums; see `onecopy.ArrayFile.verify`."""
        return self._origin.file.verify(**options)
