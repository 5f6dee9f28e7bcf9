"""A file as read-only memory: any file, whole or in part.

`Mapping` is the one owner. What you take from it (memoryviews, arrays) keeps the memory alive, also after `close`,
until the last view is gone. Mapped memory is the page cache's own: one copy for all processes of the machine.

When not to use it: for files that other programs edit in place. A file that is truncated while mapped kills the
process that touches the lost part (SIGBUS); ``mode="copy"`` is safe from that, and `guard` turns it into an error.
Threads: any.
"""

from __future__ import annotations

import abc
import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

from onecopy import _core
from onecopy.arguments import non_negative, path_text, thread_count

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Identity", "Mapping", "Mode", "OpenFile", "check", "guard"]

Mode: TypeAlias = Literal["map", "copy"]
Identity: TypeAlias = tuple[int, int, int, int]
"""(device, inode, size in bytes, time of the last write in ns): equal for the same, unchanged file."""


def check_mode(mode: Mode) -> bool:
    """Return True for "copy", False for "map"; ValueError for anything else."""
    if mode not in ("map", "copy"):
        raise ValueError(f"mode must be 'map' or 'copy', not {mode!r}")
    return mode == "copy"


def absolute(path: str) -> str:
    """Return `path` as another process can use it, whatever its working folder; links stay as they are."""
    return path if path.startswith("/") else os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - 10 us less


def open_regular(path: str) -> BinaryIO:
    """Open a file for reading; a FIFO, for which `open` would wait, a socket or a device is an OSError (ENODEV)."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.ENODEV, "not a regular file (a FIFO, socket or device)", path)
    return file


def guard() -> None:
    """Survive pages that cannot be read: they become zeros and a recorded loss, instead of the end of the process.

    Opt-in, for the whole process, until it ends; calling it twice is fine. A file that is truncated by another program,
    a disk that fails, a network file system that goes away: touching such a page raises SIGBUS. With the guard the page
    (after a truncation, everything behind it) reads as zeros in this process, and the next call on the file raises
    `DataLost`. Results that were computed between the fault and the error are wrong: call `check` before you use them.

    Only mappings of onecopy are guarded. Every other SIGBUS goes to the handler that stood there before, such as
    Python's faulthandler; enabled after the guard, faulthandler prints its report once, and the program goes on. A
    handler that is installed later and passes nothing on disables the guard: call `guard` again after it. Because that
    looks the same, the first SIGBUS that a program sends to itself (``signal.raise_signal``) is taken for
    faulthandler's, and does nothing. A system call that is given a lost page (``file.write(view)``) fails with EFAULT
    by itself.

    Raises
    ------
    OSError
        No handler can be installed.

    Examples
    --------
    >>> import onecopy as oc, os, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(b"x" * 100_000)
    >>> oc.guard()
    >>> mapping = oc.Mapping(path)
    >>> view = mapping.view()
    >>> os.truncate(path, 0)
    >>> view[50_000]  # would have been the end
    0
    >>> oc.check()
    Traceback (most recent call last):
        ...
    onecopy.DataLost: [Errno 5] read: the file was truncated to 0 bytes while mapped; ...
    """
    _core.guard()


def check() -> None:
    """Raise if any mapping of this process has lost bytes, so that what was read may have been zeros.

    Files that are open tell it each time, files that were closed since once. Files that became shorter are found also
    where no page was touched, and without `guard`. Costs a system call for each open mapping.

    Raises
    ------
    DataLost
        The first loss: ``filename``, and ``offset`` in bytes.
    """
    _core.check()


class Closeable:
    """What holds something of the system, and gives it back in `close`, or at the end of a ``with`` block."""

    __slots__ = ()

    def close(self) -> None:
        """Release what is held; calling it again does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OpenFile(Closeable, abc.ABC):
    """What every open file of onecopy has: its path, its identity, its views, and an end."""

    _path: str

    @property
    @abc.abstractmethod
    def core(self) -> _core.Mapping:
        """The compiled half's mapping, for `onecopy.page_cache`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release the mapping; memory goes with the last view. Closing twice is fine."""

    @property
    def path(self) -> str:
        """The path as given."""
        return self._path

    @property
    def identity(self) -> Identity:
        """Which file this is: (device, inode, size, mtime in ns)."""
        return self.core.identity

    def changed(self) -> bool:
        """Return whether the path now leads to another file, or the file was written or truncated since."""
        return self.core.changed()

    @property
    def views(self) -> int:
        """How many views (arrays, memoryviews) are alive; they keep the memory after `close`."""
        return self.core.views

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self.core.closed


class Mapping(OpenFile):
    """Part or all of a file in memory; supports the buffer protocol through `memoryview(mapping.view())`.

    Parameters
    ----------
    path
        A regular file; symbolic links are followed.
    offset, length
        In bytes, any numbers: page boundaries are not your business. None: to the end.
    mode
        "map" looks at the page cache; "copy" reads into a private block, in huge pages, with `threads` threads.
    private
        True gives writable copy-on-write memory: the file never changes, a page you write becomes private.
    threads
        Of ``mode="copy"``; None: 8.

    Raises
    ------
    OSError
        FileNotFoundError, PermissionError, IsADirectoryError, ... with ``filename`` and ``errno``: also for an empty
        file (ENODATA), a FIFO or device (ENODEV), a range that is longer than the file (EINVAL).

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(b"hello, world")
    >>> with oc.Mapping(path, offset=7) as mapping:
    ...     bytes(mapping.view())
    b'world'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        offset: int = 0,
        length: int | None = None,
        *,
        mode: Mode = "map",
        private: bool = False,
        threads: int | None = None,
    ) -> None:
        length = None if length is None else non_negative("length", length)
        self._set(
            path_text(path),
            non_negative("offset", offset),
            length,
            mode,
            private,
            thread_count(threads),
            None,
        )

    def _set(
        self,
        path: str,
        offset: int,
        length: int | None,
        mode: Mode,
        private: bool,
        threads: int,
        expected: Identity | None,
    ) -> None:
        self._options = (offset, length, mode, private, threads)
        self._path = path
        self._core = _core.open_mapping(path, offset, length, check_mode(mode), private, threads, expected)
        self._absolute = absolute(path)

    @classmethod
    def from_descriptor(
        cls,
        fd: int,
        name: str | None = None,
        offset: int = 0,
        length: int | None = None,
        *,
        mode: Mode = "map",
        private: bool = False,
    ) -> Self:
        """Map an open descriptor (a memfd, an unlinked file). It is duplicated; you keep and close your own.

        `name` stands for the path in errors. Such a mapping cannot be pickled.

        Examples
        --------
        >>> import os, onecopy as oc
        >>> fd = os.memfd_create("scratch")
        >>> _ = os.write(fd, b"abc")
        >>> bytes(oc.Mapping.from_descriptor(fd).view())
        b'abc'
        >>> os.close(fd)
        """
        self = cls.__new__(cls)
        self._path = name or f"<descriptor {fd}>"
        self._options = (offset, length, mode, private, 0)
        self._absolute = ""
        length = None if length is None else non_negative("length", length)
        self._core = _core.map_descriptor(
            fd, self._path, non_negative("offset", offset), length, check_mode(mode), private
        )
        return self

    def view(self, offset: int = 0, length: int | None = None) -> memoryview:
        """Return bytes of the mapping without a copy; read-only unless opened with ``private=True``.

        The memory stays as long as the view, whatever becomes of the Mapping. IndexError beyond its end.
        """
        offset = non_negative("offset", offset)
        rest = max(self.nbytes - offset, 0) if length is None else non_negative("length", length)
        return self._core.view(offset, rest)

    def fileno(self) -> int:
        """Return the descriptor, which stays ours: for system calls, not for closing."""
        return self._core.fileno()

    def close(self) -> None:
        """Release the mapping; memory goes with the last view. Closing twice is fine."""
        self._core.close()

    @property
    def core(self) -> _core.Mapping:
        """The compiled half."""
        return self._core

    @property
    def nbytes(self) -> int:
        """Bytes of the mapping."""
        return self._core.nbytes

    @property
    def address(self) -> int:
        """Address of the first byte: equal to the file offset modulo 2 MiB; 64 bytes after the end can be read."""
        return self._core.address

    def __len__(self) -> int:
        return self.nbytes

    def __reduce__(self) -> tuple[object, ...]:
        if not self._absolute:
            raise TypeError(f"{self!r} has no path: pass its descriptor to the other process instead")
        return _reattach, (type(self), self._absolute, *self._options, self.identity)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.nbytes} bytes, {self._options[2]}"
        return f"<onecopy.{type(self).__name__} {self._path!r} {state}>"


def _reattach(
    cls: type[Mapping],
    path: str,
    offset: int,
    length: int | None,
    mode: Mode,
    private: bool,
    threads: int,
    identity: Identity,
) -> Mapping:
    """Open again what was pickled in another process; FileChanged if the path leads elsewhere by now."""
    mapping = cls.__new__(cls)
    mapping._set(path, offset, length, mode, private, threads, identity)
    return mapping
