"""Outputs of a mosaic: the caller's array, an unnamed scratch file, or a file in one of four formats.

For files, tiles are pasted into a scratch file whose space is reserved, so that a full disk raises an error before the
first tile is decoded. The scratch file becomes an ``.oc`` file without a copy. TIFF and Zarr files are encoded from it
at the end, tile by tile, at a temporary path next to the target, and renamed when they are complete. The space for a
TIFF file is also reserved in advance; the size of a Zarr array is unknown until it is compressed.
"""

from __future__ import annotations

import errno
import io
import os
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onecopy.arrays.scratch import Scratch, scratch
from onecopy.base.text import path_text
from onecopy.files.mapping import Closeable
from onecopy.files.page_cache import available_memory
from onecopy_images.atomic_files import path_beside, remove, replace
from onecopy_images.image import NAME, Facts
from onecopy_images.opening import open as open_image
from onecopy_images.regions import covered_rows, in_bands, span_of
from onecopy_images.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from onecopy_images.regions import Rectangle, Share

_TILE = (512, 512)
_USUAL_CAP = 512 << 20
"""Default maximum number of bytes of a large canvas in memory."""
_OURS, _TIFF, _ZARR = (".oc", ".safetensors"), (".tif", ".tiff"), (".zarr",)


class Finished(NamedTuple):
    """The result of `Output.finish`: the pixels, and where they are."""

    array: NDArray[Any] | None = None
    path: str | None = None
    scratch: Scratch | None = None
    close: Callable[[], None] = lambda: None


class Work(NamedTuple):
    """The tiles from which an output is written."""

    shares: list[Share]
    """Visible parts of the tiles, from top to bottom."""
    may_be_cut: Callable[[int], bool]
    """A function that returns whether a tile may be loaded more than once."""


class Output(Closeable):
    """The caller's array. Any number of threads may fill it, each pixel once.

    Closing an output removes files and memory that `finish` has not returned.
    """

    window: Window | None = None
    """The window of rows in memory, in which the caller of `put` requests space; None if no window is used."""

    def __init__(self, array: NDArray[Any], shares: list[Share]) -> None:
        self._array = array
        self.shares = shares
        """The visible parts in writing order. They may be smaller than those in the `Work`."""

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle."""
        self._array[place.top : place.bottom, place.left : place.right] = pixels

    def finish(self) -> Finished:
        """Complete the output."""
        return Finished(self._array)

    def close(self) -> None:
        """Remove files and memory that `finish` has not returned."""


class ScratchOutput(Output):
    """A scratch file, either the caller's or a new one."""

    def __init__(self, canvas: Scratch, work: Work, *, ours: bool, reserved: bool = True) -> None:
        self._canvas, self._ours = canvas, ours
        self.shares, self.window = _rows_at_a_time(canvas, work, ours=ours)
        # If space is not reserved, writing to a mapping raises SIGBUS when the disk is full.
        self._through_memory = canvas.memory_cap is None and reserved

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle through the mapping; with a memory cap or unreserved space, by system calls."""
        if self.window is not None:
            self.window.put(place, pixels)
        elif self._through_memory:
            self._canvas.array[place.top : place.bottom, place.left : place.right] = pixels
        else:
            self._canvas.write((slice(place.top, place.bottom), slice(place.left, place.right)), pixels)

    def finish(self) -> Finished:
        """Complete the output."""
        if self.window is not None:
            self.window.finish()
        if not self._ours:
            return Finished(self._canvas.array, scratch=self._canvas)
        self._ours = False
        return Finished(self._canvas.array, scratch=self._canvas, close=self._canvas.close)

    def close(self) -> None:
        """Remove files and memory that `finish` has not returned."""
        if self.window is not None:
            self.window.close()
        if self._ours:
            self._canvas.close()


class FileOutput(ScratchOutput):
    """A file that is a renamed scratch file or is encoded from a scratch file."""

    def __init__(
        self, canvas: Scratch, work: Work, target: Path, tile: tuple[int, int], *, reserved: bool, overwrite: bool
    ) -> None:
        super().__init__(canvas, work, ours=True, reserved=reserved)
        self._target, self._tile, self._overwrite = target, tile, overwrite
        self._beside = path_beside(target)
        if target.suffix in _TIFF and reserved:
            try:
                with self._beside.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, max_tiff_bytes(canvas, tile))
            except BaseException as error:
                self.close()
                raise self._named(error) from None

    def finish(self) -> Finished:
        """Write the file, and release the scratch file."""
        if self.window is not None:
            self.window.finish()
        path, suffix = str(self._target), self._target.suffix
        if suffix in _OURS:
            shape = self._canvas.shape
            facts = Facts("", shape, self._canvas.dtype.str, "YXS"[: len(shape)], 0, (shape,))
            self._canvas.save(path, NAME, facts.metadata(""))
            image = open_image(path)
            return Finished(image.array, path, close=image.close)
        try:
            if suffix in _ZARR:
                write_zarr(self._canvas, self._beside, self._tile)
            else:
                is_ome = path.endswith((".ome.tif", ".ome.tiff"))
                write_tiff(self._canvas, self._beside, self._tile, is_ome=is_ome)
        except OSError as error:
            raise self._named(error) from None
        replace(self._beside, self._target, overwrite=self._overwrite)
        return Finished(path=path)

    def _named(self, error: BaseException) -> BaseException:
        """Add the target's name to an error, because encoders' errors contain no name, or the temporary file's."""
        if isinstance(error, OSError):
            error.filename = str(self._target)
        return error

    def close(self) -> None:
        """Remove files and memory that `finish` has not returned."""
        super().close()
        remove(self._beside)


def output_for(
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    tile: tuple[int, int] | None,
    folder: str | os.PathLike[str] | None,
    max_resident: int | str | None,
    work: Work,
    *,
    overwrite: bool,
) -> Output:
    """Return the output for a canvas. Problems with `out` raise errors before any tile is decoded.

    Raises
    ------
    ValueError
        `out` is an array that is too small, read-only or of a different dtype, or a path with an unknown suffix.
    FileExistsError
        The path exists.
    OSError
        There is not enough space for the canvas.
    ImportError
        The library for the format is not installed.
    """
    if out is None or isinstance(out, str | os.PathLike):
        if out is None:
            canvas, reserved = _canvas(shape, dtype, folder, max_resident, anywhere=False)
            return ScratchOutput(canvas, work, ours=True, reserved=reserved)
        target = Path(path_text(out))
        _check_target(target, tile, overwrite)
        cap = _usual_cap(shape, dtype, work) if max_resident is None else max_resident
        canvas, reserved = _canvas(shape, dtype, folder or target.absolute().parent, cap, anywhere=folder is None)
        return FileOutput(canvas, work, target, tile or _TILE, reserved=reserved, overwrite=overwrite)
    fits = len(out.shape) == len(shape) and all(has >= need for has, need in zip(out.shape, shape, strict=True))
    if not fits or out.shape[2:] != shape[2:] or not np.can_cast(dtype, out.dtype, "safe"):
        raise ValueError(
            f"out does not fit: its shape is {tuple(out.shape)} and its dtype {out.dtype}, but the mosaic has shape "
            f"{shape} and dtype {dtype}"
        )
    if isinstance(out, Scratch):
        return ScratchOutput(out, work, ours=False)
    if not out.flags.writeable:
        raise ValueError("out is a read-only array: pass a writable one")
    return Output(out, work.shares)


def _canvas(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    folder: str | os.PathLike[str] | None,
    max_resident: int | str | None,
    *,
    anywhere: bool,
) -> tuple[Scratch, bool]:
    """Return a scratch file, and whether its space is reserved (not every file system supports this)."""
    try:
        return scratch(shape, dtype, folder, max_resident=max_resident, anywhere=anywhere), True
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return scratch(shape, dtype, folder, False, max_resident, anywhere=anywhere), False


def _rows_at_a_time(canvas: Scratch, work: Work, *, ours: bool) -> tuple[list[Share], Window | None]:
    """Return the visible parts in writing order, and a window if only some rows of the canvas may be in memory.

    No window is used if too many rows would be partly written at a time (tiles in memory are cut to avoid that), or if
    the window would overwrite the caller's pixels that no tile covers.
    """
    held, shares = canvas.memory_cap, work.shares
    if held is None and ours:
        held = _usual_cap(canvas.shape, canvas.dtype, work)
    if held is None or not shares or canvas.nbytes == 0:
        return shares, None
    rows = held * canvas.shape[0] // canvas.nbytes
    if span_of(shares) > rows * 3 // 4:
        shares = in_bands(shares, max(1, rows // 8), work.may_be_cut)
    covered = covered_rows(shares, canvas.shape[0])
    filled = np.flatnonzero(covered)
    is_whole = bool((covered[filled[0] : filled[-1] + 1] == canvas.shape[1]).all())
    if span_of(shares) > rows * 3 // 4 or not (ours or is_whole):
        return work.shares, None
    return shares, Window(canvas, covered, held * 7 // 8)


def _usual_cap(shape: tuple[int, ...], dtype: np.dtype[Any], work: Work) -> int | None:
    """Return the default of `max_resident` in bytes, or None if the whole canvas may be in memory.

    Beyond an eighth of the available memory, the kernel throttles writers to the speed of the disk, so using more
    memory does not speed up writing.
    """
    available, row = available_memory(), prod(shape[1:]) * dtype.itemsize
    if available is None or shape[0] * row <= available // 8:
        return None
    cap = max(min(_USUAL_CAP, available // 8), span_of(work.shares) * row * 3 // 2)
    return cap if cap <= available // 4 else None


def _check_target(target: Path, tile: tuple[int, int] | None, overwrite: bool) -> None:
    suffix = target.suffix
    if suffix not in _OURS + _TIFF + _ZARR:
        known = ", ".join(_OURS + _TIFF + _ZARR)
        raise ValueError(f"{target}: unknown format: the suffix must be one of {known}")
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "the path exists: pass overwrite=True to replace it", str(target))
    if tile is not None and any(extent <= 0 or (suffix in _TIFF and extent % 16) for extent in tile):
        raise ValueError(f"{target}: tile extents must be positive (multiples of 16 in a TIFF file), not {tile}")
    if suffix in _TIFF:
        import tifffile  # noqa: F401 - raises an error before the work if it is missing
    elif suffix in _ZARR:
        import zarr  # noqa: F401


def write_tiff(canvas: Scratch, path: Path, tile: tuple[int, int], *, is_ome: bool) -> None:
    """Write a tiled TIFF or OME-TIFF file, possibly into reserved space, and release rows after they are written."""
    import tifffile

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CREAT, 0o666)  # no O_TRUNC: it would release the reserved space

    shape = canvas.shape
    with open(path, "r+b", buffering=0, opener=opener) as raw, _Plain(raw) as file:
        tifffile.imwrite(
            file,
            _blocks(canvas, tile),
            shape=shape,
            dtype=canvas.dtype,
            tile=tile,
            ome=is_ome,
            photometric="rgb" if shape[2:] in ((3,), (4,)) else "minisblack",
            planarconfig="contig" if len(shape) == 3 else None,
            metadata={"axes": "YXS"[: len(shape)]},
            bigtiff=canvas.nbytes > 2**32 - 2**25,
        )
        file.flush()
        raw.truncate(file.end)
        os.fsync(raw.fileno())


class _Plain(io.BufferedWriter):
    """A buffered file that ends at the last written byte, although more space is reserved.

    It has no `fileno`, so that NumPy calls `write`: errors from `ndarray.tofile` contain no errno or file name.
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


def max_tiff_bytes(canvas: Scratch, tile: tuple[int, int]) -> int:
    """Return the maximum size of the TIFF file for a canvas: tiles, two numbers per tile, and a header."""
    tiles = prod(-(-extent // side) for extent, side in zip(canvas.shape[:2], tile, strict=True))
    return int(tiles * (prod(tile) * prod(canvas.shape[2:]) * canvas.dtype.itemsize + 16 + 16)) + (1 << 16)


def _blocks(canvas: Scratch, tile: tuple[int, int]) -> Iterator[NDArray[Any]]:
    """Yield a canvas's tiles in row-major order, padded with zeros. Release each row of tiles after use."""
    for top in range(0, canvas.shape[0], tile[0]):
        for left in range(0, canvas.shape[1], tile[1]):
            block = canvas.array[top : top + tile[0], left : left + tile[1]]
            whole = np.zeros((*tile, *canvas.shape[2:]), canvas.dtype)
            whole[: block.shape[0], : block.shape[1]] = block
            del block  # the traceback of an error would keep the canvas alive through this view
            yield whole
        canvas.release(slice(top, min(top + tile[0], canvas.shape[0])))


def write_zarr(canvas: Scratch, path: Path, tile: tuple[int, int]) -> None:
    """Write a Zarr array with a chunk for each tile, and release rows of the canvas after they are written."""
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
