"""The exceptions of onecopy. All derive from `Error`, and from the matching built-in exception.

Failed system calls raise OSError or one of its built-in subclasses, such as FileNotFoundError. Other errors about files
and values are the exceptions below. `onecopy` also exports `Error`, `FormatError`, `ChecksumError` and `DataLost`.

Examples
--------
>>> import onecopy as oc, tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp(), "weights.safetensors")
>>> _ = path.write_bytes(bytes(4))
>>> try:
...     oc.open(path)
... except oc.FormatError as error:
...     error.kind.name, error.offset, error.path == str(path)
('TRUNCATED', 4, True)
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeVar

__all__ = [
    "BadBlock",
    "ChecksumError",
    "DataLost",
    "Error",
    "FileChanged",
    "FormatError",
    "NoChecksum",
    "NotEnoughMemory",
    "NotShareable",
]


class Error(Exception):
    """The base class of all exceptions that onecopy defines."""


class FormatError(Error, ValueError):
    """The contents of a file are invalid for its format, or a value cannot be stored in a format.

    The message gives the file, the array or the byte offset, the expected value and the value found. Programs can use
    the attributes ``kind``, ``path``, ``offset`` and ``found``.
    """

    class Kind(Enum):
        """The kinds of format errors."""

        NOT_THIS_FORMAT = "not_this_format"
        """The file's format or contents are not what the call expects."""
        UNSUPPORTED = "unsupported"
        """onecopy does not support this version, encoding or type, or the format cannot store it."""
        TRUNCATED = "truncated"
        """The data is shorter than its declared size."""
        OUT_OF_BOUNDS = "out_of_bounds"
        """An offset, a size or an index is out of range."""
        MALFORMED = "malformed"
        """The bytes break a rule of the format, such as its grammar."""
        INCONSISTENT = "inconsistent"
        """Two parts contradict each other: a duplicate name, an overlap, a checksum."""
        TOO_COSTLY = "too_costly"
        """A limit is exceeded. Limits prevent a small file from consuming much memory or time."""

    kind: Kind = Kind.MALFORMED
    """The kind of error."""
    path: str | None = None
    """Path or URL of the file, or None if unknown."""
    offset: int | None = None
    """Position of the error in the file, in bytes, or None if unknown."""
    found: str | None = None
    """The actual format of the file ("PNG image", "pickle", "SQLite database"), or None if unknown."""

    def __init__(
        self,
        message: str = "",
        kind: Kind | None = None,
        *,
        path: str | None = None,
        offset: int | None = None,
        found: str | None = None,
    ) -> None:
        super().__init__(message if path is None else f"{path}: {message}")
        given = {"kind": kind, "path": path, "offset": offset, "found": found}
        vars(self).update({name: value for name, value in given.items() if value is not None})


Kind = FormatError.Kind
_E = TypeVar("_E", bound=FormatError)


def retyped(error: FormatError, into: type[_E], message: str) -> _E:
    """Return an error with a new type and message, and the attributes of `error`."""
    made = into(message)
    made.__dict__.update(error.__dict__)
    return made


class BadBlock(NamedTuple):
    """A block of a file whose bytes do not match the stored checksum."""

    number: int
    """Index of the block in the file, from 0."""
    offset: int
    """Position of the block, in bytes from the start of the file."""
    length: int
    """Size of the block in bytes."""
    expected: int
    """CRC-32C stored in the file."""
    found: int
    """CRC-32C of the bytes that were read."""
    names: tuple[str, ...]
    """Names of all arrays that have bytes in the block. Any of them may be damaged."""


class ChecksumError(FormatError):
    """The contents of a file do not match its stored checksums.

    The message states the file and the first damaged block; ``blocks`` lists all damaged blocks.
    """

    kind = FormatError.Kind.INCONSISTENT
    blocks: tuple[BadBlock, ...] = ()
    """The damaged blocks; empty if the header's checksum does not match."""


class NoChecksum(FormatError):
    """The file contains no checksums: another tool wrote it, or `save` was called with ``checksum=False``."""

    kind = FormatError.Kind.UNSUPPORTED


class NotEnoughMemory(Error, OSError, MemoryError):
    """An operation needs more memory than this process may use, so the kernel would end the process.

    The message states how many bytes are needed and available, whether a control group or the machine limits them, and
    what to do instead. ``errno`` is ENOMEM; ``filename`` is the path, if there is one.

    Examples
    --------
    >>> from onecopy.files.page_cache import expect_memory
    >>> try:
    ...     expect_memory("1000 TB")
    ... except MemoryError as error:
    ...     type(error).__name__, error.errno
    ('NotEnoughMemory', 12)
    """


class DataLost(Error, OSError):
    """A mapped file lost bytes: another program truncated it, or the device failed.

    ``filename`` is the path, and ``errno`` is EIO. It is raised instead of the SIGBUS that would end the process.
    """

    offset: int | None = None
    """Position of the first lost byte in the file, in bytes, or None if unknown."""


class FileChanged(Error, OSError):
    """A file was replaced or modified after it was opened or pickled.

    ``filename`` is the path, and ``errno`` is ESTALE.
    """


class NotShareable(Error, TypeError):
    """A value cannot be stored in a records file. The message begins with the value's path: ``[12].bbox[3]: ...``."""


for _error in (ChecksumError, DataLost, Error, FormatError):
    _error.__module__ = "onecopy"  # the name that users import, catch and read in a traceback
