"""From shifts between neighbours to positions: a tree of the best ones, and a balance of those that agree with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Edge(NamedTuple):
    """Two tiles, and the shift from one to the other."""

    first: int
    second: int
    shift: tuple[int, int]
    weight: float
    """Those with more are used first."""
    sure: bool


def joined(count: int, edges: Sequence[Edge], agrees: int) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return the positions of `count` tiles, and the numbers of those that no sure edge joins to the most.

    Edges that are sure come before those that are not, and differ from the tree by `agrees` pixels at most to be
    balanced. There must be a way between any two tiles.
    """
    tree = _tree(count, edges)
    groups = _groups(count, [edge for edge in tree if edge.sure])
    start = max(range(count), key=lambda tile: (groups.count(groups[tile]), -tile)) if count else 0
    positions = _along(count, tree, start)
    positions = _balanced(positions, [edge for edge in edges if edge.sure], agrees)
    guessed = tuple(tile for tile in range(count) if groups[tile] != groups[start])
    return positions - positions.min(axis=0, initial=2**62), guessed


def _tree(count: int, edges: Sequence[Edge]) -> list[Edge]:
    """Return the edges that join all tiles, the best ones first."""
    group = list(range(count))

    def root(tile: int) -> int:
        while group[tile] != tile:
            group[tile] = group[group[tile]]
            tile = group[tile]
        return tile

    tree = []
    for edge in sorted(edges, key=lambda edge: (not edge.sure, -edge.weight)):
        one, other = root(edge.first), root(edge.second)
        if one != other:
            group[one] = other
            tree.append(edge)
    return tree


def _groups(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return a number for each tile, the same for those that some edges join."""
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


def _balanced(positions: NDArray[np.int64], edges: Sequence[Edge], agrees: int) -> NDArray[np.int64]:
    """Move tiles so that the sum of the squares of what edges differ by is least; `positions` are those of the tree."""
    if not edges:
        return positions
    first = np.array([edge.first for edge in edges])
    second = np.array([edge.second for edge in edges])
    shifts = np.array([edge.shift for edge in edges])
    error = shifts - (positions[second] - positions[first])
    near = np.abs(error).max(axis=1) <= agrees
    first, second, error = first[near], second[near], error[near]
    if not error.any():
        return positions
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import lsqr

    rows = np.arange(len(error))
    signs = np.r_[np.ones(len(error)), -np.ones(len(error))]
    difference = csr_array((signs, (np.r_[rows, rows], np.r_[second, first])), shape=(len(error), len(positions)))
    # To a hundredth of a pixel; of the solutions, which differ by a shift of all tiles that are joined, the shortest.
    moves = [lsqr(difference, column, atol=1e-8, btol=1e-8)[0] for column in error.T.astype(float)]
    balanced: NDArray[np.int64] = positions + np.rint(np.stack(moves, axis=1)).astype(np.int64)
    return balanced
