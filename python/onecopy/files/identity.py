"""What identifies a run of the kernel, a process in it, and the contents of a file."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import time
from contextlib import suppress
from typing import NamedTuple

from onecopy import _core

_COARSE = 5
"""CLOCK_REALTIME_COARSE of Linux, which the module `time` does not name."""


def boot_identity() -> str:
    """Return the identity of this run of the kernel; empty where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123 - without the import of pathlib
            return file.read().strip()
    except OSError:
        return ""


def start_of(process: str | int) -> str:
    """Return the start time of a process as text, in clock ticks since boot; empty if the process has ended.

    Process numbers are used again; the pair of both is not.
    """
    try:
        with open(f"/proc/{process}/stat", errors="replace") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


class FileIdentity(NamedTuple):
    """What identifies the current contents of a file: all of it changes, or some, with every write or replacement."""

    device: int
    inode: int
    nbytes: int
    modified: int
    """Time of the last write, in ns; programs can set it."""
    changed: int
    """Time of the last change of contents or of the inode, in ns; programs cannot set it."""

    def is_recent(self) -> bool:
        """Return whether a write that happens now might leave the time of the last change as it is."""
        tick = 2_000_000_000 if self.changed % 1_000_000_000 == 0 else 20_000_000  # whole seconds: FAT, ext3
        return self.changed > _now_of_files() - tick


def _now_of_files() -> int:
    """Return the time that a write would leave, in ns; on Linux it lags where ticks are late, as in a busy guest."""
    return time.clock_gettime_ns(_COARSE) if sys.platform == "linux" else time.time_ns()


def expect_regular(path: str | os.PathLike[str] | int) -> os.stat_result:
    """Return the status of a regular file; OSError for a folder, device, FIFO or socket."""
    found = os.stat(path)  # noqa: PTH116 - a descriptor too
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a folder cannot be identified: give the files in it", path)
    if not stat.S_ISREG(found.st_mode):  # opening a FIFO would wait
        raise OSError(errno.ENODEV, "not a regular file (a FIFO, socket or device)", path)
    return found


def file_identity(path: str | os.PathLike[str] | int) -> FileIdentity:
    """Return the identity that a regular file has now; OSError for a folder, device, FIFO or socket.

    It shows whether the file of an identity from `identify_open` was written or replaced. Alone it proves nothing: a
    write that happens now might leave it the same.
    """
    found = expect_regular(path)
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def identify_open(descriptor: int, expected: FileIdentity | None = None) -> tuple[FileIdentity, str]:
    """Return the identity of an open file, and why it may stay the same while the contents change; empty: it cannot.

    Waits until a further write would leave another time than the last one: 20 ms after a write, 2.1 s at most, and no
    longer than the identity is `expected`. Dirty pages are written back where writers cannot be seen. Moves the
    position of the descriptor.
    """
    deadline, is_remote = time.monotonic() + 2.1, _core.is_remote(descriptor)
    while True:
        identity = FileIdentity(*_core.content_identity(descriptor, ask=True))
        # Of a server, whose clock is another one, the last change must be a minute old.
        is_settled = is_remote or not identity.is_recent()
        why = _core.why_not_identified(descriptor) if is_settled else ""
        now = FileIdentity(*_core.content_identity(descriptor, ask=True))
        if why or expected not in (None, now):
            return now, why or "it is being written"
        if now == identity and is_settled:
            return now, ""
        if time.monotonic() > deadline:
            future = now == identity  # of another clock
            return now, "its time of change is in the future" if future else "it is being written"
        time.sleep(0.005)


class Contents(NamedTuple):
    """What a file contains: equal values are equal contents, on every file system and under any write."""

    identity: FileIdentity
    digest: str = ""
    """SHA-256 of the contents, where the identity may stay the same while they change; else empty."""

    @property
    def text(self) -> str:
        """What identifies the contents, as part of a key."""
        found = self.identity
        if self.digest:
            return f"{found.nbytes} bytes, sha256 {self.digest}"
        times = f"written {found.modified}, changed {found.changed}"
        return f"{found.nbytes} bytes, {times}, inode {found.inode} of {found.device}"

    def are_in(self, path: str | os.PathLike[str]) -> bool:
        """Return whether the file of a path has these contents; False if there is no such file."""
        with suppress(FileNotFoundError):
            return contents_of(path).digest == self.digest if self.digest else file_identity(path) == self.identity
        return False


def contents_of(path: str | os.PathLike[str]) -> Contents:
    """Identify what a file contains now: by its identity where each later write changes that, else by a digest.

    A digest reads the file, about 1 s per 1.5 GB: on tmpfs, while a process has the file open for writing, and where
    writers cannot be seen (a server, a file of another user) until the last change is a minute old.

    Raises
    ------
    FileNotFoundError, IsADirectoryError, OSError
        The path does not exist or cannot be read; it is a folder; it is no regular file.
    """
    expect_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - of a descriptor
        identity, why = identify_open(descriptor)
        if not why:
            return Contents(identity)
        file.seek(0)
        return Contents(identity, hashlib.file_digest(file, "sha256").hexdigest())
