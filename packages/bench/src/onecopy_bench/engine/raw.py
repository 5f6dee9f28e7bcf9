"""Memory and files without any library: what the judge of every row and the ceilings are made of."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

STRIDE = 4096
"""Bytes between two touches: the smallest page of the machines that we know."""

READ = 8 << 20
"""Bytes per request; a multiple of the stride."""

HUGE = 2 << 20
SECTOR = 4096
"""O_DIRECT wants offsets, lengths and addresses in multiples of the device's block; 4 KiB suits all."""


def fresh_memory(size: int, *, huge: bool) -> tuple[mmap.mmap, NDArray[np.uint8]]:
    """Return new private memory of at least `size` bytes, beginning on a 2 MiB boundary, none of it touched.

    MAP_PRIVATE is explicit: Python's default for anonymous memory is MAP_SHARED, which is shmem, has a huge page switch
    of its own and does not count as anonymous.
    """
    length = -(-size // HUGE) * HUGE + HUGE
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    return memory, whole[-whole.ctypes.data % HUGE :]


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
    """Return a place for what is read (see `read_file`): one small buffer per thread, again and again."""
    mine = threading.local()

    def place(_: int, length: int) -> memoryview:
        if not hasattr(mine, "view"):
            mine.memory, data = fresh_memory(nbytes, huge=True)
            mine.view = data.data
        view: memoryview = mine.view
        return view[:length]

    return place


def read_file(
    path: str, size: int, threads: int, request: int, place: Callable[[int, int], memoryview], *, direct: bool
) -> None:
    """Read a file with several threads; `direct`: past the page cache, but for what lies behind its last sector.

    `place` is called with (offset, length), and returns where those bytes of the file go: an aligned view.
    """
    aligned = size - size % SECTOR if direct else size
    first, rest = (os.open(path, os.O_RDONLY | os.O_CLOEXEC | flag) for flag in (os.O_DIRECT if direct else 0, 0))

    def read(fd: int, offset: int, length: int) -> None:
        read_exactly(fd, place(offset, length), offset)

    try:
        in_windows(aligned, request, threads, partial(read, first))
        if aligned < size:
            read(rest, aligned, size - aligned)
    finally:
        os.close(first)
        os.close(rest)


def read_exactly(fd: int, view: memoryview, offset: int) -> None:
    """Fill `view` from `offset` of the file; raises EOFError with the facts where the file ends before."""
    done = 0
    while done < len(view):
        got = os.preadv(fd, [view[done:]], offset + done)
        if got == 0:
            raise EOFError(f"the file ends at byte {offset + done}; {len(view) - done} more were expected")
        done += got
