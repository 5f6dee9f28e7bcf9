"""What a way to load a file describes of itself.

`open` is the first clock: it returns as soon as the caller could ask for an array. What remains until every page has
been read is the second clock, and it is the same code for all: `warm` where there is one, then `touch.of_arrays`.
Frameworks are imported by the measured process alone, by name, after it knows which it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.engine.ways import Way
from onecopy_bench.files.layout import Kind, Piece

Notes = dict[str, Any]
Location = tuple[str, NDArray[Any]]
Role = Literal["row", "ceiling", "control"]

ONECOPY = ("onecopy", "onecopy.arrays", "onecopy.arrays.entries", "onecopy.files.mapping", "onecopy.files.page_cache")
"""Its modules are loaded on first use, and that must not be on the clock."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a child has to load: the file, its kind and its pieces (see `layout`), in the order of the touches."""

    path: str
    kind: Kind
    size: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file, as one loader sees it.

    `arrays` yields every piece by name; None means that the loader does not keep the data. `warm`, if
    any, runs on the second clock before the pages are touched and returns notes for the record. `keep` is
    whatever has to stay alive while the memory is measured.
    """

    arrays: Callable[[], Iterable[Location]] | None
    keep: object = None
    warm: Callable[[], Notes] | None = None


@dataclass(frozen=True, slots=True)
class Twin:
    """The same tensors in the container of a rival, for loaders that cannot read a safetensors file.

    `write` is called as ``write(source, target)`` in a process of its own, before the first round. The twin is
    what its row loads: it is evicted, filled, asked about and counted in place of the file under test.
    """

    suffix: str
    write: Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader(Way):
    """One way to load a file; `detail` is the call that is measured, `open` makes it in the measured process.

    Attributes
    ----------
    optional
        Modules that are imported before the clock starts where they are installed, such as a rival imports on it.
    role
        "row" is loaded by all processes at once; a "ceiling" or a "control" runs in one process.
    twin
        The container that it reads, where that is not a safetensors file.
    uses_cache
        False where the page cache plays no part, so that its state need not be prepared.
    by_request
        True for a row that is taken only when it is asked for by name.
    command
        The program to run; empty for `files.loading`.
    """

    open: Callable[[Job], Opened]
    needs: tuple[str, ...] = ONECOPY
    optional: tuple[str, ...] = ("ml_dtypes",)
    kinds: tuple[Kind, ...] = ("safetensors", "bytes")
    role: Role = "row"
    twin: Twin | None = None
    uses_cache: bool = True
    by_request: bool = False
    command: tuple[str, ...] = ()


def views(data: NDArray[np.uint8], job: Job) -> Callable[[], Iterable[Location]]:
    """Return the pieces of a job as views into the bytes of the whole file."""
    return lambda: ((p.name, data[p.offset : p.offset + p.nbytes]) for p in job.pieces)


def items(arrays: Mapping[str, NDArray[Any]], job: Job) -> Callable[[], Iterable[Location]]:
    """Return the pieces of a job out of a mapping of names to arrays."""
    return lambda: ((piece.name, arrays[piece.name]) for piece in job.pieces)


def open_nothing(_: Job) -> Opened:
    """Open nothing: an interpreter with its imports, to be subtracted from the others."""
    return Opened(None)
