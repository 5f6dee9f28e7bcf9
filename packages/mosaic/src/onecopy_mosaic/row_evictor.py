"""Eviction of the finished rows of a canvas to disk while other rows are being written.

A canvas is filled from top to bottom, one row of tiles at a time. `Scratch.write` keeps to the memory cap too, but it
evicts the oldest pages first: the left part of rows whose right part is not written yet, so that a quarter of a large
mosaic was written to disk twice. `RowEvictor` evicts complete rows only, and each page is written once. `Window` does
the same in half the CPU time, but overwrites whole rows; `RowEvictor` keeps pixels that no tile covers.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onecopy.scratch_arrays import Scratch
    from onecopy_mosaic.regions import Rectangle

_PIECE = 16 << 20
"""Maximum size in bytes of one eviction; a sixteenth of the rows that may be in memory if that is less."""


class RowEvictor:
    """Limits the rows of a canvas that are in memory. All methods but `put` are for one thread.

    Parameters
    ----------
    canvas
        The canvas, which is filled through its array.
    first
        The first row that is written.
    max_rows
        Maximum number of rows in memory: more than are partly written at a time.
    """

    def __init__(self, canvas: Scratch, first: int, max_rows: int) -> None:
        self._canvas, self._max_rows = canvas, max_rows
        self._done = self._queued = first
        self._lowest = first
        self._step = max(1, min(_PIECE * canvas.shape[0] // canvas.nbytes, max_rows // 16))
        self._pool = ThreadPoolExecutor(1, "onecopy-row-evictor")
        self._under_way: list[tuple[int, Future[object]]] = []

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle, through memory."""
        self._canvas.array[place.top : place.bottom, place.left : place.right] = pixels

    def has_room(self, bottom: int) -> bool:  # noqa: ARG002 - as a window has it
        """Return True: the limit may be exceeded for a moment."""
        return True

    def expect(self, bottom: int) -> None:
        """Wait until there is space for rows up to `bottom`."""
        self._lowest = max(self._lowest, bottom)
        while self._under_way and self._lowest - self._done > self._max_rows:
            last, future = self._under_way.pop(0)
            future.result()
            self._done = last

    def finished(self, row: int) -> None:
        """Declare the rows above this one final: they are evicted, in order."""
        while self._queued + self._step <= row:
            rows = slice(self._queued, self._queued + self._step)
            self._queued += self._step
            self._under_way.append((self._queued, self._pool.submit(self._canvas.release, rows)))

    def finish(self) -> None:
        """Stop evicting; rows that are not evicted yet stay in memory."""
        self.close()

    def close(self) -> None:
        """Wait for the evictions that have started, and cancel the others."""
        self._pool.shutdown(wait=True, cancel_futures=True)
