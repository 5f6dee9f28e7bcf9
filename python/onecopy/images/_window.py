"""Rows of a canvas in memory that is used again and again, from where they go to the disk past the page cache.

A canvas is filled from top to bottom. Pasted into memory that is mapped from its file, each page is a fault, is found
anew by the file system, written out, unmapped and dropped: twice the processor time of writing it. A window is ordinary
memory, touched once; the byte at place n of the canvas lies in it at n modulo its size. Pieces of which nothing is
missing any more are written by `Scratch.write_direct`, two at a time, and their place is free for rows further down.
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onecopy.images._regions import Rectangle
    from onecopy.scratch_arrays import Scratch

_PIECE = 8 << 20
"""Bytes that are written at once, at most; of a power of two, a sixteenth of the window at most."""
_WRITERS = 2
"""One more than the disk needs: while one piece is told to have arrived, the other is on its way."""


class Window:
    """The rows of a canvas that are being filled; `put` is for any thread, the rest for the one that hands out tiles.

    Parameters
    ----------
    canvas
        What is filled, and nobody else writes to those rows: of what was there, nothing stays.
    covered
        Of each row of the canvas, how many pixels are put. The others become zero, in rows between the first and the
        last one of which something is put.
    nbytes
        Of memory, 64 KiB at least; a quarter more than the rows need that are begun and not finished at a time.
    """

    def __init__(self, canvas: Scratch, covered: NDArray[np.int64], nbytes: int) -> None:
        self._canvas, self._covered = canvas, covered
        filled = np.flatnonzero(covered)
        first, self._last = int(filled[0]), int(filled[-1]) + 1
        self._samples = prod(canvas.shape[2:])
        self._width = canvas.shape[1] * self._samples
        self._row_bytes = self._width * canvas.dtype.itemsize
        self._piece = min(_PIECE, 1 << (nbytes // 16).bit_length() - 1)
        self._size = nbytes // self._piece * self._piece
        self._items = np.ndarray(self._size // canvas.dtype.itemsize, canvas.dtype, _memory(self._size))
        self._told = self._done = first * self._row_bytes
        self._end, self._entered = self._last * self._row_bytes, first
        self._pool = ThreadPoolExecutor(_WRITERS, "onecopy-window")
        self._under_way: deque[tuple[int, Future[None]]] = deque()

    def has_room(self, bottom: int) -> bool:
        """Return whether rows up to `bottom` find room without another row being finished."""
        return min(bottom, self._last) * self._row_bytes - self._told <= self._size

    def expect(self, bottom: int) -> None:
        """Wait until there is room for rows up to `bottom`, of which nothing is put before. OSError: the disk."""
        bottom = min(bottom, self._last)
        while self._under_way and bottom * self._row_bytes - self._done > self._size:
            self._settle()
        while self._entered < bottom:
            self._enter(bottom)

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle of rows that are expected and not finished."""
        self._put(place.top, place.left * self._samples, pixels.reshape(len(pixels), -1))

    def finished(self, row: int) -> None:
        """Declare the rows above this one final: whole pieces of them are queued for writing."""
        row = min(row, self._last)
        while self._entered < row:  # rows of which nothing is put, and that may be more than there is room for
            self._tell(self._entered)
            self.expect(min(row, (self._told + self._size) // self._row_bytes))
        self._tell(row)

    def _tell(self, row: int) -> None:
        upto = row * self._row_bytes
        while self._told < upto and (upto == self._end or self._told // self._piece < upto // self._piece):
            begin = self._told
            self._told = min((begin // self._piece + 1) * self._piece, self._end)
            self._under_way.append((self._told, self._pool.submit(self._write, begin, self._told)))

    def finish(self) -> None:
        """Write what is left, and wait for it. OSError: the disk."""
        self.finished(self._last)
        while self._under_way:
            self._settle()
        self.close()

    def close(self) -> None:
        """Wait for what is under way, and give the memory back."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._items = self._items[:0].copy()

    def _settle(self) -> None:
        last, future = self._under_way.popleft()
        future.result()
        self._done = last

    def _write(self, begin: int, end: int) -> None:
        if not self._covered[begin // self._row_bytes : -(-end // self._row_bytes)].any():
            return  # zeros, as the file has them
        at, item = begin % self._size, self._canvas.dtype.itemsize
        self._canvas.write_direct(begin, self._items[at // item : (at + end - begin) // item])

    def _enter(self, bottom: int) -> None:
        """Make zero what of the next rows nobody puts, and what lay in their place before."""
        whole = self._covered[self._entered : bottom] == self._canvas.shape[1]
        rows = int(np.argmax(whole != whole[0])) or len(whole)  # that are alike
        if not whole[0] and self._canvas.nbytes > self._size:
            self._put(self._entered, 0, np.broadcast_to(self._canvas.dtype.type(0), (rows, self._width)))
        self._entered += rows

    def _put(self, row: int, start: int, values: NDArray[Any]) -> None:
        """Put lines of items, from item `start` of row `row` on."""
        size, width, done = len(self._items), self._width, 0
        while done < len(values):
            at = (row + done) * width % size
            if (lines := min((size - at) // width, len(values) - done)) > 0:
                box = self._items[at : at + lines * width].reshape(lines, width)
                box[:, start : start + values.shape[1]] = values[done : done + lines]
                done += lines
                continue
            cut = min(max(size - at - start, 0), values.shape[1])  # a row that goes on at the beginning of the window
            self._items[at + start : at + start + cut] = values[done, :cut]
            after = at + start + cut - size
            self._items[after : after + values.shape[1] - cut] = values[done, cut:]
            done += 1


def _memory(nbytes: int) -> mmap.mmap:
    """Return zeros that begin on a page, in large pages where there are some: the first touch is what costs."""
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
