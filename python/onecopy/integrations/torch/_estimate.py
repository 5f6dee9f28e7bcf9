"""Estimates of the memory of Python objects, from a sample of their contents."""

from __future__ import annotations

import contextlib
import sys
from itertools import islice
from typing import Any

BREADTHS = (256, 16, 8, 4)  # sampled children by depth; contents below the last depth are not counted


def estimated_bytes(value: Any, depth: int = 0) -> int:
    """Return an estimate of the bytes of an object with all its contents; arrays and tensors are exact.

    An object with several references in a container counts once, and so do the keys of dicts in it.

    Examples
    --------
    >>> estimated_bytes([]), estimated_bytes(["abcdefg" * 100] * 1000) < 10_000
    (56, True)
    """
    with contextlib.suppress(RuntimeError):  # sparse tensors have no nbytes
        if isinstance(nbytes := getattr(value, "nbytes", None), int):  # arrays, tensors
            return nbytes
    own = sys.getsizeof(value, 0)
    if depth == len(BREADTHS):
        return own
    if isinstance(value, dict):
        keys = 0 if depth else _of_children(list(_sample(value, depth)), len(value), depth)  # records share their keys
        return own + keys + _of_values(value, depth)
    if isinstance(value, list | tuple | set | frozenset):
        return own + _of_children(list(_sample(value, depth)), len(value), depth)
    return own + (estimated_bytes(vars(value), depth + 1) if hasattr(value, "__dict__") else 0)


def _of_values(value: dict[Any, Any], depth: int) -> int:
    return _of_children([value[key] for key in _sample(value, depth)], len(value), depth)


def _sample(container: Any, depth: int) -> islice[Any]:
    """Return evenly spaced elements of a list or tuple, or the first elements of another container."""
    step = max(1, len(container) // BREADTHS[depth])
    if isinstance(container, list | tuple):
        return islice(container[::step], BREADTHS[depth])
    return islice(container, BREADTHS[depth])


def _of_children(sample: list[Any], count: int, depth: int) -> int:
    """Return an estimate of the bytes of `count` children from a sample, which keeps them alive, so that ids differ."""
    if not sample:
        return 0
    different = {id(child): child for child in sample}
    total = sum(estimated_bytes(child, depth + 1) for child in different.values())
    if len(different) < len(sample):  # few objects with many references, or nearly all different
        return total * count // len(sample) if len(different) > len(sample) // 2 else total
    return total * count // len(sample)
