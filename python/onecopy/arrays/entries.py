"""The entry of an array: its description in the header, the range of its bytes, and the numpy array on them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from onecopy.errors import FormatError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onecopy.page_cache import Range

READ_SUFFIXES = (".npy", ".npz", ".pt", ".pth", ".gguf", ".onnx", ".ort", ".pte", ".ptd")
"""Suffixes of the formats of other tools that `onecopy.open` reads."""

Part: TypeAlias = "str | tuple[str, slice]"
"""The name of an array, or a name and a slice of its rows: ("wte", slice(0, 1000))."""


class Entry(NamedTuple):
    """The description of one array in the header of a file."""

    name: str
    dtype: str
    """Name of the element type in safetensors ("F32", "BF16", ...), or in the format of the file for other types."""
    shape: tuple[int, ...]
    offset: int
    """Position of the first byte, in bytes from the start of the file."""
    nbytes: int
    """Size of the array in bytes."""


class Memory(NamedTuple):
    """The bytes of one array with their type and layout, for integrations that do not use numpy."""

    view: memoryview
    """The bytes, without a copy."""
    dtype: str
    """Name of the element type, as in `Entry.dtype`."""
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    """Strides in elements; empty for C order."""


def name_of(part: Part) -> str:
    """Return the name of the array of a part."""
    return part if isinstance(part, str) else part[0]


def range_of(entry: Entry, part: Part) -> Range:
    """Return the range of an array, or of rows of it, in its file: (offset, length) in bytes."""
    name, rows = (part, slice(None)) if isinstance(part, str) else part
    if not entry.shape or entry.nbytes == 0:
        return entry.offset, entry.nbytes
    if not isinstance(rows, slice):
        raise TypeError(f"{name!r}: rows must be a slice, not {rows!r}")
    start, stop, step = rows.indices(entry.shape[0])
    if step != 1:
        raise ValueError(f"{name!r}: rows must be a slice of step 1, not {step}")
    if stop <= start:
        return entry.offset, 0
    # Rows of packed elements need not start on a byte boundary: round outwards.
    begin = start * entry.nbytes // entry.shape[0]
    end = -(-stop * entry.nbytes // entry.shape[0])
    return entry.offset + begin, end - begin


def array_of(where: str, name: str, memory: Memory) -> NDArray[Any]:
    """Return a numpy array on the bytes of an array in the file `where`, without a copy."""
    import numpy as np

    view, dtype_name, shape, strides = memory
    dtype, is_raw = dtype_of(dtype_name)
    if is_raw:
        return np.ndarray(len(view), dtype, view)
    try:
        return np.ndarray(shape, dtype, view, strides=tuple(step * dtype.itemsize for step in strides) or None)
    except ValueError as error:  # 65 axes, or an extent beyond 63 bits in an empty array: valid in the file
        raise FormatError(f"{where}: {name!r}: numpy cannot represent its shape: {error}") from None


@functools.cache
def dtype_of(name: str) -> tuple[np.dtype[Any], bool]:
    """Return the numpy dtype of an element type, and whether its elements are given as raw bytes."""
    from onecopy.arrays import dtypes

    return dtypes.to_numpy(name), dtypes.is_raw(name)
