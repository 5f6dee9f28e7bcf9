"""Where overlapping tiles lie to each other, found in their pixels.

    found = oc.images.register(sorted(folder.glob("*.tif")), grid=(5, 5), overlap=0.1, columns_first=True)
    found.positions          # (y, x) of each tile: for oc.images.mosaic
    print(found)             # how many seams were verified, and what was guessed

Of two neighbours only the strips that may overlap are looked at. Their phase correlation (SciPy's FFT)
says which shifts are likely, and the normalised correlation of the pixels that would lie on each other says which of
them is true: from each, the best shift nearby is sought in steps that grow as long as they lead to a better one, so
that smooth pictures, where a peak may be hundreds of pixels off, take some hundred looks and not thousands. Shifts that
are verified so are joined: first along the tree of the best ones, then all that agree with it to within 2 pixels are
balanced by least squares. What no seam leads to is placed by the median of the others, and listed.

**When not to use it.** For tiles that are turned or distorted against each other, or cells that move between tiles:
shifts are all it knows, in whole pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.images.tiles import Tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from onecopy.images.tiles import Tile

__all__ = ["Link", "Registration", "register"]

_PEAKS = 8
"""Of the phase correlation, that are verified."""
_THINNEST = 3
"""Pixels of overlap that can say something."""
_ROUNDED = 1e-6
"""Of a sum of squares: where less of it is left without the mean, the mean is taken away first."""
_AGREES = 2
"""Pixels by which a link may differ from the tree, and still be balanced with it."""


class Link(NamedTuple):
    """What was found of two neighbours."""

    first: int
    second: int
    shift: tuple[int, int]
    """Pixels (y, x) from the first one to the second."""
    correlation: float
    """Of the pixels that lie on each other with this shift: 1 is equal up to brightness and contrast."""
    pixels: int
    """How many those are."""
    verified: bool
    """Whether the correlation is as high as was asked for."""
    axis: int
    """0: the second one is below the first; 1: to its right."""


class Registration(NamedTuple):
    """Where tiles lie; printed it is a sentence."""

    positions: NDArray[Any]
    """(y, x) of each tile, in whole pixels from the corner of all of them: n x 2, int64."""
    links: tuple[Link, ...]
    """All pairs of neighbours."""
    guessed: tuple[int, ...]
    """Tiles that no verified link joins to the most of the others: placed by the usual shift."""

    def __str__(self) -> str:
        good = [link for link in self.links if link.verified]
        text = f"{len(self.positions)} tiles: {len(good)} of {len(self.links)} seams verified"
        if good:
            text += f", correlation {min(link.correlation for link in good):.3f} and more"
        if self.guessed:
            numbers = ", ".join(map(str, self.guessed[:10])) + (", ..." if len(self.guessed) > 10 else "")
            text += f"; placed by the usual shift: {numbers}"
        return text


def register(
    tiles: Sequence[Tile],
    grid: tuple[int, int],
    overlap: float | tuple[float, float] = 0.1,
    *,
    columns_first: bool = False,
    least: float = 0.5,
    progress: Callable[[int, int], object] | None = None,
) -> Registration:
    """Find the positions of tiles of one size that were taken in a grid.

    Parameters
    ----------
    tiles
        Arrays, paths, or functions that return arrays; in the order of the grid. Of each, only its edges are kept.
        Colours are averaged.
    grid
        (rows, columns).
    overlap
        The share of a tile that neighbours are expected to have in common, or two of them: (rows of vertical
        neighbours, columns of horizontal ones). Anything from 3 pixels to twice as much is found, and shifts sideways
        of up to this share.
    columns_first
        The tiles of the first column come first; else those of the first row.
    least
        The correlation from which on a shift counts as verified.
    progress
        Called with (tiles done, tiles in total); raising in it stops the work.

    Raises
    ------
    ValueError
        The grid does not fit the number of tiles, the tiles differ in shape, or no two of them could be verified.
    OSError, CodecError
        A file that cannot be read.

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
        raise ValueError(f"{rows} rows x {columns} columns need {rows * columns} tiles, found {len(sources)}")
    shares = overlap if isinstance(overlap, tuple) else (overlap, overlap)
    if not all(0 < share <= 0.5 for share in shares):
        raise ValueError(f"overlap must be more than 0 and at most 0.5, but is {overlap}")
    links = list(_links(sources, grid, shares, columns_first, least, progress))
    if links and not any(link.verified for link in links):
        best = max(link.correlation for link in links)
        raise ValueError(
            f"none of {len(links)} pairs of neighbours could be verified: the best correlation is {best:.2f}, less "
            f"than {least}; is the grid {rows} rows by {columns} columns, {'columns' if columns_first else 'rows'} "
            "first, and the overlap about right?"
        )
    return _joined(len(sources), links, sources.look(0)[0], shares)


def _number(row: int, column: int, grid: tuple[int, int], columns_first: bool) -> int:
    return column * grid[0] + row if columns_first else row * grid[1] + column


def _links(
    tiles: Tiles,
    grid: tuple[int, int],
    shares: tuple[float, float],
    columns_first: bool,
    least: float,
    progress: Callable[[int, int], object] | None,
) -> Iterator[Link]:
    """Measure all pairs of neighbours; two rows of edges are held."""
    above: list[_Edges] = []
    for row in range(grid[0]):
        edges: list[_Edges] = []
        for column in range(grid[1]):
            number = _number(row, column, grid, columns_first)
            edges.append(_Edges.of(tiles, number, shares))
            if column:
                yield _measured(edges[-2], edges[-1], 1, shares, least)
            if row:
                yield _measured(above[column], edges[-1], 0, shares, least)
            if progress is not None:
                progress(row * grid[1] + column + 1, len(tiles))
        above = edges


class _Edges(NamedTuple):
    """The strips of a tile in which neighbours may lie."""

    number: int
    shape: tuple[int, int]
    head: tuple[NDArray[Any], NDArray[Any]]
    """Top and left."""
    tail: tuple[NDArray[Any], NDArray[Any]]
    """Bottom and right."""

    @classmethod
    def of(cls, tiles: Tiles, number: int, shares: tuple[float, float]) -> _Edges:
        import numpy as np

        shape = tiles.look(number)[0]
        if shape != tiles.look(0)[0] or len(shape) not in (2, 3):
            raise ValueError(f"{tiles.name(number)} has shape {shape}, and the first one {tiles.look(0)[0]}")
        pixels = np.asarray(tiles.load(number))
        grey = pixels.astype(np.float32) if pixels.ndim == 2 else pixels.mean(axis=2, dtype=np.float32)
        deep, wide = (_strip(extent, share) for extent, share in zip(grey.shape, shares, strict=True))
        head = grey[:deep].copy(), grey[:, :wide].copy()
        return cls(number, (len(grey), grey.shape[1]), head, (grey[-deep:].copy(), grey[:, -wide:].copy()))


def _strip(extent: int, share: float) -> int:
    return min(extent, max(2 * _THINNEST, round(2 * share * extent)))


def _measured(first: _Edges, second: _Edges, axis: int, shares: tuple[float, float], least: float) -> Link:
    """Find the shift between two neighbours along an axis: 0, the second below the first; 1, to the right of it."""
    one, other = first.tail[axis], second.head[axis]
    reach = max(1, round(shares[1 - axis] * first.shape[1 - axis]))
    seam = _Seam(one, other, axis, reach)
    tops = [seam.climbed(start) for start in _likely(one, other, axis, reach)]
    correlation, along, aside = max((seam.at(top), *top) for top in tops)
    pixels = seam.pixels((along, aside))
    along += first.shape[axis] - one.shape[axis]  # from the corner of the tile, not of its strip
    shift = (along, aside) if axis == 0 else (aside, along)
    return Link(first.number, second.number, shift, max(correlation, -1.0), pixels, correlation >= least, axis)


def _likely(one: NDArray[Any], other: NDArray[Any], axis: int, reach: int) -> Iterator[tuple[int, int]]:
    """Yield the shifts (along the axis, aside) that the phase correlation of two strips points at."""
    import numpy as np

    fft = _fft()
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


def _fft() -> Any:
    """Return what transforms, in 32 bits."""
    try:
        from scipy import fft
    except ModuleNotFoundError as error:
        how = "oc.images.register needs SciPy: pip install 'onecopy[images]'"
        raise ModuleNotFoundError(how, name=error.name) from None
    return fft


class _Seam:
    """Two strips that may lie on each other, and the correlations at the shifts that were looked at.

    A shift is (along the axis, aside). Each is looked at once, whichever peak leads to it.
    """

    def __init__(self, one: NDArray[Any], other: NDArray[Any], axis: int, reach: int) -> None:
        import numpy as np

        # 64 bits once, and around zero: else sums of squares of bright pixels hide small differences
        self._one, self._other = (
            np.subtract(strip if axis == 0 else strip.T, strip.mean(dtype=np.float64), dtype=np.float64)
            for strip in (one, other)
        )
        self._furthest, self._reach = len(self._one) - _THINNEST, reach
        self._seen: dict[tuple[int, int], float] = {}

    def at(self, shift: tuple[int, int]) -> float:
        """Return the normalised correlation of what the strips have in common; of a shift out of reach, -2."""
        if not 0 <= shift[0] <= self._furthest or abs(shift[1]) > self._reach:
            return -2.0
        if shift not in self._seen:
            self._seen[shift] = _correlation(*self._common(shift))
        return self._seen[shift]

    def pixels(self, shift: tuple[int, int]) -> int:
        """Return how many pixels the strips have in common."""
        return self._common(shift)[0].size

    def climbed(self, here: tuple[int, int]) -> tuple[int, int]:
        """Go from a shift to better ones, until none of the eight beside it is better.

        What leads to a better one is tried again, twice as far, as long as that is better still.
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
    """Return the normalised correlation of two arrays; 0 where one of them is flat."""
    import numpy as np

    count, sums = a.size, (float(a.sum()), float(b.sum()))
    squares = [float(np.einsum("ij,ij", each, each)) for each in (a, b)]
    spread = [square - total * total / count for square, total in zip(squares, sums, strict=True)]
    if any(left <= _ROUNDED * square for left, square in zip(spread, squares, strict=True)):
        a, b, sums = a - a.mean(), b - b.mean(), (0.0, 0.0)  # what rounding has left of it says nothing
        spread = [float(np.einsum("ij,ij", each, each)) for each in (a, b)]
        if any(left <= _ROUNDED**4 * square for left, square in zip(spread, squares, strict=True)):
            return 0.0
    return (float(np.einsum("ij,ij", a, b)) - sums[0] * sums[1] / count) / float(np.sqrt(spread[0] * spread[1]))


def _joined(count: int, links: list[Link], shape: tuple[int, ...], shares: tuple[float, float]) -> Registration:
    """Place all tiles by the verified links, and where those lead nowhere by the usual shift."""
    from onecopy.images._joining import Edge, joined

    edges = [Edge(link.first, link.second, link.shift, link.correlation, sure=True) for link in links if link.verified]
    for axis in (0, 1):
        along = [link for link in links if link.axis == axis]
        usual = _usual([link for link in along if link.verified], axis, shape, shares)
        edges += [Edge(link.first, link.second, usual, 0.0, sure=False) for link in along if not link.verified]
    positions, guessed = joined(count, edges, _AGREES)
    return Registration(positions, tuple(links), guessed)


def _usual(links: list[Link], axis: int, shape: tuple[int, ...], shares: tuple[float, float]) -> tuple[int, int]:
    """Return the median of some shifts along an axis; of none, what the expected overlap says."""
    import numpy as np

    if links:
        y, x = np.median([link.shift for link in links], axis=0)
        return round(float(y)), round(float(x))
    along = round(shape[axis] * (1 - shares[axis]))
    return (along, 0) if axis == 0 else (0, along)
