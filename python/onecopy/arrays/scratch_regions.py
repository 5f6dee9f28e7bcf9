"""Byte ranges of a part of an array: pure arithmetic on shapes and on indices as numpy takes them."""

from __future__ import annotations

import operator
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import EllipsisType

    from onecopy.files.page_cache import Range

MAX_RANGES = 1 << 14
"""Maximum number of ranges that `ranges_of` returns; beyond it, ranges are joined with the gaps between them."""

Index: TypeAlias = "int | slice | EllipsisType"
Region: TypeAlias = "Index | tuple[Index, ...] | None"
"""Integers and slices without steps on the leading axes; None is the whole array."""


class Box(NamedTuple):
    """A rectangular part of an array."""

    starts: tuple[int, ...]
    """First index of the part on each axis."""
    lengths: tuple[int, ...]
    """Extent of the part on each axis; 1 where the region has an integer."""
    kept: tuple[int, ...]
    """Shape of the part as a numpy view: `lengths` without the axes where the region has an integer."""


def box_of(region: Region, shape: Sequence[int]) -> Box:
    """Return the box of a region in an array of this shape.

    IndexError if an integer is out of range, or the region has more axes than the array; ValueError if a slice has a
    step; TypeError if the region has something else than integers, slices and one ``...``.

    Examples
    --------
    >>> box_of((slice(2, 4), 7), (10, 20, 3))
    Box(starts=(2, 7, 0), lengths=(2, 1, 3), kept=(2, 3))
    """
    indices = list(region) if isinstance(region, tuple) else [] if region is None else [region]
    if sum(index is Ellipsis for index in indices) > 1:
        raise TypeError("a region must have at most one '...'")
    missing = len(shape) - sum(index is not Ellipsis for index in indices)
    if missing < 0:
        raise IndexError(f"the region has {len(shape) - missing} axes, but the array has {len(shape)}")
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
            raise ValueError(f"slices of a region must have step 1, not {step}")
        return start, max(stop - start, 0)
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise TypeError(f"a region must have integers and slices, not {index!r}")
    number = operator.index(index)
    if not -extent <= number < extent:
        raise IndexError(f"index {number} is out of range for an axis of {extent}")
    return number % extent, 1


def strides_of(shape: Sequence[int], item: int) -> tuple[int, ...]:
    """Return the strides of a C-order array in bytes, for elements of `item` bytes.

    Examples
    --------
    >>> strides_of((2, 3, 4), 2)
    (24, 8, 2)
    """
    return tuple(prod(shape[axis + 1 :]) * item for axis in range(len(shape)))


def run_axis(lengths: Sequence[int], shape: Sequence[int]) -> int:
    """Return the first axis from which a box is contiguous: the box has the whole extent of all later axes.

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
    """Return the contiguous byte ranges (offset, length) of a region in a C-order array, in ascending order.

    The ranges are for hints to the kernel: if there were more than `MAX_RANGES`, they include the gaps between them.

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
    while prod(lengths[:axis]) > MAX_RANGES:
        starts[axis], lengths[axis] = 0, shape[axis]
        axis = run_axis(lengths, shape)
    strides = strides_of(shape, item)
    first = sum(start * stride for start, stride in zip(starts, strides, strict=True))
    outer = [range(0, length * stride, stride) for length, stride in zip(lengths[:axis], strides, strict=False)]
    return [(first + sum(steps), lengths[axis] * strides[axis]) for steps in product(*outer)]
