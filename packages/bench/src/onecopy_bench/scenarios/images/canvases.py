"""What the benchmarks of images share: what a canvas holds, and the way to the disk."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

STEP = 256
"""Rows of a canvas that are read at once."""


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
