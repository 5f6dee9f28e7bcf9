"""Computes positions of tiles from the shifts between neighbours: a maximum spanning tree, then least squares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from scipy.sparse.linalg import lsqr

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
    """Whether the shift was measured; False for an expected shift."""


def joined(count: int, edges: Sequence[Edge], tolerance: int) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return the tiles' positions, and the numbers of tiles that no verified edges connect to the largest group.

    The spanning tree prefers verified edges. The least-squares fit includes verified edges that differ from the tree by
    at most `tolerance` pixels. The graph of all edges must be connected, with at most one edge per pair.
    """
    ranked = sorted(edges, key=lambda edge: (not edge.verified, -edge.weight))
    costs = _graph(count, [(edge.first, edge.second) for edge in ranked], range(1, len(ranked) + 1))
    tree = minimum_spanning_tree(costs)  # the rank of an edge is its cost, so that no two costs are equal
    kept = [ranked[int(rank) - 1] for rank in tree.data]
    pairs = [(edge.first, edge.second) for edge in kept if edge.verified]
    _, groups = connected_components(_graph(count, pairs, [1] * len(pairs)))
    largest = np.argmax(np.bincount(groups))
    shifts = {(edge.first, edge.second): np.array(edge.shift) for edge in kept}
    shifts |= {(second, first): -shift for (first, second), shift in shifts.items()}
    positions = np.zeros((count, 2), np.int64)
    order, before = breadth_first_order(tree, int(np.flatnonzero(groups == largest)[0]), directed=False)
    for tile in order[1:]:
        positions[tile] = positions[before[tile]] + shifts[int(before[tile]), int(tile)]
    positions = _balanced(positions, [edge for edge in edges if edge.verified], tolerance)
    return positions - positions.min(axis=0), tuple(np.flatnonzero(groups != largest).tolist())


def _graph(count: int, pairs: Sequence[tuple[int, int]], values: Sequence[float]) -> csr_array:
    return csr_array((values, np.array(pairs, np.int32).reshape(-1, 2).T), shape=(count, count))


def _balanced(positions: NDArray[np.int64], edges: Sequence[Edge], tolerance: int) -> NDArray[np.int64]:
    """Return the positions that minimise the squared errors of the edges, starting from the positions of the tree."""
    if not edges:
        return positions
    first = np.array([edge.first for edge in edges])
    second = np.array([edge.second for edge in edges])
    error = np.array([edge.shift for edge in edges]) - (positions[second] - positions[first])
    near = np.abs(error).max(axis=1) <= tolerance
    first, second, error = first[near], second[near], error[near]
    if not error.any():
        return positions
    rows = np.arange(len(error))
    signs = np.r_[np.ones(len(error)), -np.ones(len(error))]
    difference = csr_array((signs, (np.r_[rows, rows], np.r_[second, first])), shape=(len(error), len(positions)))
    # Accurate to 0.01 pixel. Solutions differ by a shift per connected group; lsqr returns the one of least norm.
    moves = [lsqr(difference, column, atol=1e-8, btol=1e-8)[0] for column in error.T.astype(float)]
    balanced: NDArray[np.int64] = positions + np.rint(np.stack(moves, axis=1)).astype(np.int64)
    return balanced
