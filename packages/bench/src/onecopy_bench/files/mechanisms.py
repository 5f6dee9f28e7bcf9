"""The ways to bring a mapped file into memory, one entry each; and what the device and the memory can do at all.

`MECHANISMS` are single calls of the kernel, made here with Python's `mmap` and libc and not with the library under
test; `METHODS` are what a user of onecopy chooses between. Both run in `onecopy_bench.files.loading`. A call
that the kernel refuses raises OSError, and the row says so.

*Ceilings* are O_DIRECT readings of the same file with 1, 4 and 8 threads, past the page cache. "fresh"
reads 8 MiB at a time into new anonymous memory of the file's size, in 2 MiB pages where the kernel gives
them: like `warm` it ends with the data resident, and it is the fastest copying loader that one could write.
"reused" reads into one 4 MiB buffer per thread, again and again: the device alone. `preadv` releases the GIL.

*Controls* are the first touch of fresh anonymous memory with no I/O at all. Every loader that copies pays
this. On a virtual machine whose freed pages go back to the host it can be slower than the disk, and then
times of copying loaders, and every ratio between them and mappings, say nothing about other machines.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from onecopy_bench.engine.raw import STRIDE, fresh_memory, in_windows, read_file, reused
from onecopy_bench.files.loaders import Job, Loader, Location, Notes, Opened, views
from onecopy_bench.files.rivals import open_file

FRESH_READ = 8 << 20
REUSED_BUFFER = 4 << 20
CONTROL_BYTES = 1 << 30
"""A control touches as much memory as the file has, but not more than this."""


def open_direct_fresh(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into fresh huge-page memory of its size; the data stay."""
    memory, data = fresh_memory(job.size, huge=True)
    view = data.data
    place: Callable[[int, int], memoryview] = lambda offset, length: view[offset : offset + length]  # noqa: E731
    read_file(job.path, job.size, threads, FRESH_READ, place, direct=True)
    return Opened(views(data, job), keep=memory)


def open_direct_reused(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into one small buffer per thread; the data do not stay."""
    read_file(job.path, job.size, threads, REUSED_BUFFER, reused(REUSED_BUFFER), direct=True)
    return Opened(None)


def open_first_touch(job: Job, *, huge: bool) -> Opened:
    """Take fresh anonymous memory and write one byte into each 4 KiB of it; no file is read."""
    size = min(job.size, CONTROL_BYTES)
    memory, data = fresh_memory(size, huge=huge)

    def touch() -> Notes:
        data[:size:STRIDE] = 1
        return {"bytes": size}

    return Opened(None, keep=memory, warm=touch)


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


MADV_POPULATE_READ = 22  # Linux 5.14; Python 3.11 has no name for it
WINDOW = 32 << 20
"""Bytes per populate call, and how far stepped advice runs ahead of the touches."""

SCRATCH = 1 << 20
"""Bytes per `pread` into the scratch buffer of a thread: where a request begins to reach a device's rate."""

_libc = ctypes.CDLL(None, use_errno=True)  # releases the GIL, which mmap.madvise does not


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
    """Map a file with some flags and advice, then have it populated or read by so many threads."""
    mapped = Mapped(job, flags)
    if advice is not None:
        mapped.advise(advice, 0, job.size)

    def warm() -> Notes:
        if populate:
            in_windows(job.size, WINDOW, populate, partial(mapped.advise, MADV_POPULATE_READ))
        if preads:
            read_file(job.path, job.size, preads, SCRATCH, reused(SCRATCH), direct=False)
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


def _mechanism(name: str, detail: str, **settings: Any) -> Loader:
    return Loader(name, detail, open=partial(open_mapped, **settings), needs=("numpy",))


def _method(name: str, detail: str, private: float = 0.0, **settings: Any) -> Loader:
    return Loader(name, detail, open=partial(open_file, **settings), private=private)


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
    _method("onecopy.warm", "onecopy.warm(), touch", warm=True),
    _method("onecopy.in_order", "onecopy.warm(in_order=True), touch", warm=True, in_order=True),
)
"""What `bench warm` compares."""

METHODS = (
    _method("copy", "mode='copy'", mode="copy", private=1.0),
    _method("map", "mode='map', pages come with the touches"),
    _method(
        "advise", "map, 2 MiB pages asked for, pages come with the touches", warm=True, huge=True, mechanism="advise"
    ),
    _method("warm", "map, warm()", warm=True),
    _method("huge", "map, warm(huge=True)", warm=True, huge=True),
    _method("small", "map, warm(huge=False)", warm=True, huge=False),
    _method("part", "map, warm() of what is touched", warm=True, part=True),
)
"""What `bench crossover` compares."""
