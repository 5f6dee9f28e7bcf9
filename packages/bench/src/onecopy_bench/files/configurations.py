"""What an entry of the table of loaders is: how a way to load a file describes itself.

An entry says what it is called, which call exactly is measured, which modules have to be there (they are
imported before the clock starts; a row whose modules are not installed does not exist), and how to open. The
entries are in `onecopy_bench.peers`, one file per peer. The child of a sample looks its entry up by name, so
both sides read them; frameworks are imported by the child alone, by name, after it knows which it needs.

`open` is the first clock: it returns as soon as the caller could ask for an array. What remains until every
page has been read is the second clock, and it is the same code for all rows: `warm` where the entry has one,
then `touch.of_arrays`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.files.layout import Kind, Piece

Notes = dict[str, Any]
Named = tuple[str, NDArray[Any]]
Role = Literal["row", "ceiling", "control"]


ONECOPY = ("onecopy", "onecopy.arrays", "onecopy.arrays.entries", "onecopy.files", "onecopy.page_cache")
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
    """An open file, as one configuration sees it.

    `arrays` yields every piece by name; None means that the configuration does not keep the data. `warm`, if
    any, runs on the second clock before the pages are touched and returns notes for the record. `keep` is
    whatever has to stay alive while the memory is measured.
    """

    arrays: Callable[[], Iterable[Named]] | None
    keep: object = None
    warm: Callable[[], Notes] | None = None


@dataclass(frozen=True, slots=True)
class Twin:
    """The same tensors in the container of a peer, for loaders that cannot read a safetensors file.

    `write` is called as ``write(source, target)`` in a process of its own, before the first round. The twin is
    what its row loads: it is evicted, filled, asked about and counted in place of the file under test.
    """

    suffix: str
    write: Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One entry: what is measured, under which name, and what it needs.

    Attributes
    ----------
    name
        The word for it in tables, records and on the child's command line.
    detail
        The call that is measured, short enough for the second line of a table's cell.
    open
        Opens the file of a job; runs in the child.
    modules
        Modules the child imports before the clock starts.
    optional
        Modules it imports too where they are installed, such as those that a peer would import on the clock.
    kinds
        The kinds of file it understands.
    role
        "row" is loaded by all processes at once; a "ceiling" or a "control" runs in one process.
    twin
        The container that it reads, where that is not a safetensors file.
    private_share
        Private memory of one process as a share of the file, so that a run does not exhaust the machine.
    uses_cache
        False where the page cache plays no part, so that its state need not be prepared.
    by_request
        True for a row that is taken only when it is asked for by name.
    command
        The program of the child; empty for `python -m onecopy_bench.child`.
    """

    name: str
    detail: str
    open: Callable[[Job], Opened]
    modules: tuple[str, ...] = ONECOPY
    optional: tuple[str, ...] = ("ml_dtypes",)
    kinds: tuple[Kind, ...] = ("safetensors", "bytes")
    role: Role = "row"
    twin: Twin | None = None
    private_share: float = 0.0
    uses_cache: bool = True
    by_request: bool = False
    command: tuple[str, ...] = field(default=())


def module(name: str) -> Any:
    """Return a module by name: the child has imported it before the clock started."""
    return importlib.import_module(name)


def views(data: NDArray[np.uint8], job: Job) -> Callable[[], Iterable[Named]]:
    """Return the pieces of a job as views into the bytes of the whole file."""
    return lambda: ((p.name, data[p.offset : p.offset + p.nbytes]) for p in job.pieces)


def items(arrays: Mapping[str, NDArray[Any]], job: Job) -> Callable[[], Iterable[Named]]:
    """Return the pieces of a job out of a mapping of names to arrays."""
    return lambda: ((piece.name, arrays[piece.name]) for piece in job.pieces)


def open_nothing(_: Job) -> Opened:
    """Open nothing: an interpreter with its imports, to be subtracted from the others."""
    return Opened(None)
