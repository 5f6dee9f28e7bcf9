"""What identifies a run of the kernel, a process in it, and the contents of a file."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from typing import NamedTuple

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


def _now_of_files() -> int:
    """Return the time that a write would leave, in ns; on Linux it lags where ticks are late, as in a busy guest."""
    return time.clock_gettime_ns(_COARSE) if sys.platform == "linux" else time.time_ns()


def file_identity(path: str | os.PathLike[str] | int) -> tuple[FileIdentity, bool]:
    """Return the identity of a regular file, and whether a write that happens now might leave it the same.

    That is so if the file was changed within the granularity of the clock of the file system before now: such an
    identity holds only once that time has passed. OSError for a folder, device, FIFO or socket.
    """
    found = os.stat(path)  # noqa: PTH116 - a descriptor too
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a folder cannot be identified: give the files in it", path)
    if not stat.S_ISREG(found.st_mode):  # opening a FIFO would wait
        raise OSError(errno.ENODEV, "not a regular file (a FIFO, socket or device)", path)
    identity = FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    tick = 2_000_000_000 if found.st_ctime_ns % 1_000_000_000 == 0 else 20_000_000  # whole seconds: FAT, ext3
    return identity, found.st_ctime_ns > _now_of_files() - tick


def settled_identity(
    path: str | os.PathLike[str] | int, *, expected: FileIdentity | None = None
) -> tuple[FileIdentity, bool]:
    """Wait until a file has not been changed for 20 ms; return its identity, and whether each later write changes it.

    Waits 2.1 s at most (times in the future are those of another clock), and no longer than the identity is `expected`.
    """
    identity, is_recent = file_identity(path)
    deadline = time.monotonic() + 2.1 if is_recent else 0
    while is_recent and time.monotonic() < deadline and expected in (None, identity):
        time.sleep(0.005)
        identity, is_recent = file_identity(path)
    return identity, not is_recent
