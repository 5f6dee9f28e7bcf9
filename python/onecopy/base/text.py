"""Text for output: formatting and parsing of sizes, and escaping of control characters in untrusted text.

Sizes are printed in decimal units (1 MB = 10**6 bytes), as on disks and model cards. A name read from a file or a
process may contain terminal escape sequences: `escape` makes it safe to print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories of characters that are escaped: control, format, surrogate, private, unassigned, separators."""
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_SUFFIXES = {"": 1, "b": 1} | {
    letter + suffix: base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}


def significant(value: float) -> str:
    """Return a number with three significant digits, or more where it has more digits before the decimal point.

    Examples
    --------
    >>> [significant(value) for value in (0, 0.1234, 1.234, 12.34, 123.4, 12345.6)]
    ['0', '0.123', '1.23', '12.3', '123', '12346']
    """
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:.{digits}f}"


def size(nbytes: int) -> str:
    """Return a number of bytes as text with a decimal unit.

    Examples
    --------
    >>> size(999), size(90_868_376), size(2**31)
    ('999 B', '90.9 MB', '2.15 GB')
    """
    value = float(nbytes)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{nbytes} B" if unit == "B" else f"{significant(value)} {unit}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a count with its noun; without `many`, the plural ends in "s".

    Examples
    --------
    >>> counted(1, "array"), counted(20_000, "array"), counted(2, "process", "processes")
    ('1 array', '20000 arrays', '2 processes')
    """
    return f"{number} {one if number == 1 else many or one + 's'}"


def parse_size(text: str) -> int:
    """Return the number of bytes of a size given as text: "2GiB", "500 MB", "4096"; units are decimal or binary.

    Raises
    ------
    ValueError
        The text is not a number followed by a unit.

    Examples
    --------
    >>> parse_size("2GiB"), parse_size("1.5 kB"), parse_size("7")
    (2147483648, 1500, 7)
    """
    return int(parse_quantity(text, _SUFFIXES, "a size such as 500MB or 2GiB"))


def parse_quantity(text: str, units: Mapping[str, float], what: str) -> float:
    """Return the value of text such as "1.5 h", with one of `units` in lower case; ValueError names `what` it is not.

    Examples
    --------
    >>> parse_quantity("1.5 H", {"h": 3600}, "a time such as 3h")
    5400.0
    """
    import re  # here, because opening a file does not need it

    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if found is None or found.group(2) not in units:
        raise ValueError(f"{text!r} is not {what}")
    return float(found.group(1)) * units[found.group(2)]


def escape(text: str) -> str:
    r"""Return text in which control, invisible and undecodable characters are replaced by backslash escapes.

    Examples
    --------
    >>> escape("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    if text.isascii() and text.isprintable():
        return text
    import unicodedata  # here, because opening a file does not need it

    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in _UNSAFE else character
        for character in text
    )
