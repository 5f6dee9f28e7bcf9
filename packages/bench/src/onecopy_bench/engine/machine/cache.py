"""The declared state of the page cache before a sample, and its proof.

A time means nothing without the state of the cache it started from. *Cold* is `fdatasync` and
`POSIX_FADV_DONTNEED` on that one file; no root is needed and nothing else on the machine is disturbed. *Warm*
is the same, and then the file read once from front to back: how pages got into the cache decides how big they
are (a 2 MiB folio is mapped by one fault, 4 KiB pages by 512), so every warm sample gets the same filling.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from onecopy.files import page_cache
from onecopy_bench.engine.raw import READ, read_exactly


def evict(path: str | os.PathLike[str]) -> int | None:
    """Write the file back, drop its cached pages and return how many bytes are cached now (None: unknown)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a read-only file system has nothing to write back
            os.fdatasync(fd)
        for _ in range(3):  # the kernel's own scanners hold a page for an instant now and then, and it stays
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            left = ask(path)
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
    finally:
        os.close(fd)
    return ask(path)


def ask(path: str | os.PathLike[str]) -> int | None:
    """Return how many bytes of a file are in the page cache (None: unknown); changes nothing."""
    size = Path(path).stat().st_size
    if size == 0:
        return 0
    found = page_cache.residency(path)
    known = found.cached
    return None if known is None else min(known, size)


def identity(path: str | os.PathLike[str]) -> tuple[int, int, int, int]:
    """Return what distinguishes one state of a file from another: device, inode, size and time of change."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
