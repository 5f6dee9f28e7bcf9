"""`mosaic`: paste tiles onto a canvas that may be larger than memory.

    found = oc.images.register(tiles, grid=(40, 40), overlap=0.1)
    whole = oc.images.mosaic(tiles, found.positions, out="slide.oc", max_resident="512 MiB")

The visible rectangles of all tiles are computed first (see `onecopy_images.regions`). Every pixel of the canvas is
written once, from the topmost tile, and tiles are decoded once each, from top to bottom. The order of writes does
not matter, so threads (or processes, with `part`) can share the work.

**When not to use it.** For blending, because each pixel is copied from exactly one tile.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from onecopy.base.text import non_negative, size, thread_count
from onecopy.files.mapping import Closeable
from onecopy.files.page_cache import available_memory
from onecopy_images.codecs import decoder_threads
from onecopy_images.outputs import Output, Work, output_for
from onecopy_images.regions import Share, downwards, shares, within
from onecopy_images.tiles import Tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from onecopy.arrays.scratch import Scratch
    from onecopy_images.tiles import Tile

__all__ = ["Mosaic", "Out", "mosaic"]

Out: TypeAlias = "NDArray[Any] | Scratch | str | os.PathLike[str] | None"


_SPARE = 32 << 20
"""Bytes of memory reserved for pages that are being read and written."""


@dataclass(frozen=True)
class Mosaic(Closeable):
    """A finished mosaic. `str` returns a one-line summary."""

    shape: tuple[int, ...]
    """Shape of the canvas: (rows, columns) or (rows, columns, samples)."""
    dtype: Any
    """NumPy dtype of the pixels."""
    array: NDArray[Any] | None
    """The pixels: `out`, the array of the scratch file, or a mapped file; None after writing TIFF or Zarr."""
    path: str | None
    """The written file or folder, or None if `out` was not a path."""
    scratch: Scratch | None
    """The writable scratch file with the pixels, which can be sealed or saved, if `out` was None or a scratch."""
    tiles: int
    """Number of tiles that were decoded and pasted."""
    hidden: tuple[int, ...]
    """Numbers of the tiles that were not decoded, because other tiles cover them completely."""
    covered: int
    """Number of pixels that tiles cover. All other pixels are zero, or unchanged in `out`."""
    seconds: float
    """Duration of the whole call in seconds."""
    _close: Callable[[], None]

    def close(self) -> None:
        """Release the scratch file or the mapping of the pixels. If the caller passed `out`, it stays open."""
        self._close()

    def __str__(self) -> str:
        pixels = self.shape[0] * self.shape[1]
        nbytes = int(np.prod(self.shape, dtype=object)) * np.dtype(self.dtype).itemsize
        hidden = f", {len(self.hidden)} hidden under others" if self.hidden else ""
        return (
            f"{' x '.join(map(str, self.shape))} {self.dtype} ({size(nbytes)}) of {self.tiles} tiles{hidden}, "
            f"{100 * self.covered / max(1, pixels):.1f} % covered"
        )


def mosaic(
    tiles: Sequence[Tile],
    positions: Sequence[tuple[int, int]] | NDArray[Any],
    out: Out = None,
    order: Literal["given"] | Sequence[int] = "given",
    tile: tuple[int, int] | None = None,
    *,
    shape: tuple[int, int] | None = None,
    max_resident: int | str | None = None,
    folder: str | os.PathLike[str] | None = None,
    part: tuple[int, int] | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Mosaic:
    """Paste tiles onto a canvas; later tiles cover earlier ones.

    Parameters
    ----------
    tiles
        Arrays, image files, or functions that return arrays, all of the same dtype, and of shape (y, x) or (y, x,
        samples). Each tile is decoded when it is pasted, and then released.
    positions
        (row, column) of the upper left corner of each tile in whole, non-negative pixels, as `register` returns them.
    out
        None: an unnamed scratch file on disk (`onecopy.scratch`). An array or a `Scratch`: tiles are placed relative to
        its upper left corner, and pixels that no tile covers keep their values. A path: ``.oc`` and ``.safetensors``
        files are mapped, not copied; ``.tif`` and ``.tiff`` are written by tifffile (``.ome.tif`` as OME-TIFF),
        ``.zarr`` by zarr. The file appears only when it is complete.
    order
        "given", or the numbers of all tiles in the order of pasting.
    tile
        (rows, columns) of a TIFF file's tiles (multiples of 16) or of a Zarr array's chunks; None: 512 x 512.
    shape
        (rows, columns) of the canvas, which must contain all tiles; None: the smallest canvas that contains them.
    max_resident
        Maximum bytes of the canvas in memory, as a number or text such as "512 MiB". None: the whole canvas, or, if it
        exceeds an eighth of the available memory, 512 MiB or the size of one row of tiles.
    folder
        Folder for the scratch file; None: the folder of the output path, or the default of `onecopy.scratch`.
    part
        (index, count): write only this part of the rows, so that several processes can fill the same array or scratch.
        Requires `out`.
    threads
        Number of threads that decode and paste; None: the number of CPUs available to this process, at most 4. Each
        thread keeps one tile in memory; if memory is insufficient, fewer threads run.
    overwrite
        Whether to replace an existing file at the path.
    progress
        Called with (bytes done, bytes in total) after each tile. An exception that it raises stops the work.

    Raises
    ------
    ValueError, TypeError
        A position is negative, a tile exceeds the canvas, tiles have different dtypes, or `order` is not a permutation.
    OSError
        ENOSPC: there is not enough space for the canvas; this is detected before any tile is decoded. FileExistsError:
        the path exists. FileNotFoundError: a tile does not exist.
    CodecError
        A tile cannot be decoded.
    NotEnoughMemory
        A decoded tile is larger than the available memory.

    Examples
    --------
    >>> import numpy as np, onecopy as oc
    >>> with oc.images.mosaic([np.full((2, 3), 1), np.full((2, 3), 2)], [(0, 0), (1, 2)]) as whole:
    ...     whole.array
    array([[1, 1, 1, 0, 0],
           [1, 1, 2, 2, 2],
           [0, 0, 2, 2, 2]])
    """
    start = monotonic()
    known = Tiles(tiles)
    plan = _plan(known, positions, order, shape)
    if part is not None:
        plan = plan.only(part, out)
    with output_for(
        out,
        plan.shape,
        plan.dtype,
        tile,
        folder,
        max_resident,
        Work(plan.shares, known.is_in_memory),
        overwrite=overwrite,
    ) as output:
        _paste(plan, output, _that_fit(plan, thread_count(threads) or decoder_threads()), progress)
        made = output.finish()
    shown = {share.tile for share in plan.shares}
    return Mosaic(
        shape=plan.shape,
        dtype=plan.dtype,
        array=made.array,
        path=made.path,
        scratch=made.scratch,
        tiles=len(shown),
        hidden=() if part is not None else tuple(number for number in range(len(plan.tiles)) if number not in shown),
        covered=plan.pixels,
        seconds=monotonic() - start,
        _close=made.close,
    )


@dataclass
class _Plan:
    """The canvas, and the visible parts of the tiles."""

    tiles: Tiles
    shape: tuple[int, ...]
    """Shape of the canvas."""
    dtype: Any
    shares: list[Share]

    @property
    def pixels(self) -> int:
        return sum(piece.pixels for share in self.shares for piece in share.shown)

    @property
    def pixel_bytes(self) -> int:
        samples = self.shape[2] if len(self.shape) == 3 else 1
        return int(samples * self.dtype.itemsize)

    def only(self, part: tuple[int, int], out: Out) -> _Plan:
        which, count = non_negative("part", part[0]), part[1]
        if not which < count:
            raise ValueError(f"part must be (index, count) with index < count, not {part}")
        if out is None or isinstance(out, str | os.PathLike):
            raise ValueError("part requires `out`, an array or a scratch file that the processes share")
        first, last = (self.shape[0] * (which + one) // count for one in (0, 1))
        found = [piece for share in self.shares if (piece := within(share, first, last)) is not None]
        return _Plan(self.tiles, self.shape, self.dtype, downwards(found))

    def paste(self, share: Share, output: Output) -> int:
        """Load a tile and write its visible part. Return the number of bytes."""
        pixels = self.tiles.load(share.tile)
        for piece in share.shown:
            rows = slice(piece.top - share.place.top, piece.bottom - share.place.top)
            columns = slice(piece.left - share.place.left, piece.right - share.place.left)
            output.put(piece, pixels[rows, columns])
        return sum(piece.pixels for piece in share.shown) * self.pixel_bytes


def _plan(
    tiles: Tiles,
    positions: Sequence[tuple[int, int]] | NDArray[Any],
    order: Literal["given"] | Sequence[int],
    shape: tuple[int, int] | None,
) -> _Plan:
    if len(tiles) == 0:
        raise ValueError("a mosaic must have at least 1 tile, not 0")
    facts = [tiles.shape_and_dtype(number) for number in range(len(tiles))]
    _check_alike(tiles, facts)
    places = _places(tiles, positions, [shape for shape, _ in facts])
    extent = tuple(map(int, places[:, 2:].max(axis=0)))
    if shape is not None and any(have > room for have, room in zip(extent, shape, strict=True)):
        raise ValueError(f"tiles extend to row {extent[0]} and column {extent[1]}, beyond the canvas of shape {shape}")
    canvas = (*(shape or extent), *facts[0][0][2:])
    return _Plan(tiles, canvas, facts[0][1], shares(places, _ranked(order, len(tiles))))


def _check_alike(tiles: Tiles, facts: list[tuple[tuple[int, ...], Any]]) -> None:
    first_shape, first_dtype = facts[0]
    for number, (shape, dtype) in enumerate(facts):
        if len(shape) not in (2, 3) or 0 in shape:
            raise ValueError(f"{tiles.name(number)} must have shape (y, x) or (y, x, samples), not {shape}")
        if dtype != first_dtype or shape[2:] != first_shape[2:]:
            raise ValueError(
                f"dtypes or numbers of samples differ: {tiles.name(number)} has {dtype} and shape {shape}, "
                f"tile 0 has {first_dtype} and shape {first_shape}"
            )


def _places(tiles: Tiles, positions: Any, shapes: list[tuple[int, ...]]) -> NDArray[np.int64]:
    corners = np.asarray(positions)
    if corners.shape != (len(tiles), 2):
        raise ValueError(
            f"positions must have shape ({len(tiles)}, 2), with (row, column) of each tile, not {corners.shape}"
        )
    if corners.dtype.kind not in "iu" and not np.all(np.mod(corners, 1) == 0):
        raise ValueError("positions must be whole pixels")
    corners = corners.astype(np.int64)
    if (bad := np.flatnonzero((corners < 0).any(axis=1))).size:
        raise ValueError(f"{tiles.name(int(bad[0]))} has a negative position: {tuple(corners[bad[0]].tolist())}")
    return np.concatenate([corners, corners + [shape[:2] for shape in shapes]], axis=1)


def _ranked(order: Literal["given"] | Sequence[int], count: int) -> Sequence[int]:
    if isinstance(order, str):
        if order != "given":
            raise ValueError(f"order must be 'given' or the numbers of all tiles, not {order!r}")
        return range(count)
    numbers = [int(number) for number in order]
    if sorted(numbers) != list(range(count)):
        raise ValueError(f"order must contain each of the numbers from 0 to {count - 1} once")
    return numbers


def _that_fit(plan: _Plan, threads: int) -> int:
    """Return how many threads can run so that their tiles fit into memory."""
    largest = max((plan.tiles.loaded_bytes(share.tile) for share in plan.shares), default=0)
    available = available_memory()
    if largest == 0 or available is None:
        return threads
    return max(1, min(threads, (available - _SPARE) // largest))


def _paste(plan: _Plan, output: Output, threads: int, progress: Callable[[int, int], object] | None) -> None:
    """Paste the tiles from top to bottom, a few at a time. The first error cancels the remaining tiles."""
    total, done = plan.pixels * plan.pixel_bytes, 0

    window = output.window
    under_way: deque[tuple[Share, Future[int]]] = deque()

    def settle(behind: Share | None) -> None:
        nonlocal done
        done += under_way.popleft()[1].result()
        oldest = under_way[0][0] if under_way else behind
        if window is not None and oldest is not None:
            window.finished(oldest.top)
        if progress is not None:
            progress(done, total)

    with ThreadPoolExecutor(threads) as pool:
        try:
            for share in output.shares:
                while len(under_way) > threads or (under_way and window and not window.has_room(share.bottom)):
                    settle(share)
                if window is not None:
                    window.expect(share.bottom)
                under_way.append((share, pool.submit(plan.paste, share, output)))
            while under_way:
                settle(None)
        finally:
            for _, future in under_way:
                future.cancel()
