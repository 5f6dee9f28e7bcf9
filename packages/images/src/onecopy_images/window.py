"""A ring buffer for rows of a canvas, which are written to disk without passing through the page cache.

A canvas is filled from top to bottom. Writing through a shared mapping costs a page fault, writeback, unmapping and
eviction for each page, which takes twice the CPU time of writing the bytes. `Window` is anonymous memory that is
faulted in once; byte n of the canvas is at n modulo the size of the window. Complete pieces are written with
`Scratch.write_direct`, two at a time, and their space is reused for later rows.
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

    from onecopy.arrays.scratch import Scratch
    from onecopy_images.regions import Rectangle

_PIECE = 8 << 20
"""Maximum size in bytes of one write: a power of two, and at most a sixteenth of the window."""
_WRITERS = 2
"""Number of writer threads: one write is in flight while the completion of the other is handled."""


class Window:
    """A ring buffer of canvas rows. Any thread may call `put`; only one thread may call the other methods.

    Parameters
    ----------
    canvas
        The canvas. Nothing else may write to the covered rows, whose previous contents are overwritten.
    covered
        Number of pixels that will be put into each row of the canvas. Between the first and the last covered row, all
        other pixels become zero.
    nbytes
        Size in bytes: at least 64 KiB, and 1.15 times the size of the rows that are partly written at any time.
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
        self._queued = self._done = first * self._row_bytes
        self._end, self._entered = self._last * self._row_bytes, first
        self._pool = ThreadPoolExecutor(_WRITERS, "onecopy-window")
        self._under_way: deque[tuple[int, Future[None]]] = deque()

    def has_room(self, bottom: int) -> bool:
        """Return whether rows up to `bottom` fit without finishing another row."""
        return min(bottom, self._last) * self._row_bytes - self._queued <= self._size

    def expect(self, bottom: int) -> None:
        """Wait until rows up to `bottom` fit. Call this before `put` to these rows. Raise OSError if a write failed."""
        bottom = min(bottom, self._last)
        while self._under_way and bottom * self._row_bytes - self._done > self._size:
            self._settle()
        while self._entered < bottom:
            self._enter(bottom)

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Copy pixels into a rectangle; its rows must have been passed to `expect` and still be unfinished."""
        self._put(place.top, place.left * self._samples, pixels.reshape(len(pixels), -1))

    def finished(self, row: int) -> None:
        """Declare the rows above `row` final, and queue their complete pieces for writing."""
        row = min(row, self._last)
        while self._entered < row:  # uncovered rows, which may exceed the size of the window
            self._queue(self._entered)
            self.expect(min(row, (self._queued + self._size) // self._row_bytes))
        self._queue(row)

    def _queue(self, row: int) -> None:
        upto = row * self._row_bytes
        while self._queued < upto and (upto == self._end or self._queued // self._piece < upto // self._piece):
            begin = self._queued
            self._queued = min((begin // self._piece + 1) * self._piece, self._end)
            self._under_way.append((self._queued, self._pool.submit(self._write, begin, self._queued)))

    def finish(self) -> None:
        """Write the remaining rows, and wait for all writes. Raise OSError if a write to disk failed."""
        self.finished(self._last)
        while self._under_way:
            self._settle()
        self.close()

    def close(self) -> None:
        """Wait for the writes that have started, cancel the others, and release the memory."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._items = self._items[:0].copy()

    def _settle(self) -> None:
        last, future = self._under_way.popleft()
        future.result()
        self._done = last

    def _write(self, begin: int, end: int) -> None:
        if not self._covered[begin // self._row_bytes : -(-end // self._row_bytes)].any():
            return  # zeros: the file has a hole there
        at, item = begin % self._size, self._canvas.dtype.itemsize
        self._canvas.write_direct(begin, self._items[at // item : (at + end - begin) // item])

    def _enter(self, bottom: int) -> None:
        """Admit rows to the window. Clear rows that are not covered completely, because they contain older rows."""
        whole = self._covered[self._entered : bottom] == self._canvas.shape[1]
        rows = int(np.argmax(whole != whole[0])) or len(
            whole
        )  # consecutive rows, all of them complete or all of them incomplete
        if not whole[0] and self._canvas.nbytes > self._size:
            self._put(self._entered, 0, np.broadcast_to(self._canvas.dtype.type(0), (rows, self._width)))
        self._entered += rows

    def _put(self, row: int, start: int, values: NDArray[Any]) -> None:
        """Copy the lines of `values` to row `row` and the rows below it, starting at item `start` of each."""
        size, width, done = len(self._items), self._width, 0
        while done < len(values):
            at = (row + done) * width % size
            if (lines := min((size - at) // width, len(values) - done)) > 0:
                box = self._items[at : at + lines * width].reshape(lines, width)
                box[:, start : start + values.shape[1]] = values[done : done + lines]
                done += lines
                continue
            cut = min(max(size - at - start, 0), values.shape[1])  # a row that wraps around the end of the window
            self._items[at + start : at + start + cut] = values[done, :cut]
            after = at + start + cut - size
            self._items[after : after + values.shape[1] - cut] = values[done, cut:]
            done += 1


def _memory(nbytes: int) -> mmap.mmap:
    """Return zeroed, page-aligned memory, in huge pages if possible, because page faults are the main cost."""
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without transparent huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
