"""Checks of arguments (paths, sizes, numbers of threads), and the number of CPUs."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING

from onecopy.base.text import parse_size

if TYPE_CHECKING:
    from typing import TypeGuard

SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "file"})
"""Schemes of the URLs that `onecopy.remote` fetches."""


def is_url(path: object) -> TypeGuard[str]:
    """Return whether `path` is a string that begins with one of the `SCHEMES`."""
    return isinstance(path, str) and "://" in path and path.split("://", 1)[0].lower() in SCHEMES


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as a string. Raise ValueError for a NUL byte or a URL, without revealing the URL's password."""
    try:
        text = path if type(path) is str else os.fsdecode(path)
    except TypeError:
        if isinstance(getattr(path, "path", None), str):
            raise TypeError(f"expected a path, not an opened file ({type(path).__name__}): pass its .path") from None
        raise
    if "\0" in text:
        raise ValueError("embedded null byte")
    if ":/" in text and "@" in text.partition(":/")[2].lstrip("/").partition("/")[0]:
        raise ValueError(f"expected a path, found a URL of the unsupported protocol {text.partition(':')[0]!r}")
    return text


def is_text(name: object) -> TypeGuard[str]:
    """Return whether `name` can be the name of an array: a str without unpaired surrogates."""
    if not isinstance(name, str):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def non_negative(name: str, number: int | None) -> int:
    """Return `number`, at most 2**64 - 1, or 0 for None. Raise ValueError if it is negative."""
    if number is not None and number < 0:
        raise ValueError(f"{name} must not be negative: {number}")
    return min(number or 0, 2**64 - 1)


def byte_count(name: str, size: int | str) -> int:
    """Convert a size, an integer or text such as "512 MiB", to bytes. Raise ValueError if the text is not a size."""
    if not isinstance(size, str):
        return non_negative(name, operator.index(size))
    return parse_size(size)


def thread_count(number: int | None) -> int:
    """Return a number of threads, at most 1024. None becomes 0, which stands for the core's default."""
    return min(non_negative("threads", number), 1024)


def decoder_threads() -> int:
    """Return the default number of decoding threads: one per CPU, but at most 4, because each thread holds buffers."""
    return min(4, cpu_count())


def cpu_count() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))
