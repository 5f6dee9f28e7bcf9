"""Positions of tiles from the shifts between neighbours: a maximum spanning tree, then least squares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Edge(NamedTuple):
    """The measured or expected shift between two tiles."""

    first: int
    second: int
    shift: tuple[int, int]
    """Pixels (y, x) from the first tile to the second."""
    weight: float
    """Priority in the spanning tree: higher weights are used first."""
    verified: bool
    """False if the shift is an expected one that was not measured."""


def joined(count: int, edges: Sequence[Edge], tolerance: int) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return the positions of `count` tiles, and the numbers of those that no verified edge joins to the largest group.

    The spanning tree uses verified edges before others. A verified edge takes part in the least squares if it differs
    from the tree by at most `tolerance` pixels. The graph of all edges must be connected.
    """
    tree = _tree(count, edges)
    groups = _groups(count, [edge for edge in tree if edge.verified])
    start = max(range(count), key=lambda tile: (groups.count(groups[tile]), -tile)) if count else 0
    positions = _along(count, tree, start)
    positions = _balanced(positions, [edge for edge in edges if edge.verified], tolerance)
    guessed = tuple(tile for tile in range(count) if groups[tile] != groups[start])
    return positions - positions.min(axis=0, initial=2**62), guessed


def _tree(count: int, edges: Sequence[Edge]) -> list[Edge]:
    """Return the edges of a maximum spanning tree (Kruskal): verified edges first, then by weight."""
    group = list(range(count))

    def root(tile: int) -> int:
        while group[tile] != tile:
            group[tile] = group[group[tile]]
            tile = group[tile]
        return tile

    tree = []
    for edge in sorted(edges, key=lambda edge: (not edge.verified, -edge.weight)):
        one, other = root(edge.first), root(edge.second)
        if one != other:
            group[one] = other
            tree.append(edge)
    return tree


def _groups(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return a group number for each tile: tiles have the same number if edges connect them."""
    near: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        near[edge.first].append(edge.second)
        near[edge.second].append(edge.first)
    group = [-1] * count
    for tile in range(count):
        waiting = [tile] if group[tile] < 0 else []
        while waiting:
            at = waiting.pop()
            group[at] = tile
            waiting += [other for other in near[at] if group[other] < 0]
    return group


def _along(count: int, tree: Sequence[Edge], start: int) -> NDArray[np.int64]:
    near: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
    for first, second, (y, x), _, _ in tree:
        near[first].append((second, y, x))
        near[second].append((first, -y, -x))
    positions = np.zeros((count, 2), np.int64)
    seen, waiting = {start}, [start]
    while waiting:
        at = waiting.pop()
        for other, y, x in near[at]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
                positions[other] = positions[at] + (y, x)
    return positions


def _balanced(positions: NDArray[np.int64], edges: Sequence[Edge], tolerance: int) -> NDArray[np.int64]:
    """Return the positions that minimise the squared errors of the edges, starting from the positions of the tree."""
    if not edges:
        return positions
    first = np.array([edge.first for edge in edges])
    second = np.array([edge.second for edge in edges])
    shifts = np.array([edge.shift for edge in edges])
    error = shifts - (positions[second] - positions[first])
    near = np.abs(error).max(axis=1) <= tolerance
    first, second, error = first[near], second[near], error[near]
    if not error.any():
        return positions
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import lsqr

    rows = np.arange(len(error))
    signs = np.r_[np.ones(len(error)), -np.ones(len(error))]
    difference = csr_array((signs, (np.r_[rows, rows], np.r_[second, first])), shape=(len(error), len(positions)))
    # Accurate to 0.01 pixel. Solutions differ by a shift per connected group; lsqr returns the one of least norm.
    moves = [lsqr(difference, column, atol=1e-8, btol=1e-8)[0] for column in error.T.astype(float)]
    balanced: NDArray[np.int64] = positions + np.rint(np.stack(moves, axis=1)).astype(np.int64)
    return balanced
