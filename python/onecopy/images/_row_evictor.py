"""Rows of a canvas that are finished go to the disk and out of memory, while others are being written.

A canvas is filled from top to bottom, a row of tiles at a time. `Scratch.write` would keep to the cap too; but what it
writes out first is what was written first, and that is the left of rows whose right is still to come: on the disk a
quarter of a large mosaic was written twice. Here rows leave when nothing more comes to them, and each page is written
once. A `Window` does that in half the processor time; this is for canvases of which something is to stay as it is.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onecopy.images._regions import Rectangle
    from onecopy.scratch_arrays import Scratch

_PIECE = 16 << 20
"""Bytes that are written out at once, at most: a sixteenth of the rows that may be in memory, where that is less."""


class RowEvictor:
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

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle, through memory."""
        self._canvas.array[place.top : place.bottom, place.left : place.right] = pixels

    def has_room(self, bottom: int) -> bool:  # noqa: ARG002 - as a window has it
        """Return True: what is too much for a moment is only that."""
        return True

    def expect(self, bottom: int) -> None:
        """Wait until there is room for rows up to `bottom`."""
        self._lowest = max(self._lowest, bottom)
        while self._under_way and self._lowest - self._done > self._most:
            last, future = self._under_way.pop(0)
            future.result()
            self._done = last

    def finished(self, row: int) -> None:
        """Declare the rows above this one final: they are evicted, in order."""
        while self._told + self._step <= row:
            rows = slice(self._told, self._told + self._step)
            self._told += self._step
            self._under_way.append((self._told, self._pool.submit(self._canvas.release, rows)))

    def finish(self) -> None:
        """Leave what is finished by now where it is."""
        self.close()

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)
