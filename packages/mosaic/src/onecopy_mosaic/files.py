"""Writers of TIFF files and Zarr arrays from a canvas; the caller renames the complete result to its target."""

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
    """Write a tiled TIFF, or an OME-TIFF if `name` ends in .ome.tif, into space that may be reserved."""
    import tifffile

    shape, dtype = canvas.shape, canvas.dtype

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CREAT, 0o666)  # no O_TRUNC: it would release the reserved space

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
    """A buffered file whose end is the last written byte, although more space is reserved behind it.

    It has no `fileno`, so that numpy writes through it: errors of `ndarray.tofile` carry neither errno nor offset.
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
    """Yield the tiles of a canvas in row-major order, padded with zeros; release each row of tiles when it is done."""
    shape = canvas.shape
    for top in range(0, shape[0], tile[0]):
        for left in range(0, shape[1], tile[1]):
            block = canvas.array[top : top + tile[0], left : left + tile[1]]
            whole = np.zeros((*tile, *shape[2:]), canvas.dtype)
            whole[: block.shape[0], : block.shape[1]] = block
            del block  # the traceback of an error would keep the canvas alive through this view
            yield whole
        canvas.release(slice(top, min(top + tile[0], shape[0])))


def write_zarr(canvas: Scratch, path: Path, name: str, tile: tuple[int, int]) -> None:  # noqa: ARG001
    """Write a Zarr array with a chunk for each tile, releasing the rows of the canvas that are written."""
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


def max_tiff_bytes(canvas: Scratch, tile: tuple[int, int]) -> int:
    """Return an upper bound of the bytes of a TIFF file of a canvas: tiles, two numbers per tile, and a header."""
    tiles = prod(-(-extent // side) for extent, side in zip(canvas.shape[:2], tile, strict=True))
    return int(tiles * (prod(tile) * prod(canvas.shape[2:]) * canvas.dtype.itemsize + 16 + 16)) + (1 << 16)
