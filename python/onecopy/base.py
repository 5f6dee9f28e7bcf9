"""Errors of onecopy, and checks of what callers give.

The system refused: OSError and its built-in classes. The bytes are wrong: FormatError.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class FormatError(ValueError):
    """The bytes of a file are not what its format asks for.

    The message names the file, the array or the byte, what was expected and what was found.
    """


class BadBlock(NamedTuple):
    """A block whose bytes are not what was written."""

    number: int
    offset: int
    """Bytes from the start of the file."""
    length: int
    """Bytes."""
    expected: int
    """The CRC-32C that was stored."""
    found: int
    """The CRC-32C of the bytes as they are now."""
    names: tuple[str, ...]
    """The arrays that have bytes in the block; which of them is damaged is not known."""


class ChecksumError(FormatError):
    """The bytes of a file do not agree with the checksums that were stored with them.

    The message names the file and the first damaged block; ``blocks`` has all of them.
    """

    blocks: tuple[BadBlock, ...] = ()
    """Empty where it is the header that does not agree."""


class NoChecksum(FormatError):
    """There is nothing to verify a file against: another tool wrote it, or it was saved with ``checksum=False``."""


class DataLost(OSError):
    """A mapped file lost bytes: it was truncated by another program, or the device failed.

    ``filename`` is the path, ``errno`` is EIO. Raised by calls that would otherwise have died of SIGBUS.
    """

    offset: int | None = None
    """Where in the file bytes are missing, where that is known."""


class FileChanged(OSError):
    """The path leads to another file than the one that was opened or pickled, or the file was written since.

    ``filename`` is the path, ``errno`` is ESTALE.
    """


class Closing:
    """What holds something of the system, and gives it back in `close`, or at the end of a ``with`` block."""

    __slots__ = ()

    def close(self) -> None:
        """Give back what is held; more than once does no harm."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def natural(name: str, number: int | None) -> int:
    """Return `number`, or 0 for None; ValueError when negative, so that no sign reaches 64-bit arithmetic.

    More than 64 bits can say is beyond every file, and so is the largest number they can say.
    """
    if number is not None and number < 0:
        raise ValueError(f"{name} must not be negative, but is {number}")
    return min(number or 0, 2**64 - 1)


def thread_count(number: int | None) -> int:
    """Return a number of threads, 0 for None; more than 1024 are 1024."""
    return min(natural("threads", number), 1024)


def few_processors() -> int:
    """Return the processors that this process may use, 4 at most: threads that decode hold memory each."""
    return min(4, processors())


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_regular(path: str) -> BinaryIO:
    """Open a file for reading; a FIFO, for which `open` would wait, a socket or a device is an OSError (ENODEV)."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.ENODEV, "not a regular file (a FIFO, socket or device)", path)
    return file


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text; ValueError for a NUL in it, as the built-in open has it."""
    text = os.fsdecode(path)
    if "\0" in text:
        raise ValueError("embedded null byte")
    return text
