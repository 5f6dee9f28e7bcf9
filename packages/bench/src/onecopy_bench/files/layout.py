"""Where the data of a file lies: the table that every configuration is judged by.

A comparison of loaders is honest only if all of them are asked for the same bytes. So the parent reads the
header of a safetensors file once, with the few lines below and not with the code under test, and each child
gets the table: names, offsets and lengths. Any other file is one piece, from its first byte to its last.

Pure functions over bytes, and one reader at the end. Not a validator: a header that these lines do not
understand makes the file one piece, and the loaders under test say for themselves what they think of it.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

Kind = Literal["safetensors", "bytes"]

MAX_HEADER = 100_000_000
"""The longest header that the safetensors format allows, in bytes."""

WHOLE_FILE = "(the whole file)"
"""The name of the only piece of a file that has no table."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One named stretch of the file: `nbytes` bytes from `offset`, both in bytes of the file."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file holds: its kind, its size in bytes and its pieces, in the order of their offsets as read."""

    kind: Kind
    size: int
    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """Bytes in all pieces: the file without its header and padding."""
        return sum(piece.nbytes for piece in self.pieces)


def shuffled(layout: Layout, seed: int) -> Layout:
    """Return a layout whose pieces stand in a random order, the same for the same seed; ValueError of one piece."""
    if len(layout.pieces) < 2:
        raise ValueError("a file of one piece has no order to shuffle: only safetensors files with several tensors do")
    chance = random.Random(seed)  # noqa: S311 - an order, not a secret
    return replace(layout, pieces=tuple(chance.sample(layout.pieces, len(layout.pieces))))


def one_piece(size: int) -> Layout:
    """Return the layout of a file that is nothing but bytes."""
    return Layout("bytes", size, (Piece(WHOLE_FILE, 0, size),))


def parse_safetensors(header: bytes, size: int) -> Layout | None:
    """Return the layout that a safetensors header describes, the JSON text behind the eight length bytes.

    None where it is not one of a file of `size` bytes.
    """
    pieces, start = [], 8 + len(header)
    try:
        for name, entry in json.loads(header).items():
            if name != "__metadata__":
                begin, end = map(int, entry["data_offsets"])
                pieces.append(Piece(name, start + begin, end - begin))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    inside = all(p.nbytes >= 0 and start <= p.offset <= size and p.nbytes <= size - p.offset for p in pieces)
    if not pieces or not inside:
        return None
    return Layout("safetensors", size, tuple(sorted(pieces, key=lambda p: (p.offset, p.name))))


def read_layout(path: str | os.PathLike[str]) -> Layout:
    """Return the layout of the file at `path`; raises OSError where it cannot be read."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            return one_piece(size)
        return parse_safetensors(file.read(length), size) or one_piece(size)
