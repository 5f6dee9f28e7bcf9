"""The exceptions that onecopy defines.

Failed system calls raise OSError or one of its built-in subclasses; invalid contents of files raise `FormatError`.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BadBlock", "ChecksumError", "DataLost", "FileChanged", "FormatError", "NoChecksum", "NotShareable"]


class FormatError(ValueError):
    """The contents of a file are invalid for its format.

    The message names the file, the array or the byte offset, the expected value and the value found.
    """


class BadBlock(NamedTuple):
    """A block of a file whose bytes do not match the stored checksum."""

    number: int
    """Index of the block in the file, from 0."""
    offset: int
    """Position of the block, in bytes from the start of the file."""
    length: int
    """Size of the block in bytes."""
    expected: int
    """CRC-32C that is stored in the file."""
    found: int
    """CRC-32C of the bytes that were read."""
    names: tuple[str, ...]
    """Names of all arrays that have bytes in the block; any of them may be damaged."""


class ChecksumError(FormatError):
    """The contents of a file do not match its stored checksums.

    The message names the file and the first damaged block; ``blocks`` lists all damaged blocks.
    """

    blocks: tuple[BadBlock, ...] = ()
    """The damaged blocks; empty if the checksum of the header does not match."""


class NoChecksum(FormatError):
    """A file cannot be verified, because it has no checksums: written by another tool, or with ``checksum=False``."""


class DataLost(OSError):
    """A mapped file lost bytes: another program truncated it, or the device failed.

    ``filename`` is the path, ``errno`` is EIO. Raised instead of the SIGBUS that would end the process.
    """

    offset: int | None = None
    """Position of the first lost byte in the file, in bytes; None if unknown."""


class FileChanged(OSError):
    """A path refers to another file than when it was opened or pickled, or the file was modified since then.

    ``filename`` is the path, ``errno`` is ESTALE.
    """


class NotShareable(TypeError):
    """A value cannot be stored in a records file; the message begins with its path in it: ``[12].bbox[3]: ...``."""


for _error in (ChecksumError, DataLost, FileChanged, FormatError, NoChecksum, NotShareable):
    _error.__module__ = "onecopy"  # what users import, catch and read in a traceback
