"""The ways to load a file: onecopy, loaders of torch tensors and arrays, mechanisms of the kernel, O_DIRECT readings.

A loader loads what a job names, keeps it, and yields every piece as an array of bytes in the order of the job. `open`
is the first clock: it returns as soon as the caller could ask for an array. What remains until every page has been read
is the second clock, and it is the same code for all: `warm` where there is one, then a touch of each page. Packages are
imported by name in the measured processes, where they are installed.

* `ROWS` are what `bench open` compares.
* `MECHANISMS` are single calls of the kernel, made here with Python's `mmap` and libc and not with the library under
  test; `METHODS` are what a user of onecopy chooses between. A call that the kernel refuses raises OSError.
* `CEILINGS` are O_DIRECT readings of the same file with 1, 4 and 8 threads, past the page cache. "fresh" reads 8 MiB at
  a time into new anonymous memory of the file's size, in 2 MiB pages where the kernel gives them: like `warm` it ends
  with the data resident, and it is the fastest copying loader that one could write. "reused" reads into one 4 MiB
  buffer per thread, again and again: the device alone.
* `CONTROLS` are the first touch of fresh anonymous memory with no I/O at all. Every loader that copies pays this. On a
  virtual machine whose freed pages go back to the host it can be slower than the disk, and then times of copying
  loaders, and every ratio between them and mappings, say nothing about other machines.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
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
"""Its modules are loaded on first use, and that must not be on the clock."""
SECTOR = 4096
"""O_DIRECT wants offsets, lengths and addresses in multiples of the device's block; 4 KiB suits all."""
FRESH_READ, REUSED_BUFFER, SCRATCH = 8 << 20, 4 << 20, 1 << 20
"""Bytes of a read into fresh memory, into a buffer that is used again, and of a `pread` that only fills the cache."""
CONTROL_BYTES = 1 << 30
"""A control touches as much memory as the file has, but not more than this."""
MADV_POPULATE_READ = 22  # Linux 5.14; Python 3.11 has no name for it
WINDOW = 32 << 20
"""Bytes per populate call, and how far stepped advice runs ahead of the touches."""

_libc = ctypes.CDLL(None, use_errno=True)  # releases the GIL, which mmap.madvise does not


@dataclass(frozen=True, slots=True)
class Job:
    """The input of a worker: the file, its kind, and its pieces (see `layout`) in the order of the touches."""

    path: str
    kind: Kind
    size: int
    pieces: tuple[Piece, ...]


class Opened(NamedTuple):
    """An open file, as one loader sees it.

    `arrays` yields every piece by name; None means that the loader does not keep the data. `warm`, if any, runs on the
    second clock before the pages are touched and returns notes for the record. `keep` stays alive while the memory is
    measured.
    """

    arrays: Callable[[], Iterable[Location]] | None
    keep: object = None
    warm: Callable[[], Notes] | None = None


class Twin(NamedTuple):
    """The same tensors in the container of a peer, for loaders that cannot read a safetensors file.

    `write` is called as ``write(source, target)`` in a process of its own, before the first round. The twin is what its
    row loads: it is evicted, filled, asked about and counted in place of the file under test.
    """

    suffix: str
    write: Callable[[str, str], None]


def open_nothing(_: Job) -> Opened:
    """Open nothing: the baseline of an interpreter with its imports."""
    return Opened(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader(Peer):
    """A loader of a file; `detail` is the call that is measured, `open` makes it in the measured process.

    Attributes
    ----------
    optional
        Modules that are imported before the clock starts where they are installed, such as a peer imports on it.
    role
        "row" is loaded by all processes at once; a "ceiling" or a "control" runs in one process.
    twin
        The container that it reads, if it cannot read a safetensors file.
    uses_cache
        False if the page cache plays no part, so that its state need not be prepared.
    by_request
        True for a row that is taken only when it is asked for by name.
    command
        The program to run; empty for `files.trials`.
    """

    open: Callable[[Job], Opened] = open_nothing
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


# --- reading, past the page cache and with threads --------------------------------------------------------------------


def in_windows(size: int, window: int, threads: int, work: Callable[[int, int], None]) -> None:
    """Call `work(offset, length)` for each window of a file, from several threads."""
    offsets = itertools.count(0, window)  # next() is atomic: the threads share the windows among them

    def run() -> None:
        while (offset := next(offsets)) < size:
            work(offset, min(window, size - offset))

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(run) for _ in range(threads)]:
            done.result()


def reused(nbytes: int) -> Callable[[int, int], memoryview]:
    """Return a function that provides one small buffer per thread for all reads (see `read_file`)."""
    mine = threading.local()

    def place(_: int, length: int) -> memoryview:
        if not hasattr(mine, "view"):
            mine.memory, data = fresh_memory(nbytes, huge=True)
            mine.view = data.data
        view: memoryview = mine.view
        return view[:length]

    return place


def read_file(job: Job, threads: int, request: int, place: Callable[[int, int], memoryview], *, direct: bool) -> None:
    """Read a file with several threads; `direct`: past the page cache, but for what lies behind its last sector.

    `place` is called with (offset, length), and returns where those bytes of the file go: an aligned view.
    """
    aligned = job.size - job.size % SECTOR if direct else job.size
    first, rest = (os.open(job.path, os.O_RDONLY | os.O_CLOEXEC | flag) for flag in (os.O_DIRECT if direct else 0, 0))

    def read(fd: int, offset: int, length: int) -> None:
        read_exactly(fd, place(offset, length), offset)

    try:
        in_windows(aligned, request, threads, partial(read, first))
        if aligned < job.size:
            read(rest, aligned, job.size - aligned)
    finally:
        os.close(first)
        os.close(rest)


def open_direct_fresh(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into fresh huge-page memory of its size; the data stay."""
    memory, data = fresh_memory(job.size, huge=True)
    view = data.data
    place: Callable[[int, int], memoryview] = lambda offset, length: view[offset : offset + length]  # noqa: E731
    read_file(job, threads, FRESH_READ, place, direct=True)
    return Opened(views(data, job), keep=memory)


def open_direct_reused(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into one small buffer per thread; the data do not stay."""
    read_file(job, threads, REUSED_BUFFER, reused(REUSED_BUFFER), direct=True)
    return Opened(None)


def open_first_touch(job: Job, *, huge: bool) -> Opened:
    """Take fresh anonymous memory and write one byte into each 4 KiB of it; no file is read."""
    size = min(job.size, CONTROL_BYTES)
    memory, data = fresh_memory(size, huge=huge)

    def touch() -> Notes:
        data[:size:STRIDE] = 1
        return {"bytes": size}

    return Opened(None, keep=memory, warm=touch)


class Mapped:
    """A read-only shared mapping of a whole file, as Python's own `mmap` makes it."""

    def __init__(self, job: Job, flags: int = 0) -> None:
        fd = os.open(job.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.memory = mmap.mmap(fd, job.size, flags=mmap.MAP_SHARED | flags, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self.data = np.frombuffer(self.memory, np.uint8)

    def advise(self, advice: int, offset: int, length: int) -> None:
        """Call madvise on whole pages around some bytes; raises OSError where the kernel refuses."""
        begin = offset - offset % mmap.PAGESIZE
        address = ctypes.c_void_p(self.data.ctypes.data + begin)
        if _libc.madvise(address, ctypes.c_size_t(offset + length - begin), advice) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"madvise({advice}): {os.strerror(number)}")


def open_mapped(job: Job, *, flags: int = 0, advice: int | None = None, populate: int = 0, preads: int = 0) -> Opened:
    """Map a file with flags and advice; then populate or read it with some threads."""
    mapped = Mapped(job, flags)
    if advice is not None:
        mapped.advise(advice, 0, job.size)

    def warm() -> Notes:
        if populate:
            in_windows(job.size, WINDOW, populate, partial(mapped.advise, MADV_POPULATE_READ))
        if preads:
            read_file(job, preads, SCRATCH, reused(SCRATCH), direct=False)
        return {}

    return Opened(views(mapped.data, job), keep=mapped, warm=warm)


def open_stepped(job: Job) -> Opened:
    """Map a file and ask for each piece with WILLNEED, one window ahead of the touches.

    One call reads no more than the device's largest request or read-ahead, whatever it is asked for; the pieces are
    smaller than that.
    """
    mapped = Mapped(job)
    asked = iter(job.pieces)  # used up by the first pass: later ones only touch
    arrays = views(mapped.data, job)

    def ahead() -> Iterator[Location]:
        distance = 0
        for name, array in arrays():
            while distance < WINDOW and (piece := next(asked, None)) is not None:
                mapped.advise(mmap.MADV_WILLNEED, piece.offset, piece.nbytes)
                distance += piece.nbytes
            distance -= array.nbytes
            yield name, array

    return Opened(ahead, keep=mapped)


# --- peers -----------------------------------------------------------------------------------------------------------


def bytes_of(tensors: Tensors, job: Job) -> Callable[[], Iterable[Location]]:
    """Return the pieces of a job out of torch tensors, as bytes and without a copy."""
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
    """Load into NumPy arrays: each tensor is copied out of the mapping."""
    arrays = module("safetensors.numpy").load_file(job.path)
    return Opened(items(arrays, job), keep=arrays)


def _write_pt(source: str, target: str) -> None:
    module("torch").save(module("safetensors.torch").load_file(source), target)


def _load_runai(job: Job, *, concurrency: int | None = None) -> Tensors:
    """Stream the whole file by several threads; the tensors are views of the private buffers of the streamer."""
    if concurrency is not None:
        os.environ["RUNAI_STREAMER_CONCURRENCY"] = str(concurrency)
    with module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_file(job.path)
        return dict(streamer.get_tensors())


def _open_fastsafetensors(job: Job) -> Opened:
    """Copy the file to the "device" cpu, into one private buffer, without GPUDirect; tensors are views of it."""
    package = module("fastsafetensors")
    loader = package.SafeTensorsFileLoader(package.SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: [job.path]})
    buffer = loader.copy_files_to_device()
    tensors = {piece.name: buffer.get_tensor(piece.name) for piece in job.pieces}
    return Opened(bytes_of(tensors, job), keep=(loader, buffer, tensors))


def _write_tensorizer(source: str, target: str) -> None:
    serializer = module("tensorizer").TensorSerializer(target)
    serializer.write_state_dict(module("safetensors.torch").load_file(source))
    serializer.close()


def _open_memmap(job: Job) -> Opened:
    """Map the file with NumPy; the pages come with the touches. Where tensors lie is known: no header is read."""
    mapping = np.memmap(job.path, np.uint8, mode="r")
    return Opened(views(np.asarray(mapping), job), keep=mapping)


def _open_fromfile(job: Job) -> Opened:
    data = np.fromfile(job.path, np.uint8)
    return Opened(views(data, job), keep=data)


def open_file(
    job: Job, *, mode: str = "map", warm: bool = False, verify: bool = False, part: bool = False, **options: Any
) -> Opened:
    """Open a file with onecopy; `warm` populates the mapping before the touches, or the `part` of it that is touched.

    `verify` compares its checksums as well.
    """
    onecopy = module("onecopy")
    if job.kind == "safetensors":
        file = onecopy.open(job.path, mode=mode)
        arrays = items(file, job)
    else:
        file = onecopy.Mapping(job.path, mode=mode)
        arrays = views(np.frombuffer(file.view(), np.uint8), job)
    ranges = [(piece.offset, piece.nbytes) for piece in job.pieces] if part else None

    def populate() -> Notes:
        return _notes_of(file.warm(verify=True) if verify else onecopy.warm(file, ranges, **options))

    return Opened(arrays, keep=file, warm=populate if warm else None)


def _open_load_into(job: Job, *, warm: bool) -> Opened:
    """Load the mapped weights of the file into a torch module on the meta device."""
    onecopy = module("onecopy")
    with onecopy.open(job.path) as file:
        empty = _module_like({name: file.entry(name).shape for name in file})
    report = onecopy.torch.load_into(empty, job.path, unsafe_shared=True, warm=warm)
    tensors = empty.state_dict()
    waits = (lambda: _notes_of(report.warming.wait())) if warm else None
    return Opened(bytes_of(tensors, job), keep=(empty, tensors), warm=waits)


def _module_like(shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return a module on the meta device that has parameters of these names and shapes."""
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
    """Return the plain facts of a report: every public attribute that is a number, a word or None."""
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
        by_request=True,  # to a module it is what `map` is to arrays
    )  # fmt: skip


ONE: tuple[Any, ...] = ("safetensors",)
SAFETENSORS, RUNAI = ("safetensors.torch",), ("runai_model_streamer", "runai_model_streamer.libstreamer")
PT, TENSORIZER = Twin(".pt", _write_pt), Twin(".tensors", _write_tensorizer)
LAZY = ("ml_dtypes", "torch.utils.serialization.config")
"""What torch.load would import on the clock."""

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
        SAFETENSORS, optional=LAZY, twin=PT, private=0.0,
    ),
    _tensors(
        "torch.load", "load(mmap=False)", partial(_call, "torch", "load", mmap=False, weights_only=True), SAFETENSORS,
        optional=LAZY, twin=PT,
    ),
    _tensors("runai", "stream_file, default threads", _load_runai, RUNAI),
    _tensors("runai-16", "stream_file, 16 threads", partial(_load_runai, concurrency=16), RUNAI),
    Loader(
        "fastsafetensors", "nogds=True, cpu", open=_open_fastsafetensors, needs=("torch", "fastsafetensors"),
        optional=("ml_dtypes", "fastsafetensors.frameworks._torch"), kinds=ONE, private=1.0,
    ),
    *(
        _tensors(
            f"tensorizer-{readers}", f"num_readers={readers}, cpu",
            partial(_call, "tensorizer", "TensorDeserializer", device="cpu", num_readers=readers),
            (*SAFETENSORS, "tensorizer"), twin=TENSORIZER,
        )
        for readers in (1, 4)
    ),
    Loader("numpy.memmap", "plain touch", open=_open_memmap, needs=("numpy", "mmap")),
    Loader("numpy.fromfile", "one read", open=_open_fromfile, needs=("numpy",), private=1.0),
    Loader("empty", "imports only", uses_cache=False),
)  # fmt: skip
"""The first row is what the others are relative to."""


def _mechanism(name: str, detail: str, **settings: Any) -> Loader:
    return Loader(name, detail, open=partial(open_mapped, **settings), needs=("numpy",))


_HUGE = mmap.MADV_HUGEPAGE

MECHANISMS = (
    _mechanism("touch", "touch each page"),
    _mechanism("sequential", "MADV_SEQUENTIAL, touch", advice=mmap.MADV_SEQUENTIAL),
    _mechanism("random", "MADV_RANDOM, touch", advice=mmap.MADV_RANDOM),
    _mechanism("willneed", "MADV_WILLNEED once, touch", advice=mmap.MADV_WILLNEED),
    Loader("willneed-stepped", "MADV_WILLNEED 32 MiB ahead of the touch", open=open_stepped, needs=("numpy",)),
    _mechanism("map-populate", "mmap(MAP_POPULATE)", flags=mmap.MAP_POPULATE),
    _mechanism("populate-1", "MADV_POPULATE_READ, 1 thread", populate=1),
    _mechanism("populate-8", "MADV_POPULATE_READ, 8 threads", populate=8),
    _mechanism("huge+touch", "MADV_HUGEPAGE, touch", advice=_HUGE),
    _mechanism("huge+populate-1", "MADV_HUGEPAGE, populate, 1 thread", advice=_HUGE, populate=1),
    _mechanism("huge+populate-8", "MADV_HUGEPAGE, populate, 8 threads", advice=_HUGE, populate=8),
    _mechanism("pread-1", "1 MiB preads to scratch, 1 thread, touch", preads=1),
    _mechanism("pread-8", "1 MiB preads to scratch, 8 threads, touch", preads=8),
    _ours("onecopy.warm", "onecopy.warm(), touch", warm=True),
    _ours("onecopy.in_order", "onecopy.warm(in_order=True), touch", warm=True, in_order=True),
)
"""What `bench warm` compares."""

METHODS = (
    _ours("copy", "mode='copy'", mode="copy", private=1.0),
    _ours("map", "mode='map', pages come with the touches"),
    _ours(
        "advise", "map, 2 MiB pages asked for, pages come with the touches", warm=True, huge=True, mechanism="advise"
    ),
    _ours("warm", "map, warm()", warm=True),
    _ours("huge", "map, warm(huge=True)", warm=True, huge=True),
    _ours("small", "map, warm(huge=False)", warm=True, huge=False),
    _ours("part", "map, warm() of what is touched", warm=True, part=True),
)
"""What `bench crossover` compares."""


def _beside(name: str, detail: str, role: str, private: float, opens: Callable[..., Opened], **settings: int) -> Loader:
    settings_of: dict[str, object] = {"role": role, "private": private, "uses_cache": False, "needs": ("numpy",)}
    return Loader(name, detail, open=partial(opens, **settings), **settings_of)  # type: ignore[arg-type]


CEILINGS = {
    ceiling.name: ceiling
    for threads in (1, 4, 8)
    for ceiling in (
        _beside(f"o_direct-fresh-{threads}", f"O_DIRECT x {threads}, fresh huge-page memory", "ceiling", 1.0,
                open_direct_fresh, threads=threads),
        _beside(f"o_direct-reused-{threads}", f"O_DIRECT x {threads}, reused 4 MiB buffers", "ceiling", 0.0,
                open_direct_reused, threads=threads),
    )
}  # fmt: skip
CONTROLS = tuple(
    _beside(f"first-touch-{name}", f"first touch of fresh anonymous memory, {pages} pages", "control", 1.0,
            open_first_touch, huge=huge)
    for name, pages, huge in (("4k", "4 KiB", False), ("huge", "2 MiB", True))
)  # fmt: skip
