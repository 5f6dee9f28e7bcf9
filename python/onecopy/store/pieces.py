"""`PartialFile`: a file that is fetched or decoded in pieces. If the process is killed, another one can continue.

A list of the pieces is stored next to the file in the store's folder. It consists of a line with the artefact's key, a
line with the boot identity, and 24 bytes for each piece: start, length, CRC-32C of the piece, CRC-32C of the entry.
Entries are trusted until the machine restarts. After a restart, data that was only in the page cache may be missing on
the disk, so each piece is read and compared with its checksum.
"""

from __future__ import annotations

import bisect
import errno
import operator
import os
import stat
import struct
import threading
from typing import TYPE_CHECKING

from onecopy import _core
from onecopy.base.text import size
from onecopy.files.identity import boot_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_ENTRY = struct.Struct("<QQII")
_BLOCK = 8 << 20
_WRITTEN = 1 << 20
"""Number of bytes per write. For larger writes, the kernel searches for 2 MiB pages, which doubles the time."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_start, _stop = operator.itemgetter(0), operator.itemgetter(1)


class Ranges:
    """A set of bytes of a file: sorted, disjoint ranges.

    Examples
    --------
    >>> ranges = Ranges([(10, 20), (40, 50), (20, 30)])
    >>> list(ranges), list(ranges.missing(0, 45)), ranges.size
    ([(10, 30), (40, 50)], [(0, 10), (30, 40)], 30)
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges: list[tuple[int, int]] = []
        for start, stop in ranges:
            self.add(start, stop)

    def add(self, start: int, stop: int) -> None:
        """Add the bytes from `start` to `stop`."""
        if start >= stop:
            return
        first = bisect.bisect_left(self._ranges, start, key=_stop)  # the first that ends at or after the start
        last = bisect.bisect_right(self._ranges, stop, key=_start)  # behind the last that begins at or before the stop
        if first < last:
            start, stop = min(start, self._ranges[first][0]), max(stop, self._ranges[last - 1][1])
        self._ranges[first:last] = [(start, stop)]

    def missing(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range that are not in the set."""
        for at in range(bisect.bisect_right(self._ranges, start, key=_stop), len(self._ranges)):
            begin, end = self._ranges[at]
            if start >= stop or begin >= stop:
                break
            if start < begin:
                yield start, begin
            start = end
        if start < stop:
            yield start, stop

    def has(self, start: int, stop: int) -> bool:
        """Return whether all bytes of a range are in the set."""
        return not any(self.missing(start, stop))

    @property
    def size(self) -> int:
        """Number of bytes in the set."""
        return sum(stop - start for start, stop in self._ranges)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(self._ranges))


class PartialFile:
    """A file of a known size that is written in pieces, in any order and by several threads of one process.

    The caller holds the key's claim, so that no other process writes. Opening the file keeps the pieces that an
    earlier process wrote, and discards those that are damaged or belong to another key. The file and its list are at
    the artefact's path, with other suffixes. Raise OSError if the file or its list cannot be written, or is not a
    regular file of this user.
    """

    def __init__(self, artefact: Path, key: str, nbytes: int) -> None:
        self.artefact = artefact
        """Path of the file after `publish`."""
        self.path = artefact.with_suffix(".partial")
        """Path of the file before `publish`."""
        self._list_path = artefact.with_suffix(".pieces")
        self.size = nbytes
        """Size of the whole file in bytes."""
        self.have = Ranges()
        """The ranges that are in the file."""
        self._changed = threading.Condition()
        self._fd, self._list = _opened(self.path), -1
        try:
            self._list = _opened(self._list_path)
            self._begin(key)
        except BaseException:
            self.close()
            raise

    def _begin(self, key: str) -> None:
        self._head = head = f"{key}\n{boot_identity()}\n".encode("utf-8", "surrogateescape")
        text = os.pread(self._list, os.fstat(self._list).st_size, 0)
        lines = text.split(b"\n", 2)
        ours = len(lines) == 3 and lines[0] == head.split(b"\n", 1)[0]
        if not ours or os.fstat(self._fd).st_size < self.size:
            self.close()
            self.remove()  # not truncated, because a process may have parts of it mapped
            self._fd, self._list = _opened(self.path), _opened(self._list_path)
            os.ftruncate(self._fd, self.size)
            self._rewrite(())
            return
        os.ftruncate(self._fd, self.size)  # removes data that an earlier process appended
        entries = list(_entries(lines[2], self.size))
        if lines[1] != b"" and text.startswith(head):
            self.have = Ranges((start, start + length) for start, length, _ in entries)
            self._end = len(head) + len(entries) * _ENTRY.size  # a torn entry is overwritten
            return
        self._rewrite([entry for entry in entries if _checksum(self._fd, entry[0], entry[1]) == entry[2]])

    def _rewrite(self, entries: Iterable[tuple[int, int, int]]) -> None:
        os.ftruncate(self._list, 0)
        _write(self._list, self._head, 0)
        self._end = len(self._head)
        for start, length, checksum in entries:
            self._note(start, length, checksum)

    def expect_room(self, nbytes: int) -> None:
        """Raise OSError if less than `nbytes` is free. Reserve no space, because a server may report a wrong size."""
        disk = os.fstatvfs(self._fd)
        if nbytes > (free := disk.f_bavail * disk.f_frsize):
            raise self._full(errno.ENOSPC, nbytes, f", but only {size(free)} available")

    def reserve(self, start: int, stop: int) -> None:
        """Reserve disk space for a range if the file system supports it. Raise OSError if there is not enough space."""
        if start == stop:
            return
        try:
            os.posix_fallocate(self._fd, start, stop - start)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise self._full(error.errno, stop - start) from None

    def _full(self, number: int, needed: int, free: str = "") -> OSError:
        advice = "remove artefacts with `onecopy store prune`, or set ONECOPY_CACHE to another folder"
        return OSError(number, f"{os.strerror(number)}: {size(needed)} needed{free}; {advice}", str(self.path))

    def read(self, start: int, length: int) -> bytes:
        """Return `length` bytes from the file, or fewer at its end."""
        return os.pread(self._fd, length, start)

    def digest(self, name: str, report: Callable[[], object]) -> bytes:
        """Return a hash of the whole file, calling `report` after each block."""
        import hashlib  # here: it loads OpenSSL, 0.5 MB

        found = hashlib.new(name, usedforsecurity=False)
        for start in range(0, self.size, _BLOCK):
            found.update(self.read(start, _BLOCK))
            report()
        return found.digest()

    def write(self, start: int, data: bytes | bytearray | memoryview) -> None:
        """Write a piece to the file, and then its entry to the list."""
        checksum = _core.crc32c(data)
        try:
            _write(self._fd, data, start)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        with self._changed:
            self._note(start, len(data), checksum)
            self._changed.notify_all()

    def forget(self) -> None:
        """Mark all pieces as missing."""
        with self._changed:
            self.have = Ranges()
            self._rewrite(())

    def wait(self, start: int, stop: int, timeout: float) -> bool:
        """Wait at most `timeout` seconds for other threads to write a range, and return whether they did."""
        with self._changed:
            return self._changed.wait_for(lambda: self.have.has(start, stop), timeout)

    def _note(self, start: int, length: int, checksum: int) -> None:
        entry = struct.pack("<QQI", start, length, checksum)
        _write(self._list, entry + struct.pack("<I", _core.crc32c(entry)), self._end)
        self._end += _ENTRY.size
        self.have.add(start, start + length)

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are in the file."""
        return self.have.size == self.size

    def publish(self) -> None:
        """Move the complete file to its final path, and remove the list of its pieces."""
        self.path.replace(self.artefact)
        self._list_path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove both files."""
        for path in (self.path, self._list_path):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close both files without removing them, so that the next process can continue."""
        for fd in (self._fd, self._list):
            if fd >= 0:
                os.close(fd)
        self._fd = self._list = -1


def _opened(path: Path) -> int:
    fd = os.open(path, _FLAGS, 0o600)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or _core.owner_of(fd) != os.geteuid():
        os.close(fd)
        raise PermissionError(errno.EPERM, "not a regular file of this user", str(path))
    return fd


def _entries(text: bytes, nbytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield the start, length and checksum of each entry before the first one that is incomplete or invalid."""
    for at in range(0, len(text) - _ENTRY.size + 1, _ENTRY.size):
        start, length, checksum, own = _ENTRY.unpack_from(text, at)
        if own != _core.crc32c(text[at : at + _ENTRY.size - 4]) or not 0 < length <= nbytes or start > nbytes - length:
            return
        yield start, length, checksum


def _checksum(fd: int, start: int, length: int) -> int | None:
    """Return the checksum of a range, or None if the range cannot be read."""
    if length > 16 * _BLOCK:
        return None
    try:
        return _core.crc32c(os.pread(fd, length, start))
    except OSError:
        return None


def _write(fd: int, data: bytes | bytearray | memoryview, start: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view[:_WRITTEN], start)
        view, start = view[written:], start + written
