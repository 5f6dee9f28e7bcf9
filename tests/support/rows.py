"""Integers that tests put into rows, and what it means for a value to have come back."""

import struct
from typing import Any

import numpy as np

INTEGERS = [
    sign * 2**bits + more for bits in (7, 8, 15, 31, 53, 63, 64, 200) for sign in (1, -1) for more in (-1, 0, 1)
]
"""Integers beside the limits of every width."""


def same(mine: Any, theirs: Any) -> bool:  # noqa: PLR0911
    """Tell whether two values are the same: types, order of keys and bits of floats included."""
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, float):
        return struct.pack("d", mine) == struct.pack("d", theirs)
    if type(mine) is complex:
        return same((mine.real, mine.imag), (theirs.real, theirs.imag))
    if isinstance(mine, (list, tuple)):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, dict):
        return same(list(mine.items()), list(theirs.items()))
    if isinstance(mine, (np.ndarray, np.generic)):
        return mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()
    return bool(mine == theirs)
