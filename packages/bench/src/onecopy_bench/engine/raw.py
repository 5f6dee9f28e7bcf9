"""Memory and files without any library: what the judge of every row and the ceilings are made of."""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

STRIDE = 4096
"""Bytes between two touches: the smallest page of the machines that we know."""

READ = 8 << 20
"""Bytes per request; a multiple of the stride."""

HUGE = 2 << 20


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


def read_exactly(fd: int, view: memoryview, offset: int) -> None:
    """Fill `view` from `offset` of the file; raises EOFError with the facts where the file ends before."""
    done = 0
    while done < len(view):
        got = os.preadv(fd, [view[done:]], offset + done)
        if got == 0:
            raise EOFError(f"the file ends at byte {offset + done}; {len(view) - done} more were expected")
        done += got
