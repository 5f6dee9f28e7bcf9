"""The byte ranges of a part of an array: arithmetic on shapes and on NumPy indices."""

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
"""Maximum number of ranges that `ranges_of` returns. If there are more, ranges are joined across the gaps."""

Index: TypeAlias = "int | slice | EllipsisType"
Region: TypeAlias = "Index | tuple[Index, ...] | None"
"""Integers and slices without steps, for the leading axes; None: the whole array."""


class Box(NamedTuple):
    """A rectangular part of an array: the first index and the extent on each axis."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    kept: tuple[int, ...]
    """Shape of the part as a NumPy view: `lengths` without the axes that are indexed by an integer."""


def box_of(region: Region, shape: Sequence[int]) -> Box:
    """Convert a region to a box. Raise IndexError, ValueError (for a step) or TypeError if the region is invalid."""
    indices = list(region) if isinstance(region, tuple) else [] if region is None else [region]
    if sum(index is Ellipsis for index in indices) > 1:
        raise TypeError("a region can contain only one '...'")
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
            raise ValueError(f"the slices in a region must have step 1, not step {step}")
        return start, max(stop - start, 0)
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise TypeError(f"a region consists of integers and slices, not {index!r}")
    number = operator.index(index)
    if not -extent <= number < extent:
        raise IndexError(f"index {number} is out of range for an axis with extent {extent}")
    return number % extent, 1


def strides_of(shape: Sequence[int], item: int) -> tuple[int, ...]:
    """Return the strides of an array in C order, in bytes."""
    return tuple(prod(shape[axis + 1 :]) * item for axis in range(len(shape)))


def run_axis(lengths: Sequence[int], shape: Sequence[int]) -> int:
    """Return the first axis after which a box covers all axes completely. From this axis on, the box is contiguous."""
    axis = len(shape) - 1
    while axis > 0 and lengths[axis] == shape[axis]:
        axis -= 1
    return max(axis, 0)


def ranges_of(region: Region, shape: Sequence[int], item: int) -> list[Range]:
    """Return the contiguous byte ranges of a region in a C-order array, in ascending order, for hints to the kernel."""
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
