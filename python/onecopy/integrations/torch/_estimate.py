"""How many bytes Python objects take, from a look at some of them."""

from __future__ import annotations

import contextlib
import sys
from itertools import islice
from typing import Any

BREADTHS = (256, 16, 8, 4)  # how many children are looked at, by depth; deeper ones count without theirs


def estimated_bytes(value: Any, depth: int = 0) -> int:
    """Return the bytes of an object and all it holds, as far as a sample tells; arrays and tensors exactly.

    What stands in a container several times counts once, and so do the keys of the dicts in it.

    Examples
    --------
    >>> estimated_bytes([]), estimated_bytes(["abcdefg" * 100] * 1000) < 10_000
    (56, True)
    """
    with contextlib.suppress(RuntimeError):  # of sparse tensors, which have none
        if isinstance(nbytes := getattr(value, "nbytes", None), int):  # arrays, tensors
            return nbytes
    own = sys.getsizeof(value, 0)
    if depth == len(BREADTHS):
        return own
    if isinstance(value, dict):
        keys = 0 if depth else _of_children(list(_sample(value, depth)), len(value), depth)  # of records they are one
        return own + keys + _of_values(value, depth)
    if isinstance(value, list | tuple | set | frozenset):
        return own + _of_children(list(_sample(value, depth)), len(value), depth)
    return own + (estimated_bytes(vars(value), depth + 1) if hasattr(value, "__dict__") else 0)


def _of_values(value: dict[Any, Any], depth: int) -> int:
    return _of_children([value[key] for key in _sample(value, depth)], len(value), depth)


def _sample(container: Any, depth: int) -> islice[Any]:
    """Return some elements, evenly spread; of what has no index, the first ones cost less to reach than any."""
    step = max(1, len(container) // BREADTHS[depth])
    if isinstance(container, list | tuple):
        return islice(container[::step], BREADTHS[depth])
    return islice(container, BREADTHS[depth])


def _of_children(sample: list[Any], count: int, depth: int) -> int:
    """Return the bytes of so many children, by a sample of them; the sample keeps them alive, so that ids tell."""
    if not sample:
        return 0
    different = {id(child): child for child in sample}
    total = sum(estimated_bytes(child, depth + 1) for child in different.values())
    if len(different) < len(sample):  # few objects many times, or nearly all different
        return total * count // len(sample) if len(different) > len(sample) // 2 else total
    return total * count // len(sample)
