"""Computes the visible part of each tile, as non-overlapping rectangles on the canvas.

The visible part of a tile consists of the pixels that no later tile covers. Because the rectangles are disjoint, each
tile can be written once, in any order, by several threads or processes at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray


class Rectangle(NamedTuple):
    """Rows [top, bottom) and columns [left, right)."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def pixels(self) -> int:
        """Area in pixels."""
        return (self.bottom - self.top) * (self.right - self.left)

    def common(self, other: Rectangle) -> Rectangle | None:
        """Return the intersection of two rectangles, or None if it is empty.

        Examples
        --------
        >>> Rectangle(0, 0, 5, 5).common(Rectangle(3, 1, 9, 2))
        Rectangle(top=3, left=1, bottom=5, right=2)
        """
        top, left = max(self.top, other.top), max(self.left, other.left)
        bottom, right = min(self.bottom, other.bottom), min(self.right, other.right)
        return Rectangle(top, left, bottom, right) if top < bottom and left < right else None

    def without(self, other: Rectangle) -> list[Rectangle]:
        """Return this rectangle minus another, as rectangles above, below, left and right of it.

        Examples
        --------
        >>> Rectangle(0, 0, 2, 4).without(Rectangle(0, 1, 9, 9))
        [Rectangle(top=0, left=0, bottom=2, right=1)]
        """
        hole = self.common(other)
        if hole is None:
            return [self]
        rest = [
            Rectangle(self.top, self.left, hole.top, self.right),
            Rectangle(hole.bottom, self.left, self.bottom, self.right),
            Rectangle(hole.top, self.left, hole.bottom, hole.left),
            Rectangle(hole.top, hole.right, hole.bottom, self.right),
        ]
        return [one for one in rest if one.pixels > 0]


class Share(NamedTuple):
    """The visible part of one tile."""

    tile: int
    """Number of the tile."""
    place: Rectangle
    """Rectangle of the whole tile on the canvas."""
    shown: tuple[Rectangle, ...]
    """Rectangles of the canvas that no later tile covers, from top to bottom."""

    @property
    def top(self) -> int:
        """First visible row."""
        return self.shown[0].top

    @property
    def bottom(self) -> int:
        """The row after the last visible row."""
        return max(piece.bottom for piece in self.shown)


def shares(places: NDArray[np.int64], order: Sequence[int]) -> list[Share]:
    """Return the visible parts of the tiles from top to bottom, without tiles that are completely covered.

    Parameters
    ----------
    places
        (top, left, bottom, right) of each tile: n x 4.
    order
        The numbers of the tiles from bottom to top; later tiles cover earlier ones.
    """
    rank = np.empty(len(places), np.int64)
    rank[list(order)] = np.arange(len(places))
    found = []
    for tile in sorted(range(len(places)), key=lambda tile: tuple(places[tile, :2])):
        top, left, bottom, right = places[tile]
        above = (rank > rank[tile]) & (places[:, 0] < bottom) & (places[:, 2] > top)
        above &= (places[:, 1] < right) & (places[:, 3] > left)
        place = Rectangle(*map(int, places[tile]))
        shown = minus(place, (Rectangle(*map(int, places[one])) for one in np.flatnonzero(above)))
        if shown:
            found.append(Share(tile, place, tuple(sorted(shown))))
    return downwards(found)


def downwards(found: Iterable[Share]) -> list[Share]:
    """Sort shares in writing order: from top to bottom, then from left to right."""
    return sorted(found, key=lambda share: share.shown[0])


def in_bands(whole: Iterable[Share], rows: int, may_be_cut: Callable[[int], bool]) -> list[Share]:
    """Cut shares at multiples of `rows` rows, if their tiles may be cut.

    Examples
    --------
    >>> places = [Rectangle(0, left, 5, left + 1) for left in (0, 1)]
    >>> cut = in_bands([Share(tile, place, (place,)) for tile, place in enumerate(places)], 3, lambda tile: tile == 0)
    >>> [(share.tile, share.top, share.bottom) for share in cut]
    [(0, 0, 3), (1, 0, 5), (0, 3, 5)]
    """
    found = []
    for share in whole:
        starts = range(share.top // rows * rows, share.bottom, rows) if may_be_cut(share.tile) else ()
        cut = [piece for at in starts if (piece := within(share, at, at + rows)) is not None]
        found += cut or [share]
    return downwards(found)


def minus(whole: Rectangle, holes: Iterable[Rectangle]) -> list[Rectangle]:
    """Return disjoint rectangles that cover `whole` minus `holes`."""
    rest = [whole]
    for hole in holes:
        rest = [piece for one in rest for piece in one.without(hole)]
    return rest


def within(share: Share, first: int, last: int) -> Share | None:
    """Return the part of a share in rows [first, last), or None if it is empty."""
    rows = Rectangle(first, share.place.left, last, share.place.right)
    shown = sorted(piece for one in share.shown if (piece := one.common(rows)) is not None)
    return share._replace(shown=tuple(shown)) if shown else None


def span_of(shares: list[Share]) -> int:
    """Return the maximum number of rows that are partly written at a time when shares are written in this order."""
    lowest, span = 0, 0
    for share in shares:
        lowest = max(lowest, share.bottom)
        span = max(span, lowest - share.top)
    return span


def covered_rows(shares: list[Share], rows: int) -> NDArray[np.int64]:
    """Return the number of written pixels in each of `rows` rows.

    Examples
    --------
    >>> covered_rows([Share(0, Rectangle(1, 0, 3, 5), (Rectangle(1, 0, 3, 2), Rectangle(2, 2, 3, 5)))], 4)
    array([0, 2, 5, 0])
    """
    steps = np.zeros(rows + 1, np.int64)
    for share in shares:
        for piece in share.shown:
            steps[piece.top] += piece.right - piece.left
            steps[piece.bottom] -= piece.right - piece.left
    return np.cumsum(steps[:-1])
