"""The big files that a process maps, and how many of their bytes are in the page cache.

A process's mappings are read at most once per second, because the kernel holds a lock of the process during this time.
The page cache is queried in every sample, once per file: 0.1 ms per GiB, whatever the number of processes.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from onecopy.files.page_cache import cachestat, residency
from onecopy.memory import proc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onecopy.memory.proc import Key

__all__ = ["BIG", "Cache", "CachedFile", "MappedFile", "files_of", "merged"]

BIG = 4 << 20
"""Files with fewer mapped bytes than this are not counted separately, but only by page-table walks."""

_FILE_LINE = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) .{4} ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) ([1-9][0-9]*) +(\S.*)$", re.MULTILINE
)
_MAX_OPEN = 256
_MAX_TRIED = 4
"""Maximum number of processes through which the sampler tries to open a file."""
_MAX_RANGES = 32
"""Maximum number of a file's ranges that are queried separately; if there are more, they are queried as one range."""

Range = tuple[int, int]
"""A range [begin, end), in bytes from the start of the file."""


class MappedFile(NamedTuple):
    """A file that one process maps."""

    path: str
    deleted: bool
    ranges: tuple[Range, ...]
    addresses: tuple[Range, ...]
    """Address ranges [begin, end) of its mappings."""

    @property
    def mapped(self) -> int:
        """Number of mapped bytes of the file."""
        return sum(end - begin for begin, end in self.ranges)


def files_of(pid: int, least: int = BIG) -> dict[Key, MappedFile]:
    """Return files of which a process maps `least` bytes or more. Raise PermissionError for another user's process.

    >>> len(files_of(os.getpid(), 1 << 60))
    0
    """
    found: dict[Key, MappedFile] = {}
    for begin, end, offset, major, minor, inode, shown in _FILE_LINE.findall(proc.process_text(pid, "maps")):
        key = os.makedev(int(major, 16), int(minor, 16)), int(inode)
        at = int(offset, 16)
        place = int(begin, 16), int(end, 16)
        here = at, at + place[1] - place[0]
        known = found.get(key)
        if known is None:
            path = shown.removesuffix(" (deleted)")
            known = MappedFile(path.replace(r"\012", "\n"), path != shown, (), ())
        found[key] = known._replace(ranges=(*known.ranges, here), addresses=(*known.addresses, place))
    big = {key: file for key, file in found.items() if file.mapped >= least}
    return {key: file._replace(ranges=merged(file.ranges)) for key, file in big.items()}


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Sort ranges, and join overlapping and adjacent ones.

    >>> merged([(8, 12), (0, 4), (4, 6), (10, 16)])
    ((0, 6), (8, 16))
    """
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return tuple(found)


class CachedFile(NamedTuple):
    """A file's size and cached bytes, or None if the kernel does not report them; `unknown` states the reason."""

    size: int | None
    cached: int | None
    dirty: int | None
    recently_evicted: int | None
    unknown: str


class Cache:
    """Queries the page cache for files, and keeps the files open until it is closed."""

    def __init__(self) -> None:
        self._open: dict[Key, int | str] = {}

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._open.values():
            if isinstance(descriptor, int):
                os.close(descriptor)
        self._open.clear()

    def keep_only(self, keys: Iterable[Key]) -> None:
        """Close files that no process maps any more, and retry those that could not be opened."""
        wanted = set(keys)
        for key in [key for key, file in self._open.items() if key not in wanted or isinstance(file, str)]:
            descriptor = self._open.pop(key)
            if isinstance(descriptor, int):
                os.close(descriptor)

    def query(self, key: Key, file: MappedFile, pids: Iterable[int]) -> CachedFile:
        """Return the number of cached bytes in the parts of a file that `pids` map."""
        descriptor = self._open.get(key)
        if descriptor is None:
            descriptor = self._open[key] = self._opened(key, file, pids)
        if isinstance(descriptor, str):
            return CachedFile(None, None, None, None, descriptor)
        ranges = file.ranges if len(file.ranges) <= _MAX_RANGES else ((file.ranges[0][0], file.ranges[-1][1]),)
        try:
            found = [cachestat(descriptor, (begin, end - begin)) for begin, end in ranges]
            size = os.fstat(descriptor).st_size
        except OSError as error:
            return self._refused(key, descriptor, error)
        return CachedFile(
            size,
            cached=sum(one.cached for one in found),
            dirty=sum(one.dirty for one in found),
            recently_evicted=sum(one.recently_evicted for one in found),
            unknown="",
        )

    def _refused(self, key: Key, descriptor: int, error: OSError) -> CachedFile:
        size = os.fstat(descriptor).st_size
        if error.errno in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP):  # refused by a container; overlayfs
            with suppress(OSError, ValueError):
                found = residency(f"/proc/self/fd/{descriptor}")
                if found.cached is not None and found.source == "mincore":
                    return CachedFile(size, found.cached, found.dirty, None, "")
        if error.errno == errno.EPERM:
            why = "this user neither owns the file nor may write to it"
        elif error.errno == errno.EOPNOTSUPP:
            why = "its pages belong to a file on another file system (overlayfs)"
        elif error.errno == errno.ENOSYS:
            why = "the kernel does not support cachestat (added in Linux 6.5)"
        else:
            why = f"cachestat failed: {os.strerror(error.errno or 0)}"
        os.close(descriptor)
        self._open[key] = why
        return CachedFile(size, None, None, None, why)

    def _opened(self, key: Key, file: MappedFile, pids: Iterable[int]) -> int | str:
        """Open a file through one of its names. Return a descriptor, or the reason why it cannot be opened."""
        if len(self._open) >= _MAX_OPEN:
            return f"more than {_MAX_OPEN} files are open"
        why = "it was removed" if file.deleted else "it was removed or replaced"
        for place in _places(file, pids):
            try:
                return _open_same(place, key, named=place == file.path)
            except PermissionError:
                why = "this user may not open it"
            except OSError:
                continue
        return why


def _places(file: MappedFile, pids: Iterable[int]) -> Iterator[str]:
    """Yield paths that may lead to a file: its own path, and paths in /proc of the processes that map it."""
    if not file.deleted:
        yield file.path
    for pid in tuple(pids)[:_MAX_TRIED]:
        if not file.deleted:
            yield f"/proc/{pid}/root{file.path}"
        begin, end = file.addresses[0]
        yield f"/proc/{pid}/map_files/{begin:x}-{end:x}"  # for root
        if file.deleted:
            with suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd")[:_MAX_OPEN]:  # noqa: PTH208 - text
                    if os.readlink(f"/proc/{pid}/fd/{number}").startswith(file.path):  # noqa: PTH115 - text
                        yield f"/proc/{pid}/fd/{number}"


def _open_same(place: str, key: Key, *, named: bool) -> int:
    """Open a file without blocking on FIFOs, and return its descriptor. Raise OSError if it is another file."""
    if not stat.S_ISREG(os.stat(place).st_mode):  # noqa: PTH116 - text
        raise OSError(errno.EINVAL, "not a regular file", place)
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    found = os.fstat(descriptor)
    # On btrfs and overlayfs, os.stat and maps report different devices.
    if found.st_ino == key[1] and (found.st_dev == key[0] or named):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.ESTALE, "the path leads to another file", place)
