"""What the benchmarks of images share: which ways are installed, what a canvas holds, and the way to the disk."""

from __future__ import annotations

import importlib.util
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from onecopy_bench.record import Absent

if TYPE_CHECKING:
    from collections.abc import Iterable

STEP = 256
"""Rows of a canvas that are looked at once."""


class Way(Protocol):
    """What is compared, and the modules that it needs."""

    @property
    def name(self) -> str:
        """The row's name."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules."""


W = TypeVar("W", bound=Way)


def installed(ways: Iterable[W], names: Iterable[str]) -> tuple[list[W], list[Absent]]:
    """Return those of some ways that have the names and all that they need; and the names of the others, with why."""
    wanted = set(names)
    found, absent = [], []
    for way in ways:
        if way.name not in wanted:
            continue
        lacks = [name for name in way.needs if importlib.util.find_spec(name.partition(".")[0]) is None]
        if lacks:
            absent.append(Absent(way.name, f"not installed: {', '.join(lacks)}"))
        else:
            found.append(way)
    return found, absent


def checksum(canvas: Any, rows: int) -> int:
    """Return the CRC-32 of all pixels of what can be sliced into arrays by rows."""
    found = 0
    for row in range(0, rows, STEP):
        found = zlib.crc32(np.ascontiguousarray(canvas[row : row + STEP]).data, found)
    return found


def sync(*paths: str | os.PathLike[str]) -> None:
    """Bring files down to the disk, of folders all that is in them."""
    for path in paths:
        for file in Path(path).rglob("*") if Path(path).is_dir() else [Path(path)]:
            if file.is_file():
                fd = os.open(file, os.O_RDONLY)
                os.fdatasync(fd)
                os.close(fd)
