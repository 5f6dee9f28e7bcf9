"""Damage to a file: one byte that differs for a while."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def flip(path: Path, at: int, mask: int = 1) -> None:
    """Flip bits of one byte of a file in place; a second call undoes it."""
    with path.open("r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([byte ^ mask]), at)


@contextlib.contextmanager
def flipped(path: Path, at: int, mask: int = 1) -> Iterator[None]:
    """Flip bits of one byte of a file until the block ends."""
    flip(path, at, mask)
    try:
        yield
    finally:
        flip(path, at, mask)
