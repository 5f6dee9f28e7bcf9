"""Decoding with tifffile and imagecodecs: TIFF, BigTIFF, OME-TIFF, NDPI, SVS and similar files.

tifffile decodes segments (strips or tiles) one after the other into the target. By default, it reads up to 256 MB of a
file at a time, and keeps the decoded segments of all threads in memory. This module uses smaller buffers.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import tifffile

from onecopy.errors import Kind
from onecopy_images.image import PALETTE, CodecError, DamagedError, Facts, InPlace, expect_shape, no_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_READ, _READ_LARGE = 256 << 10, 4 << 20
"""Minimum and maximum bytes per read of compressed data. Between them, a read is two segments per thread."""
_PIECE = 16 << 20
"""Number of bytes per read of uncompressed data."""


def facts(path: str, level: int, codec: str) -> Facts:
    """Return the facts about one level of the first series in a file."""
    with tifffile.TiffFile(path) as file:
        series = _level(file, path, level)
        dtype = series.dtype
        if dtype is None or not series.shape or 0 in series.shape:
            raise CodecError(f"{codec}: the file has no image with a supported pixel type", Kind.UNSUPPORTED, path=path)
        _check_segments(path, series.keyframe)
        segment = 0 if series.dataoffset is not None else prod(series.keyframe.chunks) * dtype.itemsize
        is_palette = series.keyframe.photometric == tifffile.PHOTOMETRIC.PALETTE
        return Facts(
            f"{codec}, {PALETTE}" if is_palette else codec,
            tuple(map(int, series.shape)),
            dtype.newbyteorder("<").str,
            series.axes,
            level,
            tuple(tuple(map(int, one.shape)) for one in file.series[0].levels),
            _in_place(file, series),
            segment,
            segment * prod(series.keyframe.chunked) * len(series),
        )


def fill(path: str, level: int, into: NDArray[Any], report: Callable[[int], None], threads: int) -> None:
    """Decode one level into an array of the same shape, calling `report` with the number of bytes in each segment."""
    with tifffile.TiffFile(path) as file:
        series = _level(file, path, level)
        expect_shape(path, tuple(series.shape), into)
        if series.dataoffset is not None:
            _read(file, path, series, into, report)
            return
        pages, keyframe = list(series.pages), series.keyframe
        for page in pages:
            if page is not None:
                _check_segments(path, page)
        if None in pages or len(pages) * prod(keyframe.shaped) != into.size:
            _by_itself(series, into, report, threads)
            return
        planes = into.reshape(len(pages), *keyframe.shaped)
        if not np.may_share_memory(planes, into):  # the reshape made a copy, which would be filled instead of `into`
            _by_itself(series, into, report, threads)
            return
        for page, plane in zip(pages, planes, strict=True):
            _fill_page(page, plane, report, threads)


def _level(file: tifffile.TiffFile, path: str, level: int) -> Any:
    if not file.series:
        raise CodecError("the file contains no image", path=path)
    levels = file.series[0].levels
    if level >= len(levels):
        raise no_level(path, level, len(levels))
    return levels[level]


def _in_place(file: tifffile.TiffFile, series: Any) -> InPlace | None:
    """Return the offset and dtype of the pixels if they are uncompressed, contiguous, aligned and within the file."""
    offset, keyframe = series.dataoffset, series.keyframe
    if offset is None or not keyframe.is_final or offset % series.dtype.itemsize:
        return None
    if series.parent.filehandle.path != file.filehandle.path or offset + series.nbytes > file.filehandle.size:
        return None  # several files, or a truncated file, for which reading raises the error
    return InPlace(int(offset), series.dtype.newbyteorder(file.byteorder).str)


def _read(file: tifffile.TiffFile, path: str, series: Any, into: NDArray[Any], report: Callable[[int], None]) -> None:
    """Copy uncompressed pixels piece by piece."""
    dtype = series.dtype.newbyteorder(file.byteorder)
    if series.dataoffset + series.nbytes > file.filehandle.size:
        raise DamagedError(
            f"the file is truncated: the pixel data ends at byte {series.dataoffset + series.nbytes}, but the file has "
            f"{file.filehandle.size} bytes",
            Kind.TRUNCATED,
            path=path,
        )
    with open(path, "rb") as plain:  # noqa: PTH123 - text
        plain.seek(series.dataoffset)
        flat = into.reshape(-1) if into.flags.c_contiguous else into.flat
        step = max(1, _PIECE // dtype.itemsize)
        for start in range(0, into.size, step):
            piece = np.fromfile(plain, dtype, min(step, into.size - start))
            flat[start : start + len(piece)] = piece
            report(piece.nbytes)


def _by_itself(series: Any, into: NDArray[Any], report: Callable[[int], None], threads: int) -> None:
    """Decode with `TiffPageSeries.asarray`, for missing pages or a target that cannot be reshaped to pages."""
    if into.flags.c_contiguous and into.dtype == series.dtype:
        series.asarray(out=into, maxworkers=threads, buffersize=_READ)
    else:
        into[...] = series.asarray(maxworkers=threads, buffersize=_READ)
    report(into.nbytes)


def _check_segments(path: str, page: Any) -> None:
    """Raise DamagedError if a segment extends beyond the end of the file or is missing from the segment table.

    tifffile would decode incomplete segments, and fill in missing ones.
    """
    keyframe, end = page.keyframe, page.parent.filehandle.size
    if len(page.dataoffsets) < prod(keyframe.chunked) and not keyframe.is_contiguous:
        raise DamagedError(
            f"the file is damaged: it should list {prod(keyframe.chunked)} segments, but lists {len(page.dataoffsets)}",
            Kind.INCONSISTENT,
            path=path,
        )
    for number, (offset, length) in enumerate(zip(page.dataoffsets, page.databytecounts, strict=False)):
        if offset + length > end:
            raise DamagedError(
                f"the file is truncated: segment {number} ends at byte {offset + length}, but the file has {end} bytes",
                Kind.TRUNCATED,
                path=path,
            )


def _fill_page(page: Any, plane: NDArray[Any], report: Callable[[int], None], threads: int) -> None:
    keyframe = page.keyframe
    if keyframe.is_contiguous or (keyframe.is_subsampled and keyframe.jpegheader is not None):
        # The chroma of NDPI is smoothed across strips: other readers decode whole pages, so this function does too.
        plane[...] = page.asarray(squeeze=False, maxworkers=threads, buffersize=_bytes_per_read(page, threads))
        report(plane.nbytes)
        return
    depth, length, width = keyframe.imagedepth, keyframe.imagelength, keyframe.imagewidth

    def place(decoded: tuple[Any, tuple[int, ...], tuple[int, ...]]) -> int:
        segment, (sample, d, h, w, _), shape = decoded
        target = plane[sample, d : d + shape[0], h : h + shape[1], w : w + shape[2]]
        target[...] = keyframe.nodata if segment is None else segment[: depth - d, : length - h, : width - w]
        return int(target.nbytes)

    keyframe.init_decode()
    buffer = _bytes_per_read(page, threads)
    for nbytes in page.segments(func=place, maxworkers=threads, sort=True, buffersize=buffer, _fullsize=False):
        report(nbytes)


def _bytes_per_read(page: Any, threads: int) -> int:
    needed = 2 * threads * max(page.databytecounts, default=0)
    return min(max(_READ, needed), _READ_LARGE)
