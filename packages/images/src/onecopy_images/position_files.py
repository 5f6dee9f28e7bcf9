"""Reads files that list the positions of tiles, as MIST writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"^file:\s*(?P<name>[^;]+?)\s*;.*?\bposition:\s*\(\s*(?P<x>-?\d+)\s*,\s*(?P<y>-?\d+)\s*\)")


class Listed(NamedTuple):
    """The name and position of a tile."""

    name: str
    row: int
    column: int


def parse_positions(text: str, path: str) -> list[Listed]:
    """Read the lines ``file: NAME; ...; position: (X, Y); ...`` that MIST writes, and ignore other lines.

    Raises
    ------
    ValueError
        There is no such line, a name is listed twice or contains a path separator, or a position is negative.

    Examples
    --------
    >>> parse_positions("file: a.tif; corr: 0.9; position: (17, 4); grid: (0, 0);", "list.txt")
    [Listed(name='a.tif', row=4, column=17)]
    """
    found: dict[str, Listed] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.match(line)
        if match is None:
            continue
        one = Listed(match["name"], int(match["y"]), int(match["x"]))
        if one.name in found or Path(one.name).name != one.name:
            raise ValueError(f"{path}: line {number}: {one.name!r} is listed twice, or contains a path separator")
        if one.row < 0 or one.column < 0:
            raise ValueError(f"{path}: line {number}: the position of {one.name!r} is negative")
        found[one.name] = one
    if not found:
        raise ValueError(
            f"{path}: not a list of positions: no line begins with 'file: NAME;' and contains 'position: (X, Y)'"
        )
    return list(found.values())
