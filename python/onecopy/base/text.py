"""Text for output, such as sizes in decimal units, and checks of arguments: paths, sizes, numbers of threads.

Names from files and processes may contain terminal escape sequences; `escape` makes them safe to print.
"""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeGuard

_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories of characters that are escaped: control, format, surrogate, private, unassigned, separators."""
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_SUFFIXES = {"": 1, "b": 1} | {
    letter + suffix: base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}


def significant(value: float) -> str:
    """Return a number with three significant digits, but always with all digits before the decimal point."""
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:.{digits}f}"


def size(nbytes: int) -> str:
    """Return a number of bytes as text with a decimal unit: "90.9 MB"."""
    value = float(nbytes)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{nbytes} B" if unit == "B" else f"{significant(value)} {unit}"


def amount(times: int, nbytes: int) -> str:
    """Return a count and a size as text, for the first column of a report: "  4 x 200 MB"."""
    return f"{f'{times} x {size(nbytes)}' if times > 1 else size(nbytes):>12}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a count with its noun. Without `many`, the plural is formed with "s"."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def parse_size(text: str) -> int:
    """Convert a size such as "2GiB", "500 MB" or "4096" to bytes. Raise ValueError if the text is not a size."""
    return int(parse_quantity(text, _SUFFIXES, "a size such as 500MB or 2GiB"))


def parse_quantity(text: str, units: Mapping[str, float], what: str) -> float:
    """Convert text such as "1.5 h" to a number. Keys of `units` are in lower case; error messages contain `what`."""
    import re  # here, because opening a file does not need it

    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if found is None or found.group(2) not in units:
        raise ValueError(f"{text!r} is not {what}")
    return float(found.group(1)) * units[found.group(2)]


def escape(text: str) -> str:
    """Backslash-escape control, invisible and undecodable characters in a string."""
    if text.isascii() and text.isprintable():
        return text
    import unicodedata  # here, because opening a file does not need it

    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in _UNSAFE else character
        for character in text
    )


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
        raise ValueError(f"expected a path, found a URL with the unsupported protocol {text.partition(':')[0]!r}")
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
    """Return `number`, limited to 2**64 - 1, or 0 for None. Raise ValueError if it is negative."""
    if number is not None and number < 0:
        raise ValueError(f"{name} must not be negative: {number}")
    return min(number or 0, 2**64 - 1)


def byte_count(name: str, size: int | str) -> int:
    """Convert a size, an integer or text such as "512 MiB", to bytes. Raise ValueError if the text is not a size."""
    if not isinstance(size, str):
        return non_negative(name, operator.index(size))
    return parse_size(size)


def thread_count(number: int | None) -> int:
    """Return a number of threads, limited to 1024. None becomes 0, which stands for the core's default."""
    return min(non_negative("threads", number), 1024)


def cpu_count() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))
