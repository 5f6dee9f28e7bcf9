"""One file per framework; each is loaded when one of its names is used, and loads its framework only where that is."""

from __future__ import annotations

from typing import NamedTuple

from onecopy.text import size

_SHOWN = 5


class Copied(NamedTuple):
    """A weight of a file that is not used in the mapping: a copy in private memory of this process."""

    name: str
    """Name of the weight."""
    bytes: int
    """Size of the copy in bytes."""
    reason: str
    """Reason of the copy."""


def lines_of(copied: tuple[Copied, ...]) -> list[str]:
    """Return the first copies as indented lines, and how many more there are."""
    lines = [f"  {one.name}, {size(one.bytes)}: {one.reason}" for one in copied[:_SHOWN]]
    return [*lines, f"  and {len(copied) - _SHOWN} more"] if len(copied) > _SHOWN else lines
