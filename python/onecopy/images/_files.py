"""TIFF and Zarr files of a canvas: written beside their target, and put in its place when they are whole."""

from __future__ import annotations

import io
import os
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from onecopy.scratch_arrays import Scratch


def write_tiff(canvas: Scratch, path: Path, name: str, tile: tuple[int, int]) -> None:
    import tifffile

    shape, dtype = canvas.shape, canvas.dtype

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CREAT, 0o666)  # not truncated: its space is reserved

    with open(path, "r+b", buffering=0, opener=opener) as raw, _Plain(raw) as file:
        tifffile.imwrite(
            file,
            _blocks(canvas, tile),
            shape=shape,
            dtype=dtype,
            tile=tile,
            ome=name.endswith((".ome.tif", ".ome.tiff")),
            photometric="rgb" if shape[2:] in ((3,), (4,)) else "minisblack",
            planarconfig="contig" if len(shape) == 3 else None,
            metadata={"axes": "YXS"[: len(shape)]},
            bigtiff=canvas.nbytes > 2**32 - 2**25,
        )
        file.flush()
        raw.truncate(file.end)
        os.fsync(raw.fileno())


class _Plain(io.BufferedWriter):
    """A file that ends where writing has ended, whatever is reserved behind.

    numpy does not write to it by itself: its errors say neither why nor where.
    """

    end = 0

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self.end = max(self.end, self.tell())
        return written

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return super().seek(self.end + offset) if whence == os.SEEK_END else super().seek(offset, whence)

    def fileno(self) -> int:
        raise io.UnsupportedOperation


def _blocks(canvas: Scratch, tile: tuple[int, int]) -> Iterator[NDArray[Any]]:
    """Yield the tiles of a canvas in their order, at the edges with zeros; what lies behind them leaves memory."""
    shape = canvas.shape
    for top in range(0, shape[0], tile[0]):
        for left in range(0, shape[1], tile[1]):
            block = canvas.array[top : top + tile[0], left : left + tile[1]]
            whole = np.zeros((*tile, *shape[2:]), canvas.dtype)
            whole[: block.shape[0], : block.shape[1]] = block
            del block  # in the frames of an error it would keep the space of the canvas
            yield whole
        canvas.release(slice(top, min(top + tile[0], shape[0])))


def write_zarr(canvas: Scratch, path: Path, name: str, tile: tuple[int, int]) -> None:  # noqa: ARG001
    import zarr

    shape = canvas.shape
    chunks = (*(min(one, extent) for one, extent in zip(tile, shape[:2], strict=True)), *shape[2:])
    array = zarr.create_array(store=str(path), shape=shape, dtype=canvas.dtype, chunks=chunks)
    for top in range(0, shape[0], chunks[0]):
        rows = slice(top, min(top + chunks[0], shape[0]))
        for left in range(0, shape[1], chunks[1]):
            columns = slice(left, min(left + chunks[1], shape[1]))
            array[rows, columns] = canvas.array[rows, columns]
        canvas.release(rows)


def most_of_a_tiff(canvas: Scratch, tile: tuple[int, int]) -> int:
    """Return bytes that a TIFF file of a canvas does not exceed: its tiles, two numbers of each, a header."""
    tiles = prod(-(-extent // side) for extent, side in zip(canvas.shape[:2], tile, strict=True))
    return int(tiles * (prod(tile) * prod(canvas.shape[2:]) * canvas.dtype.itemsize + 16 + 16)) + (1 << 16)
