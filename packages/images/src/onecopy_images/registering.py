"""Registration: measures the positions of overlapping tiles from their pixels.

    found = oc.images.register(sorted(folder.glob("*.tif")), grid=(5, 5), overlap=0.1, column_major=True)
    found.positions          # (y, x) of each tile, to pass to oc.images.mosaic
    print(found)             # how many seams were verified, and which tiles have no verified seam

For two neighbours, only the strips that may overlap are compared. Peaks of their phase correlation (SciPy's FFT) are
the candidate shifts. From each candidate, hill climbing with growing steps maximises the normalised correlation of the
overlapping pixels; in smooth images, in which a peak may be off by hundreds of pixels, this evaluates a few hundred
shifts instead of thousands. Verified shifts are combined along a maximum spanning tree, and those that agree with it to
within 2 pixels are adjusted by least squares. Tiles without a verified seam are placed by the usual shift (the median).

**When not to use it.** For tiles that are rotated or distorted relative to each other, or for scenes that move between
exposures, because only translations by whole pixels are found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import fft

from onecopy_images.positions import Edge, joined
from onecopy_images.tiles import Tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from onecopy_images.tiles import Tile

__all__ = ["Link", "Registration", "register"]

_PEAKS = 8
"""Number of phase correlation peaks that are tried."""
_THINNEST = 3
"""Minimum overlap in pixels."""
_ROUNDED = 1e-6
"""If the variance is below this share of the mean square, the mean is subtracted first, to avoid rounding errors."""
_AGREES = 2
"""Maximum difference in pixels from the spanning tree for links to be included in the least-squares fit."""


class Link(NamedTuple):
    """The measured shift between two neighbours."""

    first: int
    """Number of the first tile."""
    second: int
    """Number of the second tile."""
    shift: tuple[int, int]
    """Pixels (y, x) from the first tile to the second."""
    correlation: float
    """Normalised correlation of the overlapping pixels; 1 means equal except for brightness and contrast."""
    pixels: int
    """Number of overlapping pixels."""
    verified: bool
    """Whether the correlation is at least `min_correlation`."""
    axis: int
    """0 if the second tile is below the first, 1 if it is to the right."""


class Registration(NamedTuple):
    """The positions of the tiles. `str` returns a one-line summary."""

    positions: NDArray[Any]
    """(y, x) of each tile in whole pixels, relative to the bounding box of all tiles: n x 2, int64."""
    links: tuple[Link, ...]
    """Links between all pairs of neighbours."""
    guessed: tuple[int, ...]
    """Numbers of the tiles without verified links to the largest group; these are placed by the usual shift."""

    def __str__(self) -> str:
        good = [link for link in self.links if link.verified]
        text = f"{len(self.positions)} tiles: {len(good)} of {len(self.links)} seams verified"
        if good:
            text += f", correlation at least {min(link.correlation for link in good):.3f}"
        if self.guessed:
            numbers = ", ".join(map(str, self.guessed[:10])) + (", ..." if len(self.guessed) > 10 else "")
            text += f"; placed by the usual shift: {numbers}"
        return text


def register(
    tiles: Sequence[Tile],
    grid: tuple[int, int],
    overlap: float | tuple[float, float] = 0.1,
    *,
    column_major: bool = False,
    min_correlation: float = 0.5,
    progress: Callable[[int, int], object] | None = None,
) -> Registration:
    """Measure the positions of tiles that have the same size and form a grid.

    Parameters
    ----------
    tiles
        Arrays, paths, or functions that return arrays, in the order of the grid. Only the edges of each tile are kept.
        The samples of each pixel are averaged.
    grid
        Numbers of (rows, columns).
    overlap
        The expected overlap as a fraction of a tile, or a pair of fractions: for the rows of vertical neighbours and
        the columns of horizontal neighbours. Overlaps from 3 pixels up to twice the fraction, and sideways shifts up to
        the fraction, can be found.
    column_major
        True if `tiles` lists the grid column by column, or False if row by row.
    min_correlation
        The minimum correlation of a verified shift.
    progress
        Called with (tiles done, tiles in total). An exception that it raises stops the work.

    Raises
    ------
    ValueError
        The grid does not fit the number of tiles, tiles differ in shape, or no pair of neighbours could be verified.
    OSError, CodecError
        A file cannot be read.

    Examples
    --------
    >>> import numpy as np, onecopy as oc
    >>> scene = np.random.default_rng(1).random((100, 191))
    >>> found = oc.images.register([scene[2:, :100], scene[:98, 91:]], grid=(1, 2), overlap=0.1)
    >>> found.positions.tolist(), found.guessed
    ([[2, 0], [0, 91]], ())
    """
    rows, columns = grid
    sources = Tiles(tiles)
    if rows < 1 or columns < 1 or rows * columns != len(sources):
        raise ValueError(f"a grid of {rows} rows and {columns} columns has {rows * columns} tiles, not {len(sources)}")
    shares = overlap if isinstance(overlap, tuple) else (overlap, overlap)
    if not all(0 < share <= 0.5 for share in shares):
        raise ValueError(f"overlap must be above 0 and at most 0.5, not {overlap}")
    links = list(_links(sources, grid, shares, column_major, min_correlation, progress))
    if links and not any(link.verified for link in links):
        best = max(link.correlation for link in links)
        raise ValueError(
            f"none of {len(links)} pairs of neighbours could be verified: the best correlation is {best:.2f}, less "
            f"than {min_correlation}; check the grid ({rows} rows, {columns} columns, listed by "
            f"{'columns' if column_major else 'rows'}) and the overlap"
        )
    return _joined(len(sources), links, sources.shape_and_dtype(0)[0], shares)


def _links(
    tiles: Tiles,
    grid: tuple[int, int],
    shares: tuple[float, float],
    column_major: bool,
    min_correlation: float,
    progress: Callable[[int, int], object] | None,
) -> Iterator[Link]:
    """Yield the links between all pairs of neighbours, keeping the edges of two rows of tiles in memory."""
    above: list[_Edges] = []
    for row in range(grid[0]):
        edges: list[_Edges] = []
        for column in range(grid[1]):
            number = column * grid[0] + row if column_major else row * grid[1] + column
            edges.append(_Edges.of(tiles, number, shares))
            if column:
                yield _measured(edges[-2], edges[-1], 1, shares, min_correlation)
            if row:
                yield _measured(above[column], edges[-1], 0, shares, min_correlation)
            if progress is not None:
                progress(row * grid[1] + column + 1, len(tiles))
        above = edges


class _Edges(NamedTuple):
    """The strips of a tile that may overlap its neighbours."""

    number: int
    shape: tuple[int, int]
    head: tuple[NDArray[Any], NDArray[Any]]
    """Strips at the top and at the left."""
    tail: tuple[NDArray[Any], NDArray[Any]]
    """Strips at the bottom and at the right."""

    @classmethod
    def of(cls, tiles: Tiles, number: int, shares: tuple[float, float]) -> _Edges:
        shape = tiles.shape_and_dtype(number)[0]
        if shape != tiles.shape_and_dtype(0)[0] or len(shape) not in (2, 3):
            raise ValueError(
                f"tile shapes differ: {tiles.name(number)} has {shape}, tile 0 has {tiles.shape_and_dtype(0)[0]}"
            )
        pixels = np.asarray(tiles.load(number))
        grey = pixels.astype(np.float32) if pixels.ndim == 2 else pixels.mean(axis=2, dtype=np.float32)
        deep, wide = (_strip(extent, share) for extent, share in zip(grey.shape, shares, strict=True))
        head = grey[:deep].copy(), grey[:, :wide].copy()
        return cls(number, (len(grey), grey.shape[1]), head, (grey[-deep:].copy(), grey[:, -wide:].copy()))


def _strip(extent: int, share: float) -> int:
    return min(extent, max(2 * _THINNEST, round(2 * share * extent)))


def _measured(first: _Edges, second: _Edges, axis: int, shares: tuple[float, float], min_correlation: float) -> Link:
    """Measure the shift between two neighbours; the second tile is below the first (axis 0) or to its right (1)."""
    one, other = first.tail[axis], second.head[axis]
    reach = max(1, round(shares[1 - axis] * first.shape[1 - axis]))
    seam = _Seam(one, other, axis, reach)
    tops = [seam.climbed(start) for start in _likely(one, other, axis, reach)]
    correlation, along, aside = max((seam.at(top), *top) for top in tops)
    pixels = seam.pixels((along, aside))
    along += first.shape[axis] - one.shape[axis]  # relative to the tile, not to its strip
    shift = (along, aside) if axis == 0 else (aside, along)
    return Link(
        first.number, second.number, shift, max(correlation, -1.0), pixels, correlation >= min_correlation, axis
    )


def _likely(one: NDArray[Any], other: NDArray[Any], axis: int, reach: int) -> Iterator[tuple[int, int]]:
    """Yield the shifts (along the axis, across it) at the peaks of the phase correlation of two strips."""
    product = fft.rfft2(one - one.mean()) * np.conj(fft.rfft2(other - other.mean()))
    size = np.abs(product)
    phases = np.divide(product, size, out=np.zeros_like(product), where=size > 0)
    surface = fft.irfft2(phases, s=one.shape)
    surface = surface if axis == 0 else surface.T
    aside = np.r_[0 : min(reach, surface.shape[1] - 1) + 1, -min(reach, surface.shape[1] - 1) : 0]
    window = surface[: surface.shape[0] - _THINNEST + 1, aside]
    peaks = np.argpartition(window, -min(_PEAKS, window.size), axis=None)[-_PEAKS:]
    for peak in peaks:
        row, column = divmod(int(peak), window.shape[1])
        yield row, int(aside[column])


class _Seam:
    """Two strips that may overlap, and a cache of their correlations by shift.

    A shift is (along the axis, across it). The correlation of each shift is computed once.
    """

    def __init__(self, one: NDArray[Any], other: NDArray[Any], axis: int, reach: int) -> None:
        # float64 without the mean: sums of squares of bright pixels would hide small differences
        self._one, self._other = (
            np.subtract(strip if axis == 0 else strip.T, strip.mean(dtype=np.float64), dtype=np.float64)
            for strip in (one, other)
        )
        self._furthest, self._reach = len(self._one) - _THINNEST, reach
        self._seen: dict[tuple[int, int], float] = {}

    def at(self, shift: tuple[int, int]) -> float:
        """Return the normalised correlation of the overlap, or -2 if the shift is out of range."""
        if not 0 <= shift[0] <= self._furthest or abs(shift[1]) > self._reach:
            return -2.0
        if shift not in self._seen:
            self._seen[shift] = _correlation(*self._common(shift))
        return self._seen[shift]

    def pixels(self, shift: tuple[int, int]) -> int:
        """Return the number of overlapping pixels."""
        return self._common(shift)[0].size

    def climbed(self, here: tuple[int, int]) -> tuple[int, int]:
        """Climb from a shift to a local maximum: none of its eight neighbours is better.

        A step that improves the correlation is repeated with double the length while the correlation improves further.
        """
        while True:
            beside = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
            step = max(beside, key=lambda step: self.at((here[0] + step[0], here[1] + step[1])))
            there = here[0] + step[0], here[1] + step[1]
            if self.at(there) <= self.at(here):
                return here
            while self.at(there) > self.at(here):
                here, step = there, (2 * step[0], 2 * step[1])
                there = here[0] + step[0], here[1] + step[1]

    def _common(self, shift: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
        along, aside = shift
        width = self._one.shape[1]
        first = self._one[along:, max(aside, 0) : width + min(aside, 0)]
        return first, self._other[: len(self._one) - along, max(-aside, 0) : width - max(aside, 0)]


def _correlation(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return the normalised correlation of two arrays, or 0 if one of them is constant."""
    count, sums = a.size, (float(a.sum()), float(b.sum()))
    squares = [float(np.einsum("ij,ij", each, each)) for each in (a, b)]
    spread = [square - total * total / count for square, total in zip(squares, sums, strict=True)]
    if any(left <= _ROUNDED * square for left, square in zip(spread, squares, strict=True)):
        a, b, sums = a - a.mean(), b - b.mean(), (0.0, 0.0)  # rounding errors dominate
        spread = [float(np.einsum("ij,ij", each, each)) for each in (a, b)]
        if any(left <= _ROUNDED**4 * square for left, square in zip(spread, squares, strict=True)):
            return 0.0
    return (float(np.einsum("ij,ij", a, b)) - sums[0] * sums[1] / count) / float(np.sqrt(spread[0] * spread[1]))


def _joined(count: int, links: list[Link], shape: tuple[int, ...], shares: tuple[float, float]) -> Registration:
    """Place tiles by their verified links, and tiles without verified links by the usual shift."""
    edges = [
        Edge(link.first, link.second, link.shift, link.correlation, verified=True) for link in links if link.verified
    ]
    for axis in (0, 1):
        along = [link for link in links if link.axis == axis]
        usual = _usual([link for link in along if link.verified], axis, shape, shares)
        edges += [Edge(link.first, link.second, usual, 0.0, verified=False) for link in along if not link.verified]
    positions, guessed = joined(count, edges, _AGREES)
    return Registration(positions, tuple(links), guessed)


def _usual(links: list[Link], axis: int, shape: tuple[int, ...], shares: tuple[float, float]) -> tuple[int, int]:
    """Return the median shift along an axis, or the shift for the expected overlap if there are no links."""
    if links:
        y, x = np.median([link.shift for link in links], axis=0)
        return round(float(y)), round(float(x))
    along = round(shape[axis] * (1 - shares[axis]))
    return (along, 0) if axis == 0 else (0, along)
