"""The declared state of the page cache before a sample, and its proof.

A time means nothing without the state of the cache it started from. *Cold* is `fdatasync` and
`POSIX_FADV_DONTNEED` on that one file; no root is needed and nothing else on the machine is disturbed. *Warm*
is the same, and then the file read once from front to back: how pages got into the cache decides how big they
are (a 2 MiB folio is mapped by one fault, 4 KiB pages by 512), so every warm sample gets the same filling.

Either way the kernel is asked afterwards how much is cached: `cachestat` (Linux 6.5), else `mincore`, else
the answer is None, which means unknown. Written with ctypes on purpose: the judge shares no code with the
library it judges.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from onecopy_bench.engine.raw import READ, read_exactly

_SYS_CACHESTAT = 451  # the same number on every architecture of Linux
_libc = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = (("off", ctypes.c_uint64), ("len", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def evict(path: str | os.PathLike[str]) -> int | None:
    """Write the file back, drop its cached pages and return how many bytes are cached now (None: unknown)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a read-only file system has nothing to write back
            os.fdatasync(fd)
        for _ in range(3):  # the kernel's own scanners hold a page for an instant now and then, and it stays
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            left = cached_bytes(fd)
            if not left:
                break
        return left
    finally:
        os.close(fd)


def fill(path: str | os.PathLike[str]) -> int | None:
    """Read the file once from front to back in 8 MiB requests and return the bytes cached then."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        with memoryview(bytearray(READ)) as buffer:
            for offset in range(0, size, READ):
                read_exactly(fd, buffer[: min(READ, size - offset)], offset)
        return cached_bytes(fd)
    finally:
        os.close(fd)


def cached_bytes(fd: int) -> int | None:
    """Return how many bytes of an open file are in the page cache, at most its size; None where unknown."""
    size = os.fstat(fd).st_size
    if size == 0:
        return 0
    pages = _cachestat(fd)
    if pages is None:
        pages = _mincore(fd, size)
    return None if pages is None else min(pages * mmap.PAGESIZE, size)


def _cachestat(fd: int) -> int | None:
    whole, counts = _Range(0, 0), _Counts()
    if _libc.syscall(_SYS_CACHESTAT, fd, ctypes.byref(whole), ctypes.byref(counts), 0) != 0:
        return None
    return int(counts.cached)


def _mincore(fd: int, size: int) -> int | None:
    """Count resident pages through a mapping.

    Since Linux 5.2 a process that neither owns the file nor may write to it gets the answer that every page is
    resident. That is no answer, so the call is not made.
    """
    if os.fstat(fd).st_uid != os.geteuid() and not os.access(f"/proc/self/fd/{fd}", os.W_OK):
        return None
    pages = -(-size // mmap.PAGESIZE)
    states = np.zeros(pages, np.uint8)
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapping:
        whole = np.frombuffer(mapping, np.uint8)
        address = ctypes.c_void_p(whole.ctypes.data)
        refused = _libc.mincore(address, ctypes.c_size_t(size), states.ctypes.data_as(ctypes.c_void_p))
        del whole
    return None if refused else int(np.count_nonzero(states & 1))


def identity(path: str | os.PathLike[str]) -> tuple[int, int, int, int]:
    """Return what distinguishes one state of a file from another: device, inode, size and time of change."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def ask(path: str | os.PathLike[str]) -> int | None:
    """Return how many bytes of a file are in the page cache; changes nothing."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return cached_bytes(fd)
    finally:
        os.close(fd)
