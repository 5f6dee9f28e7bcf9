"""Files mapped as read-only memory, whole or in part.

A `Mapping` and its views (memoryviews, arrays) own the mapped memory, which is unmapped after `close` when the last
view is gone. The mapped pages are those of the page cache, so all processes on the machine share one copy.

**When not to use it.** For files that other programs edit in place. If a mapped file is truncated, reading the missing
part ends the process (SIGBUS). ``mode="copy"`` avoids this, and `guard` turns it into an error.

**Threads.** All functions and methods may be called from any thread.
"""

from __future__ import annotations

import abc
import errno
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

from onecopy import _core
from onecopy.base.text import non_negative, path_text, thread_count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["ArraysMode", "Identity", "Mapping", "Mode", "OpenFile", "check", "guard"]

Mode: TypeAlias = Literal["map", "copy"]
ArraysMode: TypeAlias = Literal["map", "copy", "snapshot"]
"""How arrays are opened: see `onecopy.open`."""
Identity: TypeAlias = tuple[int, int, int, int]
"""(device, inode, size in bytes, time of the last write in ns). Equal if the file is the same and unmodified."""
_Options: TypeAlias = tuple[int, int | None, Mode, bool, int]
"""The offset, length, mode, private and threads of a `Mapping`."""


def absolute(path: str) -> str:
    """Make a path absolute, for processes with other working directories, without resolving symbolic links."""
    return path if path.startswith("/") else os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - 10 us less


def open_regular(path: str) -> BinaryIO:
    """Open a regular file for reading. Raise OSError (ENODEV) for a device or a FIFO, on which `open` would block."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.ENODEV, "not a regular file (a FIFO, socket or device)", path)
    return file


def guard() -> None:
    """Install a SIGBUS handler that replaces unreadable mapped pages with zeros and records the loss.

    Without it, reading a mapped page ends the process (SIGBUS) if another program has truncated the file, the disk
    fails, or the network file system is unreachable. With it, the page (after a truncation, all pages from there to the
    end) reads as zeros in this process, and the next call on the file raises `DataLost`. Results that were computed
    between the fault and the error are wrong: call `check` before you use results. The handler stays installed until
    the process ends. Further calls do nothing.

    Only onecopy's mappings are guarded. Any other SIGBUS is passed to the previously installed handler, such as
    Python's faulthandler; if faulthandler is enabled after the guard, it prints its report once, and the program
    continues. A handler that is installed later and does not call the previous one disables the guard until `guard` is
    called again. The first SIGBUS that a program sends to itself (``signal.raise_signal``) is indistinguishable from
    one that faulthandler passes on, and is ignored. A system call on a lost page (``file.write(view)``) fails with
    EFAULT, with or without the guard.

    Raises
    ------
    OSError
        The signal handler cannot be installed.

    Examples
    --------
    >>> import onecopy as oc, os, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(b"x" * 100_000)
    >>> oc.files.guard()
    >>> mapping = oc.Mapping(path)
    >>> view = mapping.view()
    >>> os.truncate(path, 0)
    >>> view[50_000]  # without the guard, SIGBUS would end the process
    0
    >>> oc.files.check()
    Traceback (most recent call last):
        ...
    onecopy.DataLost: [Errno 5] read: the file was truncated to 0 bytes while mapped; ...
    """
    _core.guard()


def check() -> None:
    """Raise DataLost if any mapping of this process has lost bytes; data read from it may be zeros.

    If the file is open, every call raises the error; if it is closed, only one call does. Truncated files are detected
    even if no lost page was read, and even without `guard`. The check costs one system call per open mapping.

    Raises
    ------
    DataLost
        The first loss found, with ``filename``, and ``offset`` in bytes.
    """
    _core.check()


class Closeable:
    """Base class of objects that own a system resource until `close` is called or the ``with`` block ends."""

    __slots__ = ()

    def close(self) -> None:
        """Release the resource. Further calls do nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OpenFile(Closeable, abc.ABC):
    """Base class of open files, with the path, the identity, the number of views, and `close`."""

    _path: str

    @abc.abstractmethod
    def _mappings(self) -> Sequence[_core.Mapping]:
        """Return the mappings of all files, beginning with the mapping of `path`."""

    @property
    def path(self) -> str:
        """The path that was used to open the file. For several files, it is the path of the index or the model."""
        return self._path

    @property
    def identity(self) -> Identity:
        """The identity of the file at `path` when it was opened: device, inode, size in bytes, last write in ns."""
        return self._mappings()[0].identity

    def changed(self) -> bool:
        """Return whether a file has been modified or replaced since it was opened."""
        return any(mapping.changed() for mapping in self._mappings())

    @property
    def views(self) -> int:
        """The number of views (arrays, memoryviews) in use. They keep the memory mapped after `close`."""
        return sum(mapping.views for mapping in self._mappings())

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._mappings()[0].closed


class Mapping(OpenFile):
    """A file, or part of it, that is mapped into memory. `view` returns its bytes as a memoryview, without copying.

    Parameters
    ----------
    path
        A regular file; symbolic links are followed.
    offset, length
        The range in bytes; it need not be aligned. ``length=None``: to the end of the file.
    mode
        "map": the pages of the page cache, shared with all processes. "copy": the bytes are read into private memory,
        in huge pages, by `threads` threads.
    private
        True: writable copy-on-write memory. Writing to a page makes a private copy of it; the file never changes.
    threads
        Number of threads that read for ``mode="copy"``; None: 8.

    Raises
    ------
    OSError
        FileNotFoundError, PermissionError, IsADirectoryError, ... with ``filename`` and ``errno``. ENODATA: the file is
        empty. ENODEV: it is a FIFO, socket or device. EINVAL: the range is beyond the end of the file.

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
        self._set(path_text(path), (offset, length, mode, private, thread_count(threads)))

    def _set(self, path: str, options: _Options, expected: Identity | None = None, *, fd: int | None = None) -> None:
        self._path, self._options = path, options
        offset, length, mode, private, threads = options
        if mode not in ("map", "copy"):
            raise ValueError(f"mode must be 'map' or 'copy', not {mode!r}")
        offset = non_negative("offset", offset)
        length = None if length is None else non_negative("length", length)
        copy = mode == "copy"
        if fd is None:
            self._core = _core.open_mapping(
                path,
                offset=offset,
                length=length,
                copy=copy,
                private_pages=private,
                threads=threads,
                expected=expected,
            )
        else:
            self._core = _core.map_descriptor(fd, path, offset=offset, length=length, copy=copy, private_pages=private)
        self._absolute = absolute(path) if fd is None else ""

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
        """Map the file to which an open descriptor refers, such as a memfd or an unlinked file.

        The descriptor is duplicated, so the caller still owns the original. Errors show `name` instead of a path. The
        mapping cannot be pickled. For the other parameters and the errors, see `Mapping`.

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
        self._set(name or f"<descriptor {fd}>", (offset, length, mode, private, 0), fd=fd)
        return self

    def view(self, offset: int = 0, length: int | None = None) -> memoryview:
        """Return a range of the mapping as a memoryview, without copying. With ``private=True``, it is writable.

        The view keeps the memory mapped after `close`. Raise IndexError if the range is beyond the end of the mapping.
        """
        offset = non_negative("offset", offset)
        rest = max(self.nbytes - offset, 0) if length is None else non_negative("length", length)
        return self._core.view(offset, rest)

    def fileno(self) -> int:
        """Return the file descriptor. The mapping owns it, so do not close it."""
        return self._core.fileno()

    def close(self) -> None:
        """Close the mapping. The memory is unmapped when the last view is gone. Further calls do nothing."""
        self._core.close()

    def _mappings(self) -> tuple[_core.Mapping]:
        return (self._core,)

    @property
    def core(self) -> _core.Mapping:
        """The mapping as an object of the compiled module, for `onecopy.files.page_cache`."""
        return self._core

    @property
    def nbytes(self) -> int:
        """Size of the mapped range in bytes."""
        return self._core.nbytes

    @property
    def address(self) -> int:
        """Address of the first byte, equal to its file offset modulo 2 MiB. The 64 bytes after the end are readable."""
        return self._core.address

    def __len__(self) -> int:
        return self.nbytes

    def __getstate__(self) -> tuple[object, ...]:
        if not self._absolute:
            raise TypeError(f"cannot pickle {self!r}, because it has no path: send its descriptor instead")
        return self._absolute, self._options, self.identity

    def __setstate__(self, state: tuple[Any, ...]) -> None:  # raises FileChanged if the file has changed
        self._set(*state)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.nbytes} bytes, {self._options[2]}"
        return f"<onecopy.{type(self).__name__} {self._path!r} {state}>"
