"""TIFF and what is built like it (BigTIFF, OME-TIFF, NDPI, SVS, ...), by tifffile and imagecodecs.

tifffile decodes segment by segment (strips or tiles) straight into the target. It reads up to 256 MB of a file at once
if nobody asks for less, and holds what its threads decode: both are kept small here.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import tifffile

from onecopy.images.facts import PALETTE, CodecError, DamagedError, Facts, InPlace, no_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_READ = 4 << 20
"""Bytes of compressed data that are read at once."""
_PIECE = 16 << 20
"""Bytes of plain data that are read at once."""


def facts(path: str, level: int, codec: str) -> Facts:
    """Return what the first series of a file says of one level."""
    with tifffile.TiffFile(path) as file:
        series = _level(file, path, level)
        dtype = series.dtype
        if dtype is None or not series.shape or 0 in series.shape:
            raise CodecError(f"{path}: {codec}: there is no image in it that has pixels of a known type")
        is_palette = series.keyframe.photometric == tifffile.PHOTOMETRIC.PALETTE
        return Facts(
            f"{codec}, {PALETTE}" if is_palette else codec,
            tuple(map(int, series.shape)),
            dtype.newbyteorder("<").str,
            series.axes,
            level,
            tuple(tuple(map(int, one.shape)) for one in file.series[0].levels),
            _in_place(file, series),
            0 if series.dataoffset is not None else prod(series.keyframe.chunks) * dtype.itemsize,
        )


def fill(path: str, level: int, into: NDArray[Any], say: Callable[[int], None], threads: int) -> None:
    """Decode one level into an array of its shape."""
    with tifffile.TiffFile(path) as file:
        series = _level(file, path, level)
        if tuple(series.shape) != into.shape:
            raise CodecError(f"{path}: its shape is {tuple(series.shape)} by now, not {into.shape}")
        if series.dataoffset is not None:
            _read(file, path, series, into, say)
            return
        pages, keyframe = list(series.pages), series.keyframe
        if None in pages or len(pages) * prod(keyframe.shaped) != into.size:
            _by_itself(series, into, say, threads)
            return
        planes = into.reshape(len(pages), *keyframe.shaped)
        if not np.may_share_memory(planes, into):  # strange strides: it would be filled in vain
            _by_itself(series, into, say, threads)
            return
        for page, plane in zip(pages, planes, strict=True):
            _check_within(path, page, page.parent.filehandle.size)
            _fill_page(page, plane, say, threads)


def _level(file: tifffile.TiffFile, path: str, level: int) -> Any:
    if not file.series:
        raise CodecError(f"{path}: there is no image in it")
    levels = file.series[0].levels
    if level >= len(levels):
        raise no_level(path, level, len(levels))
    return levels[level]


def _in_place(file: tifffile.TiffFile, series: Any) -> InPlace | None:
    """Return where the pixels lie, if they lie in the file as in an array: in one piece, aligned, within it."""
    offset, keyframe = series.dataoffset, series.keyframe
    if offset is None or not keyframe.is_final or series.dtype.kind not in "uif" or offset % series.dtype.itemsize:
        return None
    if series.parent.filehandle.path != file.filehandle.path or offset + series.nbytes > file.filehandle.size:
        return None  # of several files, or cut off: reading says what is wrong
    return InPlace(int(offset), series.dtype.newbyteorder(file.byteorder).str)


def _read(file: tifffile.TiffFile, path: str, series: Any, into: NDArray[Any], say: Callable[[int], None]) -> None:
    """Copy plain pixels, a piece at a time."""
    dtype = series.dtype.newbyteorder(file.byteorder)
    if series.dataoffset + series.nbytes > file.filehandle.size:
        raise DamagedError(
            f"{path}: cut off: the pixels end at byte {series.dataoffset + series.nbytes}, behind its end at "
            f"{file.filehandle.size}"
        )
    with open(path, "rb") as plain:  # noqa: PTH123 - text
        plain.seek(series.dataoffset)
        flat = into.reshape(-1) if into.flags.c_contiguous else into.flat
        step = max(1, _PIECE // dtype.itemsize)
        for start in range(0, into.size, step):
            piece = np.fromfile(plain, dtype, min(step, into.size - start))
            flat[start : start + len(piece)] = piece
            say(piece.nbytes)


def _by_itself(series: Any, into: NDArray[Any], say: Callable[[int], None], threads: int) -> None:
    """Let tifffile do all of it: pages that are missing, and targets that are no array of pages."""
    if into.flags.c_contiguous and into.dtype == series.dtype:
        series.asarray(out=into, maxworkers=threads, buffersize=_READ)
    else:
        into[...] = series.asarray(maxworkers=threads, buffersize=_READ)
    say(into.nbytes)


def _check_within(path: str, page: Any, end: int) -> None:
    """Raise DamagedError where a segment lies behind the end of the file: what tifffile reads of it would be short."""
    for number, (offset, length) in enumerate(zip(page.dataoffsets, page.databytecounts, strict=False)):
        if offset + length > end:
            raise DamagedError(
                f"{path}: cut off: segment {number} ends at byte {offset + length}, behind its end at {end}"
            )


def _fill_page(page: Any, plane: NDArray[Any], say: Callable[[int], None], threads: int) -> None:
    keyframe = page.keyframe
    if keyframe.is_contiguous or (keyframe.is_subsampled and keyframe.jpegheader is not None):
        # Chroma of NDPI is smoothed across strips: only decoded as a whole are these the pixels that others see.
        plane[...] = page.asarray(squeeze=False, maxworkers=threads, buffersize=_READ)
        say(plane.nbytes)
        return
    depth, length, width = keyframe.imagedepth, keyframe.imagelength, keyframe.imagewidth

    def place(decoded: tuple[Any, tuple[int, ...], tuple[int, ...]]) -> int:
        segment, (sample, d, h, w, _), shape = decoded
        target = plane[sample, d : d + shape[0], h : h + shape[1], w : w + shape[2]]
        target[...] = keyframe.nodata if segment is None else segment[: depth - d, : length - h, : width - w]
        return int(target.nbytes)

    keyframe.init_decode()
    for nbytes in page.segments(func=place, maxworkers=threads, sort=True, buffersize=_READ, _fullsize=False):
        say(nbytes)
