"""Which big files a process maps, and what the page cache holds of them.

Lists of mappings are read at most once a second for each process: the kernel holds a lock of the observed process
meanwhile. What is cached of a file is asked at every look, of the file itself: 0.1 ms per GiB, however many map it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from onecopy.memory import cgroup, proc
from onecopy.page_cache import cachestat, residency

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onecopy.memory.snapshots import Key

__all__ = ["BIG", "Cache", "CachedFile", "MappedFile", "files_of", "merged"]

BIG = 4 << 20
"""Bytes of addresses from which on a file is counted by itself; what is smaller is counted by walks."""

_FILE_LINE = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) .{4} ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) ([1-9][0-9]*) +(\S.*)$", re.MULTILINE
)
_MEMORY_NAMES = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")  # noqa: S108 - as the kernel prints them
_OPEN_AT_MOST = 256
_ASKED = 4
"""Processes through which a file is looked for."""
_WHOLE = 32
"""Ranges of one file that are asked about one by one; more are asked about as one."""

Range = tuple[int, int]
"""[begin, end) in bytes of the file."""


class MappedFile(NamedTuple):
    """A file in the addresses of one process."""

    path: str
    deleted: bool
    ranges: tuple[Range, ...]
    addresses: tuple[Range, ...]
    """[begin, end) of its mappings."""

    @property
    def mapped(self) -> int:
        """Bytes."""
        return sum(end - begin for begin, end in self.ranges)


def files_of(pid: int, least: int = BIG) -> dict[Key, MappedFile]:
    """Return the files of which a process maps so many bytes; PermissionError: it is somebody else's.

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
    """Return ranges in their order without overlaps.

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


def kind_of(key: Key, path: str) -> Literal["file", "shmem"]:
    """Return whether a file is memory: tmpfs and its kin.

    >>> kind_of((0, 1), "/memfd:numbers")
    'shmem'
    """
    return "shmem" if path.startswith(_MEMORY_NAMES) or key[0] in _memory_devices() else "file"


@cache
def _memory_devices() -> frozenset[int]:
    with suppress(OSError, ValueError):
        mounts = cgroup.parse_mountinfo(proc.process_text(os.getpid(), "mountinfo"))
        return frozenset(mount.device for mount in mounts if mount.fs_type in ("tmpfs", "devtmpfs", "ramfs"))
    return frozenset()


class CachedFile(NamedTuple):
    """What is known of a file; None: the kernel does not tell, and `unknown` says why."""

    size: int | None
    cached: int | None
    dirty: int | None
    recently_evicted: int | None
    unknown: str


class Cache:
    """Asks what the page cache holds of files; keeps them open. To be closed."""

    def __init__(self) -> None:
        self._open: dict[Key, int | str] = {}

    def close(self) -> None:
        """Release the files."""
        for descriptor in self._open.values():
            if isinstance(descriptor, int):
                os.close(descriptor)
        self._open.clear()

    def keep_only(self, keys: Iterable[Key]) -> None:
        """Close files that no process maps any more, and forget why others could not be opened."""
        wanted = set(keys)
        for key in [key for key, file in self._open.items() if key not in wanted or isinstance(file, str)]:
            descriptor = self._open.pop(key)
            if isinstance(descriptor, int):
                os.close(descriptor)

    def look(self, key: Key, file: MappedFile, pids: Iterable[int]) -> CachedFile:
        """Return what is cached of the ranges of a file that `pids` map."""
        descriptor = self._open.get(key)
        if descriptor is None:
            descriptor = self._open[key] = self._opened(key, file, pids)
        if isinstance(descriptor, str):
            return CachedFile(None, None, None, None, descriptor)
        ranges = file.ranges if len(file.ranges) <= _WHOLE else ((file.ranges[0][0], file.ranges[-1][1]),)
        try:
            told = [cachestat(descriptor, begin, end - begin) for begin, end in ranges]
            size = os.fstat(descriptor).st_size
        except OSError as error:
            return self._refused(key, descriptor, error)
        return CachedFile(
            size,
            cached=sum(one.cached for one in told),
            dirty=sum(one.dirty for one in told),
            recently_evicted=sum(one.recently_evicted for one in told),
            unknown="",
        )

    def _refused(self, key: Key, descriptor: int, error: OSError) -> CachedFile:
        size = os.fstat(descriptor).st_size
        if error.errno == errno.EPERM:
            why = "we neither own the file nor may write it"
        elif error.errno == errno.ENOSYS:
            with suppress(OSError, ValueError):
                found = residency(f"/proc/self/fd/{descriptor}")
                if found.cached is not None and found.source == "mincore":
                    return CachedFile(size, found.cached, found.dirty, None, "")
            why = "this kernel has no cachestat (Linux 6.5)"
        else:
            why = f"the kernel refused: {os.strerror(error.errno or 0)}"
        os.close(descriptor)
        self._open[key] = why
        return CachedFile(size, None, None, None, why)

    def _opened(self, key: Key, file: MappedFile, pids: Iterable[int]) -> int | str:
        """Open a file by one of its names, if what is there is that file; or say why not."""
        if len(self._open) >= _OPEN_AT_MOST:
            return f"more than {_OPEN_AT_MOST} files"
        why = "it has no name that we can open" if file.deleted else "at its name is another file, or none"
        for place in _places(file, pids):
            try:
                return _open_same(place, key, named=place == file.path)
            except PermissionError:
                why = "we may not open it"
            except OSError:
                continue
        return why


def _places(file: MappedFile, pids: Iterable[int]) -> Iterator[str]:
    """Yield where a file may be opened: by its name, in another mount namespace, by its mapping, by a descriptor."""
    if not file.deleted:
        yield file.path
    for pid in tuple(pids)[:_ASKED]:
        if not file.deleted:
            yield f"/proc/{pid}/root{file.path}"
        begin, end = file.addresses[0]
        yield f"/proc/{pid}/map_files/{begin:x}-{end:x}"  # for root
        if file.deleted:
            with suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd")[:_OPEN_AT_MOST]:  # noqa: PTH208 - text
                    if os.readlink(f"/proc/{pid}/fd/{number}").startswith(file.path):  # noqa: PTH115 - text
                        yield f"/proc/{pid}/fd/{number}"


def _open_same(place: str, key: Key, *, named: bool) -> int:
    """Open a file that is the one with this key; OSError where it is not. Never waits for a pipe."""
    if not stat.S_ISREG(os.stat(place).st_mode):  # noqa: PTH116 - text
        raise OSError(errno.EINVAL, "no regular file", place)
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    found = os.fstat(descriptor)
    # btrfs and overlayfs tell os.stat another device than they tell in maps.
    if found.st_ino == key[1] and (found.st_dev == key[0] or named):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.ESTALE, "another file", place)
