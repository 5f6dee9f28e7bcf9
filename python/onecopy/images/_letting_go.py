"""Rows of a canvas that are finished go to the disk and out of memory, while others are being written.

A canvas is filled from top to bottom, a row of tiles at a time. `Scratch.write` would keep to the cap too; but what it
writes out first is what was written first, and that is the left of rows whose right is still to come: on the disk a
quarter of a large mosaic was written twice. Here rows leave when nothing more comes to them, and each page is written
once.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onecopy.images._regions import Share
    from onecopy.scratching import Scratch

_PIECE = 16 << 20
"""Bytes that are written out at once, at most: a sixteenth of the rows that may be in memory, where that is less."""


def span_of(shares: list[Share]) -> int:
    """Return the most rows that are begun and not finished at a time, when tiles are taken in this order."""
    lowest, span = 0, 0
    for share in shares:
        lowest = max(lowest, share.place.bottom)
        span = max(span, lowest - share.place.top)
    return span


class LettingGo:
    """Keeps the rows of a canvas that are in memory to a number; for the one thread that hands out tiles.

    Parameters
    ----------
    canvas
        What is filled, through its array.
    first
        The row where the filling begins.
    most
        Rows that may be in memory: more than are begun and not finished at a time.
    """

    def __init__(self, canvas: Scratch, first: int, most: int) -> None:
        self._canvas, self._most = canvas, most
        self._done = self._told = first
        self._lowest = first
        self._step = max(1, min(_PIECE * canvas.shape[0] // canvas.nbytes, most // 16))
        self._pool = ThreadPoolExecutor(1, "onecopy-letting-go")
        self._under_way: list[tuple[int, Future[object]]] = []

    def expect(self, bottom: int) -> None:
        """Wait until there is room for rows up to `bottom`."""
        self._lowest = max(self._lowest, bottom)
        while self._under_way and self._lowest - self._done > self._most:
            last, future = self._under_way.pop(0)
            future.result()
            self._done = last

    def finished(self, row: int) -> None:
        """Say that nothing more is written above a row: these rows leave memory, in their order."""
        while self._told + self._step <= row:
            rows = slice(self._told, self._told + self._step)
            self._told += self._step
            self._under_way.append((self._told, self._pool.submit(self._canvas.release, rows)))

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)
