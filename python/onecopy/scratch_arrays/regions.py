"""Which bytes a part of an array is: pure arithmetic on shapes, for regions given as numpy gives them."""

from __future__ import annotations

import operator
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import EllipsisType

    from onecopy.page_cache import Range

MOST_RANGES = 1 << 14
"""More ranges than these become fewer and longer ones."""

Index: TypeAlias = "int | slice | EllipsisType"
Region: TypeAlias = "Index | tuple[Index, ...] | None"
"""Whole numbers and slices on the leading axes; None: everything."""


class Box(NamedTuple):
    """A part of an array without gaps: where it begins on each axis, and how far it goes."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    kept: tuple[int, ...]
    """The lengths without the axes that were given as a whole number, as numpy's views have them."""


def box_of(region: Region, shape: Sequence[int]) -> Box:
    """Return the part that a region means.

    Raises
    ------
    IndexError
        A whole number outside of its axis, or more axes than there are.
    ValueError
        A slice with a step.
    TypeError
        Anything else than whole numbers, slices and one ``...``.

    Examples
    --------
    >>> box_of((slice(2, 4), 7), (10, 20, 3))
    Box(starts=(2, 7, 0), lengths=(2, 1, 3), kept=(2, 3))
    """
    indices = list(region) if isinstance(region, tuple) else [] if region is None else [region]
    if sum(index is Ellipsis for index in indices) > 1:
        raise TypeError("a region has one '...' at most")
    missing = len(shape) - sum(index is not Ellipsis for index in indices)
    if missing < 0:
        raise IndexError(f"{len(shape) - missing} axes are indexed, and the array has {len(shape)}")
    at = next((i for i, index in enumerate(indices) if index is Ellipsis), len(indices))
    indices[at : at + 1] = [slice(None)] * missing
    starts, lengths, kept = [], [], []
    for index, extent in zip(indices, shape, strict=True):
        start, length = _on_axis(index, extent)
        starts.append(start)
        lengths.append(length)
        if isinstance(index, slice):
            kept.append(length)
    return Box(tuple(starts), tuple(lengths), tuple(kept))


def _on_axis(index: object, extent: int) -> tuple[int, int]:
    if isinstance(index, slice):
        start, stop, step = index.indices(extent)
        if step != 1:
            raise ValueError(f"a region has no steps, but one of {step} was given")
        return start, max(stop - start, 0)
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise TypeError(f"a region is whole numbers and slices, not {index!r}")
    number = operator.index(index)
    if not -extent <= number < extent:
        raise IndexError(f"index {number} is outside of an axis of {extent}")
    return number % extent, 1


def strides_of(shape: Sequence[int], item: int) -> tuple[int, ...]:
    """Return the bytes from one index to the next of each axis, the last axis running fastest.

    Examples
    --------
    >>> strides_of((2, 3, 4), 2)
    (24, 8, 2)
    """
    return tuple(prod(shape[axis + 1 :]) * item for axis in range(len(shape)))


def run_axis(lengths: Sequence[int], shape: Sequence[int]) -> int:
    """Return the axis from which on a box lies in one piece: all axes behind it are whole.

    Examples
    --------
    >>> run_axis((1, 3, 4), (2, 3, 4)), run_axis((2, 1, 4), (2, 3, 4)), run_axis((2, 3, 1), (2, 3, 4))
    (0, 1, 2)
    """
    axis = len(shape) - 1
    while axis > 0 and lengths[axis] == shape[axis]:
        axis -= 1
    return max(axis, 0)


def ranges_of(region: Region, shape: Sequence[int], item: int) -> list[Range]:
    """Return (offset, length) in bytes of what a region means, in order, without gaps inside of each.

    For hints: where that would be more than `MOST_RANGES`, what lies between them belongs to them.

    Examples
    --------
    >>> ranges_of(slice(1, 3), (4, 10), 2)
    [(20, 40)]
    >>> ranges_of((slice(1, 3), slice(0, 5)), (4, 10), 2)
    [(20, 10), (40, 10)]
    """
    box = box_of(region, shape)
    starts, lengths = list(box.starts), list(box.lengths)
    if prod(lengths) == 0:
        return []
    if not lengths:
        return [(0, item)]
    axis = run_axis(lengths, shape)
    while prod(lengths[:axis]) > MOST_RANGES:
        starts[axis], lengths[axis] = 0, shape[axis]
        axis = run_axis(lengths, shape)
    strides = strides_of(shape, item)
    first = sum(start * stride for start, stride in zip(starts, strides, strict=True))
    outer = [range(0, length * stride, stride) for length, stride in zip(lengths[:axis], strides, strict=False)]
    return [(first + sum(steps), lengths[axis] * strides[axis]) for steps in product(*outer)]
