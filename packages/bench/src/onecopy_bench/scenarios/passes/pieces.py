"""Which part of a file is touched, and in which order.

A file is cut into consecutive pieces of 64 KiB to 1 MiB, as tensors of a model or blocks of an index would be. A
*share* of it is a random choice of them; a smaller share is always part of a larger one. The same seed gives the
same cut and the same choice, on every machine.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Literal

from onecopy_bench.files.layout import Piece

Order = Literal["file", "shuffled"]

PAGE = 4096
LEAST, MOST = 64 << 10, 1 << 20
"""A piece has this many bytes at least (the last may be shorter), and at most."""


def cut(size: int, seed: int = 0) -> tuple[Piece, ...]:
    """Return consecutive pieces that cover all `size` bytes; all but the last end on a page."""
    return tuple(_cut(size, random.Random(seed)))  # noqa: S311 - a choice, not a secret


def _cut(size: int, chance: random.Random) -> Iterator[Piece]:
    offset = 0
    for number in itertools.count():
        if offset >= size:
            return
        length = min(chance.randrange(LEAST, MOST + 1, PAGE), size - offset)
        yield Piece(str(number), offset, length)
        offset += length


def choose(pieces: Sequence[Piece], share: float, order: Order, seed: int = 0) -> tuple[Piece, ...]:
    """Return a random choice of pieces that together hold a share of all bytes, to the page.

    Parameters
    ----------
    share
        More than 0, at most 1. The last piece chosen is shortened to fit; one page is always touched.
    order
        "file": by offset. "shuffled": as they were drawn.

    Examples
    --------
    >>> some = choose(cut(100 << 20), 0.25, "file")
    >>> sum(piece.nbytes for piece in some) == 25 << 20
    True
    """
    if not 0 < share <= 1:
        raise ValueError(f"a share is more than 0 and at most 1, not {share:g}")
    left = max(round(share * sum(piece.nbytes for piece in pieces)), 1)
    chosen = []
    for piece in random.Random(seed).sample(pieces, len(pieces)):  # noqa: S311
        if left <= 0:
            break
        nbytes = min(piece.nbytes, -(-left // PAGE) * PAGE)
        chosen.append(Piece(piece.name, piece.offset, nbytes))
        left -= nbytes
    return tuple(chosen if order == "shuffled" else sorted(chosen, key=lambda piece: piece.offset))
