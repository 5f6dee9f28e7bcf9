"""Errors of onecopy.

The system refused: OSError and its built-in classes. The bytes are wrong: FormatError.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BadBlock", "ChecksumError", "DataLost", "FileChanged", "FormatError", "NoChecksum", "NotShareable"]


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


class NotShareable(TypeError):
    """A value that no records file can hold; the message begins with its path: ``[12].bbox[3]: ...``."""


for _error in (ChecksumError, DataLost, FileChanged, FormatError, NoChecksum, NotShareable):
    _error.__module__ = "onecopy"  # what users import, catch and read in a traceback
