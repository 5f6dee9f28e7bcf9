"""Tiles pasted onto a canvas that may be far larger than memory.

    found = oc.images.register(tiles, grid=(40, 40), overlap=0.1)
    whole = oc.images.mosaic(tiles, found.positions, out="slide.oc", max_resident="512 MiB")

Which tile shows where is settled first, with rectangles (see `onecopy.images._regions`): every pixel of the canvas is
written once, by the tile that lies on top, and each tile is decoded once, from top to bottom. So it does not matter who
writes first: threads share the work, and with `part` so do processes that were started elsewhere.

**When not to use it.** For blending: a pixel is one tile's, not a mixture.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from onecopy.arguments import few_processors, non_negative, thread_count
from onecopy.images._regions import Share, downwards, shares, within
from onecopy.images.outputs import Output, Work, output_for
from onecopy.images.tiles import Tiles
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from onecopy.images.tiles import Tile
    from onecopy.scratch_arrays import Scratch

__all__ = ["Mosaic", "Out", "mosaic"]

Out: TypeAlias = "NDArray[Any] | Scratch | str | os.PathLike[str] | None"


@dataclass(frozen=True)
class Mosaic:
    """A canvas that was filled; printed it is a sentence."""

    shape: tuple[int, ...]
    dtype: Any
    """numpy's."""
    array: NDArray[Any] | None
    """The pixels: of `out`, of the scratch file, or mapped; None where they are in a file of another format."""
    path: str | None
    """The file or folder that was written."""
    scratch: Scratch | None
    """The nameless file with the pixels, where nothing else was asked for: writable, to be sealed or saved."""
    tiles: int
    """Decoded and pasted."""
    hidden: tuple[int, ...]
    """Tiles of which nothing shows, not even decoded."""
    covered: int
    """Pixels of the canvas on which a tile lies; the others are zero."""
    seconds: float
    _close: Callable[[], None]

    def close(self) -> None:
        """Release the scratch file or the mapping that holds the pixels; an array of the caller's stays."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
    """Paste tiles onto a canvas, later ones over earlier ones.

    Parameters
    ----------
    tiles
        Arrays, image files, or functions that return arrays; all of one element type, grey (y, x) or with samples
        (y, x, s). Each is decoded when its turn comes, and dropped.
    positions
        (row, column) of the upper left corner of each, in whole pixels, not negative; as `register` finds them.
    out
        Where to: None, a nameless file on disk (`onecopy.scratch`); an array or a scratch of yours, filled from its
        corner on, where what no tile covers stays as it is; or a path. ``.oc`` and ``.safetensors`` become a mapped
        image without a copy; ``.tif`` and ``.tiff`` are written by tifffile (``.ome.tif`` as OME-TIFF), ``.zarr`` by
        zarr. A path appears whole or not at all.
    order
        "given", or the numbers of the tiles in the order in which they are pasted, each once.
    tile
        (rows, columns) of the tiles of a TIFF file (multiples of 16), or of the chunks of a Zarr array; None: 512 x
        512.
    shape
        (rows, columns) of the canvas; None: as far as tiles reach. They must lie within it.
    max_resident
        Bytes of the canvas that may be in memory, or "512 MiB". None: all of it, unless that is more than an eighth of
        the memory that is available; then 512 MiB, or as much more as the tiles of a row need.
    folder
        For the nameless file, where that is not to be beside the path; see `onecopy.scratch`.
    part
        (which, of how many): only these rows of the canvas, for one of several processes that fill one array or
        scratch; needs `out`.
    threads
        That decode and paste; None: the processors of this process, 4 at most. Each holds one tile.
    overwrite
        Replace the file at the path.
    progress
        Called with (bytes done, bytes in total) after each tile; raising in it stops the work.

    Raises
    ------
    ValueError, TypeError
        Positions that are negative, or reach out of the canvas; tiles of several types; an order that leaves some out.
    OSError
        ENOSPC: there is no room for the canvas, known before anything is decoded; FileExistsError; a tile that is not
        there.
    CodecError
        A tile that cannot be decoded.

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
        _paste(plan, output, thread_count(threads) or few_processors(), progress)
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
    """What is to be written."""

    tiles: Tiles
    shape: tuple[int, ...]
    """Of the canvas."""
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
            raise ValueError(f"part must be (which, of how many), not {part}")
        if out is None or isinstance(out, str | os.PathLike):
            raise ValueError("part: what several processes fill must be an array or a scratch that they share")
        first, last = (self.shape[0] * (which + one) // count for one in (0, 1))
        found = [piece for share in self.shares if (piece := within(share, first, last)) is not None]
        return _Plan(self.tiles, self.shape, self.dtype, downwards(found))


def _plan(
    tiles: Tiles,
    positions: Sequence[tuple[int, int]] | NDArray[Any],
    order: Literal["given"] | Sequence[int],
    shape: tuple[int, int] | None,
) -> _Plan:
    if len(tiles) == 0:
        raise ValueError("there are no tiles")
    looks = [tiles.look(number) for number in range(len(tiles))]
    _check_alike(tiles, looks)
    places = _places(tiles, positions, [look[0] for look in looks])
    extent = tuple(map(int, places[:, 2:].max(axis=0)))
    if shape is not None and any(have > room for have, room in zip(extent, shape, strict=True)):
        raise ValueError(f"tiles reach to row {extent[0]} and column {extent[1]}, beyond the canvas of {shape}")
    canvas = (*(shape or extent), *looks[0][0][2:])
    return _Plan(tiles, canvas, looks[0][1], shares(places, _ranked(order, len(tiles))))


def _check_alike(tiles: Tiles, looks: list[tuple[tuple[int, ...], Any]]) -> None:
    first_shape, first_dtype = looks[0]
    for number, (shape, dtype) in enumerate(looks):
        if len(shape) not in (2, 3) or 0 in shape:
            raise ValueError(f"{tiles.name(number)} has shape {shape}: neither (y, x) nor (y, x, s)")
        if dtype != first_dtype or shape[2:] != first_shape[2:]:
            raise ValueError(
                f"{tiles.name(number)} has elements of {dtype} and shape {shape}, the first one {first_dtype} and "
                f"{first_shape}: they cannot lie on one canvas"
            )


def _places(tiles: Tiles, positions: Any, shapes: list[tuple[int, ...]]) -> NDArray[np.int64]:
    corners = np.asarray(positions)
    if corners.shape != (len(tiles), 2):
        raise ValueError(f"positions must be {len(tiles)} pairs (row, column), one for each tile, not {corners.shape}")
    if corners.dtype.kind not in "iu" and not np.all(np.mod(corners, 1) == 0):
        raise ValueError("positions must be whole pixels")
    corners = corners.astype(np.int64)
    if (bad := np.flatnonzero((corners < 0).any(axis=1))).size:
        raise ValueError(f"{tiles.name(int(bad[0]))} has the position {tuple(corners[bad[0]].tolist())}: negative")
    return np.concatenate([corners, corners + [shape[:2] for shape in shapes]], axis=1)


def _ranked(order: Literal["given"] | Sequence[int], count: int) -> Sequence[int]:
    if isinstance(order, str):
        if order != "given":
            raise ValueError(f"order must be 'given' or numbers of tiles, not {order!r}")
        return range(count)
    numbers = [int(number) for number in order]
    if sorted(numbers) != list(range(count)):
        raise ValueError(f"order must name each of {count} tiles once")
    return numbers


def _paste(plan: _Plan, output: Output, threads: int, progress: Callable[[int, int], object] | None) -> None:
    """Take the tiles from top to bottom; a few are under way at a time, and the first failure ends all."""
    total, done = plan.pixels * plan.pixel_bytes, 0

    def paste(share: Share) -> int:
        pixels = plan.tiles.load(share.tile)
        for piece in share.shown:
            inside = pixels[
                piece.top - share.place.top : piece.bottom - share.place.top,
                piece.left - share.place.left : piece.right - share.place.left,
            ]
            output.put(piece, inside)
        return sum(piece.pixels for piece in share.shown) * plan.pixel_bytes

    under_way: deque[tuple[Share, Future[int]]] = deque()

    def settle(behind: Share | None) -> None:
        nonlocal done
        done += under_way.popleft()[1].result()
        oldest = under_way[0][0] if under_way else behind
        if oldest is not None:
            output.finished(oldest.top)
        if progress is not None:
            progress(done, total)

    with ThreadPoolExecutor(threads) as pool:
        try:
            for share in output.shares:
                while len(under_way) > threads or (under_way and not output.has_room(share.bottom)):
                    settle(share)
                output.expect(share.bottom)
                under_way.append((share, pool.submit(paste, share)))
            while under_way:
                settle(None)
        finally:
            for _, future in under_way:
                future.cancel()
