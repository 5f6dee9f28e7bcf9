"""Identities of the current boot of the machine, of files, and of their contents."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from typing import NamedTuple

from onecopy import _core

_COARSE = 5
"""Linux's CLOCK_REALTIME_COARSE, for which the module `time` has no name."""


def boot_identity() -> str:
    """Return the identity of the current boot, or "" if the system does not provide one."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123 - without the import of pathlib
            return file.read().strip()
    except OSError:
        return ""


class FileIdentity(NamedTuple):
    """The identity of a file's current contents. Every write or replacement changes at least one field."""

    device: int
    inode: int
    nbytes: int
    modified: int
    """Time of the last write, in ns. Programs can set it."""
    changed: int
    """Time of the last change to the contents or to the inode, in ns. Programs cannot set it."""

    def is_recent(self) -> bool:
        """Return whether a write that happens now could leave the identity unchanged."""
        tick = 2_000_000_000 if self.changed % 1_000_000_000 == 0 else 20_000_000  # whole seconds: FAT, ext3
        return self.changed > _now_of_files() - tick


def _now_of_files() -> int:
    """Return the time in ns that the kernel would record for a write now. In a busy virtual machine, it lags behind."""
    return time.clock_gettime_ns(_COARSE)


def expect_regular(path: str | os.PathLike[str] | int) -> os.stat_result:
    """Return the status of a regular file. Raise OSError for a folder, device, FIFO or socket."""
    found = os.stat(path)  # noqa: PTH116 - a descriptor too
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "expected a file, found a folder: pass the files in it", path)
    if not stat.S_ISREG(found.st_mode):  # opening a FIFO would block
        raise OSError(errno.ENODEV, "not a regular file (a FIFO, socket or device)", path)
    return found


def file_identity(path: str | os.PathLike[str] | int) -> FileIdentity:
    """Return the current identity of a regular file. Raise OSError for a folder, device, FIFO or socket.

    Comparing it with an identity that `identify_open` returned shows whether the file was modified or replaced. On its
    own, it does not identify contents, because a write that happens now might not change it.
    """
    found = expect_regular(path)
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def identify_open(descriptor: int, expected: FileIdentity | None = None) -> tuple[FileIdentity, str]:
    """Return an open file's identity, and the reason why a later write might not change it, or "" if every write will.

    Wait until the next write would get a later time than the last one: usually until 20 ms after a write, at most
    2.1 s, and only while the identity equals `expected`. If writers cannot be detected, write back dirty pages.
    """
    deadline, is_remote = time.monotonic() + 2.1, _core.is_remote(descriptor)
    while True:
        identity = FileIdentity(*_core.content_identity(descriptor, ask=True))
        # The clock of a server may differ: `why_not_identified` requires that the last change is a minute old.
        is_settled = is_remote or not identity.is_recent()
        why = _core.why_not_identified(descriptor) if is_settled else ""
        now = FileIdentity(*_core.content_identity(descriptor, ask=True))
        if why or expected not in (None, now):
            return now, why or "it is being written"
        if now == identity and is_settled:
            return now, ""
        if time.monotonic() > deadline:
            future = now == identity  # by another clock
            return now, "its time of change is in the future" if future else "it is being written"
        time.sleep(0.005)


class Contents(NamedTuple):
    """The identity of a file's contents: on every file system, equal identities mean equal contents."""

    identity: FileIdentity
    digest: str = ""
    """SHA-256 of the contents, or "" if every write changes `identity`."""

    @property
    def text(self) -> str:
        """The identity as text, for keys."""
        found = self.identity
        if self.digest:
            return f"{found.nbytes} bytes, sha256 {self.digest}"
        times = f"written {found.modified}, changed {found.changed}"
        return f"{found.nbytes} bytes, {times}, inode {found.inode} of {found.device}"

    def are_in(self, path: str | os.PathLike[str]) -> bool:
        """Return whether the file at a path exists and has these contents."""
        with suppress(FileNotFoundError):
            return contents_of(path).digest == self.digest if self.digest else file_identity(path) == self.identity
        return False


def contents_of(path: str | os.PathLike[str]) -> Contents:
    """Identify a regular file's current contents, using a digest if a later write might not change its identity.

    The digest takes about 1 s per 1.5 GB. It is used on tmpfs, while a process has the file open for writing, and, if
    writers cannot be detected (on a server, or in another user's file), until the last change is a minute old.
    """
    expect_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        identity, why = identify_open(descriptor)
        if not why:
            return Contents(identity)
        import hashlib  # here, because it loads OpenSSL (0.5 MB)

        return Contents(identity, hashlib.file_digest(file, "sha256").hexdigest())
