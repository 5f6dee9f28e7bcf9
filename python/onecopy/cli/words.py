"""How the command line writes sizes, rates, shares and names that came from elsewhere.

Memory and file sizes are decimal (1 MB = 10**6 bytes), as disks and model cards count; rates are in GiB/s,
and columns say their unit. Numbers have three significant digits. A name out of a file may hold anything, an
escape sequence that repaints the terminal among it: `plain` makes every such character visible, and nothing
here is ever parsed as markup.
"""

from __future__ import annotations

from onecopy.text import parse_quantity, parse_size, plain, significant, size

__all__ = ["counted", "duration", "parse_duration", "parse_size", "plain", "share", "significant", "size"]

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def share(part: int | None, whole: int) -> str:
    """Return a share in percent; "?" where the part is unknown, and never 0 % or 100 % by rounding.

    Examples
    --------
    >>> share(None, 5), share(0, 5), share(1, 1000), share(999, 1000), share(5, 5)
    ('?', '0 %', '<1 %', '>99 %', '100 %')
    """
    if part is None:
        return "?"
    if part >= whole:
        return "100 %"
    percent = 100 * part / whole
    if part > 0 and percent < 1:
        return "<1 %"
    return ">99 %" if percent > 99 else f"{percent:.0f} %"


def counted(number: int, one: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> counted(1, "array"), counted(20_000, "array")
    ('1 array', '20000 arrays')
    """
    return f"{number} {one}{'' if number == 1 else 's'}"


def parse_duration(text: str) -> float:
    """Return the seconds that a duration in words means: "30d", "12 h", "90"; a number alone is seconds.

    Raises
    ------
    ValueError
        If it is not a number followed by a unit.

    Examples
    --------
    >>> parse_duration("30d"), parse_duration("1.5 h"), parse_duration("7")
    (2592000.0, 5400.0, 7.0)
    """
    return parse_quantity(text, _SECONDS, "a duration such as 30d, 12h or 90s")


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which there are two.

    Examples
    --------
    >>> [duration(seconds) for seconds in (0.4, 90, 150, 40 * 3600, 30 * 86400)]
    ['0 s', '90 s', '2 min', '40 h', '4 w']
    """
    for unit, length in (("w", 604_800), ("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"
