"""Ceilings and controls: what the device and the memory of this machine can do, without any library.

*Ceilings* are O_DIRECT readings of the same file with 1, 2, 4 and 8 threads, past the page cache. "fresh"
reads 8 MiB at a time into new anonymous memory of the file's size, in 2 MiB pages where the kernel gives
them: like `warm` it ends with the data resident, and it is the fastest copying loader that one could write.
"reused" reads into one 4 MiB buffer per thread, again and again: the device alone. `preadv` releases the GIL.

*Controls* are the first touch of fresh anonymous memory with no I/O at all. Every loader that copies pays
this. On a virtual machine whose freed pages go back to the host it can be slower than the disk, and then
times of copying loaders, and every ratio between them and mappings, say nothing about other machines.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from onecopy_bench.engine.raw import STRIDE, fresh_memory, read_exactly
from onecopy_bench.files.loaders import Job, Loader, Notes, Opened, views

FRESH_READ = 8 << 20
REUSED_BUFFER = 4 << 20
SECTOR = 4096
"""O_DIRECT wants offsets, lengths and addresses in multiples of the device's block; 4 KiB suits all."""

CONTROL_BYTES = 1 << 30
"""A control touches as much memory as the file has, but not more than this."""

THREADS = (1, 2, 4, 8)


def read_direct(job: Job, threads: int, request: int, place: Callable[[int, int], memoryview]) -> int:
    """Read the file past the page cache with several threads and return the bytes read.

    Parameters
    ----------
    request
        Bytes per request, a multiple of the sector.
    place
        Called with (offset, length), returns where those bytes of the file go: an aligned view.
    """
    aligned = job.size - job.size % SECTOR
    direct = os.open(job.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    try:
        offsets = itertools.count(0, request)  # next() is atomic: the threads share the file among them

        def work() -> int:
            done = 0
            while (offset := next(offsets)) < aligned:
                view = place(offset, min(request, aligned - offset))
                read_exactly(direct, view, offset)
                done += len(view)
            return done

        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(work) for _ in range(threads)]
            done = sum(future.result() for future in futures)
    finally:
        os.close(direct)
    return done + _read_tail(job, aligned, place)


def _read_tail(job: Job, aligned: int, place: Callable[[int, int], memoryview]) -> int:
    """Read what lies behind the last whole sector through the cache: O_DIRECT cannot."""
    if aligned == job.size:
        return 0
    buffered = os.open(job.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read_exactly(buffered, place(aligned, job.size - aligned), aligned)
    finally:
        os.close(buffered)
    return job.size - aligned


def open_direct_fresh(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into fresh huge-page memory of its size; the data stay."""
    memory, data = fresh_memory(job.size, huge=True)
    view = data.data
    read_direct(job, threads, FRESH_READ, lambda offset, length: view[offset : offset + length])
    return Opened(views(data, job), keep=memory)


def open_direct_reused(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into one small buffer per thread; the data do not stay."""
    mine = threading.local()

    def place(_: int, length: int) -> memoryview:
        if not hasattr(mine, "view"):
            mine.memory, data = fresh_memory(REUSED_BUFFER, huge=True)
            mine.view = data.data
        view: memoryview = mine.view
        return view[:length]

    return Opened(None, keep=read_direct(job, threads, REUSED_BUFFER, place))


def open_first_touch(job: Job, *, huge: bool) -> Opened:
    """Take fresh anonymous memory and write one byte into each 4 KiB of it; no file is read."""
    size = min(job.size, CONTROL_BYTES)
    memory, data = fresh_memory(size, huge=huge)

    def touch() -> Notes:
        data[:size:STRIDE] = 1
        return {"bytes": size}

    return Opened(None, keep=memory, warm=touch)


def _ceiling(kind: str, threads: int) -> Loader:
    fresh = kind == "fresh"
    return Loader(
        name=f"o_direct-{kind}-{threads}",
        detail=f"O_DIRECT x {threads}, {'fresh huge-page memory' if fresh else 'reused 4 MiB buffers'}",
        open=partial(open_direct_fresh if fresh else open_direct_reused, threads=threads),
        needs=("numpy",),
        role="ceiling",
        private=1.0 if fresh else 0.0,
        uses_cache=False,
    )


def _control(huge: bool) -> Loader:
    return Loader(
        name=f"first-touch-{'huge' if huge else '4k'}",
        detail=f"first touch of fresh anonymous memory, {'2 MiB' if huge else '4 KiB'} pages",
        open=partial(open_first_touch, huge=huge),
        needs=("numpy",),
        role="control",
        private=1.0,
        uses_cache=False,
    )


CEILINGS = tuple(_ceiling(kind, threads) for kind in ("fresh", "reused") for threads in THREADS)
FEW = tuple(each for each in CEILINGS if each.name in {"o_direct-fresh-8", "o_direct-reused-1", "o_direct-reused-8"})
"""The best of their kind in the records that we have: a virtual disk wants one thread, a fast one many."""

CHOICES = {"few": FEW, "all": CEILINGS, "none": ()}
CONTROLS = (_control(huge=False), _control(huge=True))
