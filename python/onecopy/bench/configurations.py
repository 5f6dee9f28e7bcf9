"""One entry per way to load a file: the table that a new peer is added to.

An entry says what it is called, which call exactly is measured, which modules have to be there (they are
imported before the clock starts; a row whose modules are not installed does not exist), and how to open. The
child of a sample looks its entry up by name, so both sides read this file; frameworks are imported by the
child alone, by name, after it knows which it needs.

`open` is the first clock: it returns as soon as the caller could ask for an array. What remains until every
page has been read is the second clock, and it is the same code for all rows: `warm` where the entry has one,
then `touch.of_arrays`.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onecopy.bench.layout import Kind, Piece

Notes = dict[str, Any]
Named = tuple[str, NDArray[Any]]
Role = Literal["row", "ceiling", "control"]


ONECOPY = ("onecopy", "onecopy.arrays", "onecopy.files", "onecopy.residency")
"""Its rooms are loaded on first use, and that must not be on the clock."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a child has to load: the file, its kind and its pieces (see `layout`)."""

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
        Modules it imports too where they are installed.
    kinds
        The kinds of file it understands.
    role
        "row" is loaded by all processes at once; a "ceiling" or a "control" runs in one process.
    private_share
        Private memory of one process as a share of the file, so that a run does not exhaust the machine.
    uses_cache
        False where the page cache plays no part, so that its state need not be prepared.
    command
        The program of the child; empty for `python -m onecopy.bench.child`.
    """

    name: str
    detail: str
    open: Callable[[Job], Opened]
    modules: tuple[str, ...] = ONECOPY
    optional: tuple[str, ...] = ("ml_dtypes",)
    kinds: tuple[Kind, ...] = ("safetensors", "bytes")
    role: Role = "row"
    private_share: float = 0.0
    uses_cache: bool = True
    command: tuple[str, ...] = field(default=())

    def is_installed(self) -> bool:
        """Tell whether the package of every module it needs can be found; imports none of them."""
        packages = {module.partition(".")[0] for module in self.modules}
        return all(importlib.util.find_spec(package) is not None for package in packages)


def module(name: str) -> Any:
    """Return a module by name: the child has imported it before the clock started."""
    return importlib.import_module(name)


def views(data: NDArray[np.uint8], job: Job) -> Callable[[], Iterable[Named]]:
    """Return the pieces of a job as views into the bytes of the whole file."""
    return lambda: ((p.name, data[p.offset : p.offset + p.nbytes]) for p in job.pieces)


def _items(arrays: Any, job: Job) -> Callable[[], Iterable[Named]]:
    return lambda: ((piece.name, arrays[piece.name]) for piece in job.pieces)


def _open(job: Job, mode: str) -> tuple[Any, Callable[[], Iterable[Named]]]:
    onecopy = module("onecopy")
    if job.kind == "safetensors":
        file = onecopy.open(job.path, mode=mode)
        return file, _items(file, job)
    mapping = onecopy.Mapping(job.path, mode=mode)
    return mapping, views(np.frombuffer(mapping.view(), np.uint8), job)


def open_copy(job: Job) -> Opened:
    """Read the file into private memory with onecopy: what a loader without a mapping costs."""
    file, arrays = _open(job, "copy")
    return Opened(arrays, keep=file)


def open_map(job: Job) -> Opened:
    """Map the file and touch nothing: the pages come with the touches."""
    file, arrays = _open(job, "map")
    return Opened(arrays, keep=file)


def open_map_warm(job: Job) -> Opened:
    """Map the file, then have onecopy populate the mapping before the touches."""
    file, arrays = _open(job, "map")
    return Opened(arrays, keep=file, warm=lambda: report_notes(module("onecopy").warm(file)))


def report_notes(report: object) -> Notes:
    """Return the plain facts of a report: every public attribute that is a number, a word or None."""
    facts = {name: getattr(report, name) for name in dir(report) if not name.startswith("_")}
    return {name: fact for name, fact in facts.items() if isinstance(fact, bool | int | float | str | None)}


def open_safetensors_numpy(job: Job) -> Opened:
    """Load with safetensors into NumPy arrays: each tensor is copied out of the mapping."""
    arrays = module("safetensors.numpy").load_file(job.path)
    return Opened(_items(arrays, job), keep=arrays)


def open_safetensors_torch(job: Job) -> Opened:
    """Load with safetensors into torch tensors: views of a private mapping."""
    torch = module("torch")
    tensors = module("safetensors.torch").load_file(job.path)

    def arrays() -> Iterable[Named]:
        for piece in job.pieces:
            yield piece.name, tensors[piece.name].reshape(-1).view(torch.uint8).numpy()

    return Opened(arrays, keep=tensors)


def open_numpy_memmap(job: Job) -> Opened:
    """Map the file with NumPy; where the tensors lie is known beforehand."""
    mapping = np.memmap(job.path, np.uint8, mode="r")
    return Opened(views(np.asarray(mapping), job), keep=mapping)


def open_nothing(_: Job) -> Opened:
    """Open nothing: an interpreter with its imports, to be subtracted from the others."""
    return Opened(None)


ROWS = (
    Configuration("copy", "open(mode='copy')", open_copy, private_share=1.0),
    Configuration("map", "open()", open_map),
    Configuration("map+warm", "open(), .warm()", open_map_warm),
    Configuration(
        "safetensors.torch",
        "load_file (mmap)",
        open_safetensors_torch,
        modules=("torch", "safetensors.torch"),
        kinds=("safetensors",),
    ),
    Configuration(
        "safetensors.numpy",
        "load_file (copies)",
        open_safetensors_numpy,
        modules=("safetensors.numpy",),
        kinds=("safetensors",),
        private_share=2.0,
    ),
    Configuration("numpy.memmap", "plain touch", open_numpy_memmap, modules=("numpy",)),
    Configuration("empty", "imports only", open_nothing, uses_cache=False),
)
"""What `bench open` compares; the first row is what the others are relative to."""


REPEATS = 20
"""How often `bench keys` lists a file in one process, so that the first call does not drown the others."""


def list_with_onecopy(job: Job) -> Opened:
    """Open the file and list the names of its arrays, `REPEATS` times."""
    onecopy = module("onecopy")
    for _ in range(REPEATS):
        with onecopy.open(job.path) as file:
            names = list(file.keys())
    return Opened(None, keep=names)


def list_with_safetensors(job: Job) -> Opened:
    """Open the file and list the names of its arrays with the safetensors package, `REPEATS` times."""
    safe_open = module("safetensors").safe_open
    for _ in range(REPEATS):
        with safe_open(job.path, framework="numpy") as file:
            names = file.keys()
    return Opened(None, keep=names)


KEYS = (
    Configuration("keys-safetensors", "safe_open(), keys()", list_with_safetensors, modules=("safetensors.numpy",)),
    Configuration("keys-onecopy", "open(), list(keys())", list_with_onecopy),
)
"""What `bench keys` compares."""
