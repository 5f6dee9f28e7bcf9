"""Errors of onecopy, and checks of what callers give.

The system refused: OSError and its built-in classes. The bytes are wrong: FormatError.
"""

import os


class FormatError(ValueError):
    """The bytes of a file are not what its format asks for.

    The message names the file, the array or the byte, what was expected and what was found.
    """


class DataLost(OSError):
    """A mapped file lost bytes: it was truncated by another program, or the device failed.

    ``filename`` is the path, ``errno`` is EIO. Raised by calls that would otherwise have died of SIGBUS.
    """


class FileChanged(OSError):
    """The path leads to another file than the one that was opened or pickled, or the file was written since.

    ``filename`` is the path, ``errno`` is ESTALE.
    """


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


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text; ValueError for a NUL in it, as the built-in open has it."""
    text = os.fsdecode(path)
    if "\0" in text:
        raise ValueError("embedded null byte")
    return text
