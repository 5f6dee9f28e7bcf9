"""Find equal pages in the private memory of processes, and the files whose bytes they contain.

All private pages are read and compared, or a random part of them if that would take longer than the given time. The
processes are neither stopped nor changed. Reading 1 GiB takes 0.1 to 0.3 s.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING

from onecopy._core import EqualPages
from onecopy.memory.candidates import candidates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onecopy.memory.candidates import Candidate
    from onecopy.memory.proc import MappedRegion

_RATE = 3 << 30
"""Minimum number of bytes that are read and compared per second."""
_MAX_COMPARED = 12 << 30
"""Maximum number of bytes to compare, because 32 bytes are kept for each page."""
_MIN_SHARE = 1 / 64
_BLOCK = 1 << 16
_FIRST_BLOCKS, _MAX_BLOCKS = 8, 512
"""Number of blocks of a file that are compared: at first, and if any of these were found."""
_MAX_REGION = 1 << 40
"""Larger regions, such as the shadow memory of sanitizers, are not read: few of their addresses have pages."""
_UNREADABLE = {"um", "uw", "ui", "io", "pf"}
"""Flags of regions that are not read: registered with userfaultfd, or mapped from a device."""


@dataclass(frozen=True, slots=True)
class FileCopies:
    """Private copies of a file's bytes."""

    path: str
    """Path of the file, as the process sees it."""
    size: int
    """Size of the file in bytes."""
    held: tuple[tuple[int, int], ...]
    """Pairs of a PID and the bytes of the file in that process, which exceed `size` if there are several copies."""

    @property
    def bytes(self) -> int:
        """Total number of bytes in the memory of all processes."""
        return sum(nbytes for _, nbytes in self.held)

    @property
    def extra(self) -> int:
        """Number of bytes beyond one copy."""
        return self.bytes - min(max(nbytes for _, nbytes in self.held), self.size)


@dataclass(frozen=True, slots=True)
class Copies:
    """Equal pages in the private memory of processes, in bytes."""

    share: float
    """Share of the private memory that was read, from 0 to 1."""
    data: Mapping[int, int]
    """For each process: bytes outside of libraries that an earlier page, of this or another process, also contains."""
    libraries: int
    """The same for the private pages of libraries, in all processes."""
    error: int
    """Twice the standard error of the total; 0 if all pages were read."""
    zeros: int
    """Bytes of private pages that contain only zeros. They are not compared."""
    swapped: int
    """Bytes that are swapped out. They are not compared."""
    files: tuple[FileCopies, ...]
    """Files of which processes hold private copies, beginning with the most bytes."""
    failed: Mapping[int, OSError]
    """Processes that could not be read."""

    @property
    def in_no_file(self) -> int:
        """The part of `data` that is not in any of `files`."""
        return sum(self.data.values()) - sum(file.extra for file in self.files)

    @property
    def bytes(self) -> int:
        """Number of bytes that another page already contains."""
        return sum(self.data.values()) + self.libraries


def is_library(region: MappedRegion, code: set[tuple[int, int]]) -> bool:
    """Return whether a region belongs to a file with code. `code` contains the devices and inodes of such files."""
    return (region.dev, region.inode) in code


def code_of(regions: Sequence[MappedRegion]) -> set[tuple[int, int]]:
    """Return the devices and inodes of files that contain code."""
    return {(one.dev, one.inode) for one in regions if one.inode and "x" in one.perms}


def find(
    processes: Mapping[int, Sequence[MappedRegion]],
    *,
    seconds: float = 2.0,
    look_in: Sequence[str] = (),
    others: bool = True,
) -> Copies:
    """Compare the private memory of processes, and find the files whose bytes it contains.

    Parameters
    ----------
    processes
        The processes and their mapped regions.
    seconds
        Approximate maximum time for comparing pages; finding files may take the same time again.
    look_in
        Folders or files to compare.
    others
        Whether to also compare files that the processes have open, mapped or in their working directories, or name in
        their command lines and environments.
    """
    wanted = sum(one.memory.anonymous for regions in processes.values() for one in regions)
    share = min(1.0, max(_MIN_SHARE, min(seconds * _RATE, _MAX_COMPARED) / max(wanted, 1)))
    pages, sources, failed = EqualPages(share, time.monotonic_ns()), list[tuple[int, bool]](), dict[int, OSError]()
    zeros = swapped = 0
    for pid, regions in processes.items():
        code = code_of(regions)
        for of_library in (False, True):
            ranges = [
                (one.start, one.end - one.start)
                for one in regions
                if one.end - one.start <= _MAX_REGION
                and (one.memory.anonymous or one.memory.private_hugetlb or one.memory.swap)
                and not _UNREADABLE.intersection(one.vm_flags)
                and is_library(one, code) == of_library
            ]
            try:
                sources.append((pid, of_library))
                read = pages.add(pid, ranges)
            except OSError as error:
                failed[pid] = error
                continue
            zeros, swapped = zeros + int(read.zeros / share), swapped + read.swapped
    extra = pages.compare()
    data = dict.fromkeys((pid for pid in processes if pid not in failed), 0)
    libraries = 0
    for (pid, of_library), (nbytes, _) in zip(sources, extra, strict=True):
        if of_library:
            libraries += int(nbytes)
        elif pid in data:
            data[pid] += int(nbytes)
    deviation = int(2 * hypot(*(each for _, each in extra)))
    readable = {pid: regions for pid, regions in processes.items() if pid not in failed}
    deadline = time.monotonic() + seconds
    found = _files(pages, [pid for pid, _ in sources], readable, candidates(readable, look_in, deadline, others=others))
    return Copies(share, data, libraries, deviation, zeros, swapped, found, failed)


def _files(
    pages: EqualPages,
    pids: Sequence[int],
    processes: Mapping[int, Sequence[MappedRegion]],
    files: Iterable[Candidate],
) -> tuple[FileCopies, ...]:
    left = {pid: sum(one.memory.anonymous for one in regions) for pid, regions in processes.items()}
    least = max(1 << 20, sum(left.values()) // 100)
    found = list[FileCopies]()
    for candidate in files:
        if sum(left.values()) < least:
            break
        with suppress(OSError):
            held = _held(pages, pids, candidate)
            held = {pid: min(nbytes, left[pid]) for pid, nbytes in held.items()}
            if sum(held.values()) >= least:
                for pid, nbytes in held.items():
                    left[pid] -= nbytes
                large = {pid: nbytes for pid, nbytes in held.items() if nbytes >= least // (2 * len(processes))}
                found.append(FileCopies(candidate.path, candidate.size, tuple(large.items())))
    return tuple(sorted(found, key=lambda one: -one.bytes))


def _held(pages: EqualPages, pids: Sequence[int], file: Candidate) -> dict[int, int]:
    """Return how many bytes of a file the memory of each process contains, except pages found in an earlier file."""
    fd = os.open(file.place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not any(map(pages.occurs, _blocks(fd, file.size, _FIRST_BLOCKS))):
            return {}
        sums, blocks = [0.0] * len(pids), 0
        for block in _blocks(fd, file.size, _MAX_BLOCKS):
            sums = [one + more for one, more in zip(sums, pages.take(block), strict=True)]
            blocks += 1
    finally:
        os.close(fd)
    held = defaultdict[int, int](int)
    scale = max(file.size / (blocks * _BLOCK), 1.0)
    for pid, nbytes in zip(pids, sums, strict=True):
        held[pid] += int(nbytes * scale)
    return {pid: nbytes for pid, nbytes in held.items() if nbytes}


def _blocks(fd: int, size: int, number: int) -> Iterator[bytes]:
    """Yield blocks at equal distances. Each contains `_BLOCK` positions at which a page may begin."""
    number = min(number, -(-size // _BLOCK))
    for each in range(number):
        yield os.pread(fd, _BLOCK + EqualPages.page_bytes - 1, each * size // number)
