"""The loaders that `bench open` compares: onecopy, its peers, O_DIRECT reads and a control.

A loader opens a job's file, keeps it open, and yields every piece as an array of bytes, in the order given by the job.
The first clock measures `open`, which returns as soon as the caller could request an array. The second clock measures
`warm`, if the loader defines it, and then the reading of one byte per page, for which all loaders use the same code.
The measured process imports the packages of its loader by name before the clocks start.

* `ROWS` lists the loaders that are compared.
* `CEILINGS` read the same file with O_DIRECT, without the page cache. "fresh" reads 8 MiB at a time into new anonymous
  memory of the file's size, in 2 MiB pages if the kernel provides them. The data stays, so no copying loader can be
  faster. "reused" repeatedly reads into one 4 MiB buffer per thread, so it measures only the device.
* `CONTROLS` only touch fresh anonymous memory, as every copying loader also must. On a virtual machine whose host
  reclaims free pages, this can be slower than reading from the disk. On such a machine, the times of copying loaders,
  and their ratios to mapping loaders, do not apply to other machines.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.files.layout import Kind, Piece, read_exactly
from onecopy_bench.peers import Peer, module
from onecopy_bench.system import STRIDE, fresh_memory

Notes = dict[str, Any]
Location = tuple[str, NDArray[Any]]
Role = Literal["row", "ceiling", "control"]
Tensors = Mapping[str, Any]

ONECOPY = (
    "onecopy",
    "onecopy.arrays.opening",
    "onecopy.arrays.entries",
    "onecopy.files.mapping",
    "onecopy.files.page_cache",
)
"""Modules that onecopy imports on first use. Importing them must not be part of the measured time."""
SECTOR = 4096
"""O_DIRECT needs offsets, lengths and addresses in multiples of the device's block; 4 KiB suits all devices."""
FRESH_READ, REUSED_BUFFER = 8 << 20, 4 << 20
"""Bytes per read into fresh memory, and into a reused buffer."""
CONTROL_BYTES = 1 << 30
"""A control touches as many bytes as the file contains, but at most this many."""


@dataclass(frozen=True, slots=True)
class Job:
    """A worker's input: the file, its format, and its pieces (see `layout`) in the order in which they are touched."""

    path: str
    kind: Kind
    size: int
    pieces: tuple[Piece, ...]


class Opened(NamedTuple):
    """An open file, as returned by a loader.

    `arrays` yields each piece's name and data; it is None if the loader keeps no data. `warm` runs before the pages are
    touched, is measured by the second clock, and returns notes. `keep` stays alive while memory is measured.
    """

    arrays: Callable[[], Iterable[Location]] | None
    keep: object = None
    warm: Callable[[], Notes] | None = None


def open_nothing(_: Job) -> Opened:
    """Open nothing: the baseline is an interpreter that has only imported modules."""
    return Opened(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader(Peer):
    """A way to load a file. `detail` describes the measured call, and `open` makes it in the measured process.

    The measured process imports the `optional` modules that are installed. With the role "row", all processes load at
    the same time; a "ceiling" or "control" runs in one process. `reads_pt`: the loader needs the tensors as a .pt file
    (see `trials.pt_file`). `uses_cache`: the loader uses the page cache, so its state must be prepared. `by_request`:
    the row is measured only if `--only` names it. `command`: a program that runs instead of `trials` (see `trial_of`).
    """

    open: Callable[[Job], Opened] = open_nothing
    needs: tuple[str, ...] = ONECOPY
    optional: tuple[str, ...] = ("ml_dtypes",)
    kinds: tuple[Kind, ...] = ("safetensors", "bytes")
    role: Role = "row"
    reads_pt: bool = False
    uses_cache: bool = True
    by_request: bool = False
    command: tuple[str, ...] = ()


def views(data: NDArray[np.uint8], job: Job) -> Callable[[], Iterable[Location]]:
    """Return a function that yields a job's pieces as views into the bytes of the whole file."""
    return lambda: ((p.name, data[p.offset : p.offset + p.nbytes]) for p in job.pieces)


def items(arrays: Mapping[str, NDArray[Any]], job: Job) -> Callable[[], Iterable[Location]]:
    """Return a function that yields a job's pieces from a mapping of names to arrays."""
    return lambda: ((piece.name, arrays[piece.name]) for piece in job.pieces)


# --- O_DIRECT and the control -----------------------------------------------------------------------------------------


def read_direct(job: Job, threads: int, request: int, place: Callable[[int, int], memoryview]) -> None:
    """Read a file with O_DIRECT and several threads. Bytes after its last full sector are read through the page cache.

    `place` takes an offset and a length, and returns an aligned view into which that part of the file is read.
    """
    aligned = job.size - job.size % SECTOR
    direct, plain = (os.open(job.path, os.O_RDONLY | os.O_CLOEXEC | flag) for flag in (os.O_DIRECT, 0))
    offsets = itertools.count(0, request)  # next() is atomic, so the threads divide the requests among them

    def run() -> None:
        while (offset := next(offsets)) < aligned:
            read_exactly(direct, place(offset, min(request, aligned - offset)), offset)

    try:
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(run) for _ in range(threads)]:
                done.result()
        if aligned < job.size:
            read_exactly(plain, place(aligned, job.size - aligned), aligned)
    finally:
        os.close(direct)
        os.close(plain)


def open_direct_fresh(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into fresh huge-page memory of the same size, and keep the data."""
    memory, data = fresh_memory(job.size, huge=True)
    view = data.data
    read_direct(job, threads, FRESH_READ, lambda offset, length: view[offset : offset + length])
    return Opened(views(data, job), keep=memory)


def open_direct_reused(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into one small buffer per thread, without keeping the data."""
    own = threading.local()

    def place(_: int, length: int) -> memoryview:
        if not hasattr(own, "view"):
            own.memory, data = fresh_memory(REUSED_BUFFER, huge=True)
            own.view = data.data
        view: memoryview = own.view
        return view[:length]

    read_direct(job, threads, REUSED_BUFFER, place)
    return Opened(None)


def open_first_touch(job: Job, *, huge: bool) -> Opened:
    """Allocate fresh anonymous memory and write one byte to each 4 KiB page; no file is read."""
    size = min(job.size, CONTROL_BYTES)
    memory, data = fresh_memory(size, huge=huge)

    def touch() -> Notes:
        data[:size:STRIDE] = 1
        return {"bytes": size}

    return Opened(None, keep=memory, warm=touch)


# --- peers -----------------------------------------------------------------------------------------------------------


def bytes_of(tensors: Tensors, job: Job) -> Callable[[], Iterable[Location]]:
    """Return a function that yields a job's pieces from torch tensors, as bytes, without copying."""
    torch = module("torch")

    def arrays() -> Iterable[Location]:
        for piece in job.pieces:
            yield piece.name, tensors[piece.name].detach().reshape(-1).view(torch.uint8).numpy()

    return arrays


def _open_tensors(job: Job, *, load: Callable[[Job], Tensors]) -> Opened:
    tensors = load(job)
    return Opened(bytes_of(tensors, job), keep=tensors)


def _call(name: str, function: str, job: Job, **options: Any) -> Tensors:
    tensors: Tensors = getattr(module(name), function)(job.path, **options)
    return tensors


def _open_numpy(job: Job) -> Opened:
    """Load into NumPy arrays by copying each tensor out of the mapping."""
    arrays = module("safetensors.numpy").load_file(job.path)
    return Opened(items(arrays, job), keep=arrays)


def write_pt(source: str, target: str) -> None:
    """Write the tensors of a safetensors file as a .pt file."""
    module("torch").save(module("safetensors.torch").load_file(source), target)


def _load_runai(job: Job, *, concurrency: int | None = None) -> Tensors:
    """Stream the whole file with several threads. The tensors are views of the streamer's private buffers."""
    if concurrency is not None:
        os.environ["RUNAI_STREAMER_CONCURRENCY"] = str(concurrency)
    with module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_file(job.path)
        return dict(streamer.get_tensors())


def _open_whole(job: Job, *, load: Callable[[str, type[np.uint8]], NDArray[np.uint8]]) -> Opened:
    """Map or read the file with NumPy. The header is not read, because the job contains the offsets."""
    data = load(job.path, np.uint8)
    return Opened(views(np.asarray(data), job), keep=data)


def open_file(job: Job, *, mode: str = "map", warm: bool = False, verify: bool = False) -> Opened:
    """Open a file with onecopy. `warm` populates the mapping first; `verify` also compares checksums."""
    onecopy = module("onecopy")
    if job.kind == "safetensors":
        file = onecopy.open(job.path, mode=mode)
        arrays = items(file, job)
    else:
        file = onecopy.Mapping(job.path, mode=mode)
        arrays = views(np.frombuffer(file.view(), np.uint8), job)

    def populate() -> Notes:
        return _notes_of(file.warm(verify=True) if verify else onecopy.warm(file))

    return Opened(arrays, keep=file, warm=populate if warm else None)


def _open_load_into(job: Job, *, warm: bool) -> Opened:
    """Load the file's mapped weights into a torch module on the meta device."""
    onecopy = module("onecopy")
    with onecopy.open(job.path) as file:
        empty = _module_like({name: file.entry(name).shape for name in file})
    report = onecopy.torch.load_into(empty, job.path, unsafe_shared=True, warm=warm)
    tensors = empty.state_dict()
    waits = (lambda: _notes_of(report.warming.wait())) if warm else None
    return Opened(bytes_of(tensors, job), keep=(empty, tensors), warm=waits)


def _module_like(shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return a module on the meta device whose parameters have these names and shapes."""
    nn = module("torch").nn
    root = nn.Module()
    for name, shape in shapes.items():
        *path, last = name.split(".")
        place = root
        for part in path:
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = place._modules[part]
        place.register_parameter(last, nn.Parameter(module("torch").empty(shape, device="meta"), requires_grad=False))
    return root


def _notes_of(report: object) -> Notes:
    """Return the simple values in a report: every public attribute that is a number, a string or None."""
    facts = {name: getattr(report, name) for name in dir(report) if not name.startswith("_")}
    return {name: fact for name, fact in facts.items() if isinstance(fact, bool | int | float | str | None)}


# --- what is compared ------------------------------------------------------------------------------------------------


def _tensors(name: str, detail: str, load: Callable[[Job], Tensors], needs: Iterable[str], **more: Any) -> Loader:
    settings: dict[str, Any] = {"kinds": ONE, "private": 1.0, "needs": ("torch", *needs)} | more
    return Loader(name, detail, open=partial(_open_tensors, load=load), **settings)


def _ours(name: str, detail: str, private: float = 0.0, **settings: Any) -> Loader:
    return Loader(name, detail, open=partial(open_file, **settings), private=private)


def _into(name: str, detail: str, *, warm: bool) -> Loader:
    return Loader(
        name, detail, open=partial(_open_load_into, warm=warm), needs=("torch", *ONECOPY), kinds=ONE,
        optional=("onecopy.frameworks.torch._load", "ml_dtypes"),
        by_request=True,  # costs as much for a module as `map` for arrays
    )  # fmt: skip


ONE: tuple[Any, ...] = ("safetensors",)
SAFETENSORS, RUNAI = ("safetensors.torch",), ("runai_model_streamer", "runai_model_streamer.libstreamer")
LAZY = ("ml_dtypes", "torch.utils.serialization.config")
"""Modules that torch.load would otherwise import during the measurement."""

ROWS = (
    _ours("copy", "open(mode='copy')", 1.0, mode="copy"),
    _ours("map", "open()"),
    _ours("map+warm", "open(), .warm()", warm=True),
    # By request, because files of other tools have no checksums.
    Loader(
        "map+verify", "open(), .warm(verify=True)", open=partial(open_file, warm=True, verify=True), kinds=ONE,
        by_request=True,
    ),
    _into("load_into", "torch.load_into(module)", warm=False),
    _into("load_into+warm", "load_into(module, warm=True)", warm=True),
    _tensors(
        "safetensors.torch", "load_file (mmap)", partial(_call, "safetensors.torch", "load_file", backend="mmap"),
        SAFETENSORS, private=0.0,
    ),
    _tensors(
        "safetensors.pread", "load_file (pread)", partial(_call, "safetensors.torch", "load_file", backend="pread"),
        SAFETENSORS,
    ),
    Loader(
        "safetensors.numpy", "load_file (copies)", open=_open_numpy, needs=("safetensors.numpy",), kinds=ONE,
        private=2.0,
    ),
    _tensors(
        "torch.load mmap", "load(mmap=True)", partial(_call, "torch", "load", mmap=True, weights_only=True),
        SAFETENSORS, optional=LAZY, reads_pt=True, private=0.0,
    ),
    _tensors(
        "torch.load", "load(mmap=False)", partial(_call, "torch", "load", mmap=False, weights_only=True), SAFETENSORS,
        optional=LAZY, reads_pt=True,
    ),
    _tensors("runai", "stream_file, default threads", _load_runai, RUNAI),
    _tensors("runai-16", "stream_file, 16 threads", partial(_load_runai, concurrency=16), RUNAI),
    Loader(
        "numpy.memmap", "plain touch", open=partial(_open_whole, load=partial(np.memmap, mode="r")),
        needs=("numpy", "mmap"),
    ),
    Loader("numpy.fromfile", "one read", open=partial(_open_whole, load=np.fromfile), needs=("numpy",), private=1.0),
    Loader("empty", "imports only", uses_cache=False),
)  # fmt: skip
"""The loaders that are compared; the last one is a baseline that opens nothing."""


def _beside(name: str, detail: str, role: Role, private: float, opens: Callable[[Job], Opened]) -> Loader:
    return Loader(name, detail, role=role, private=private, uses_cache=False, needs=("numpy",), open=opens)


def _ceiling(kind: str, memory: str, private: float, opens: Callable[..., Opened], threads: int) -> Loader:
    detail = f"O_DIRECT x {threads}, {memory}"
    return _beside(f"o_direct-{kind}-{threads}", detail, "ceiling", private, partial(opens, threads=threads))


def _control(name: str, pages: str, *, huge: bool) -> Loader:
    detail = f"first touch of fresh anonymous memory, {pages} pages"
    return _beside(f"first-touch-{name}", detail, "control", 1.0, partial(open_first_touch, huge=huge))


CEILINGS = (
    _ceiling("fresh", "fresh huge-page memory", 1.0, open_direct_fresh, 8),
    _ceiling("reused", "reused 4 MiB buffers", 0.0, open_direct_reused, 1),
    _ceiling("reused", "reused 4 MiB buffers", 0.0, open_direct_reused, 8),
)
"""The fastest variants measured so far: one thread reads a virtual disk fastest, several threads a fast disk."""
CONTROLS = (_control("4k", "4 KiB", huge=False), _control("huge", "2 MiB", huge=True))
