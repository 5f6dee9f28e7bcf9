"""Descriptions of arrays (`Entry`), their bytes (`Memory`) as NumPy arrays, and the names of element types."""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onecopy.files.page_cache import Range


READ_SUFFIXES = (".npy", ".npz", ".pt", ".pth", ".gguf", ".onnx", ".ort", ".pte", ".ptd")
"""Suffixes of other tools' formats that `onecopy.open` can read."""

Part: TypeAlias = "str | tuple[str, slice]"
"""The name of an array, or a name and a slice of its rows: ("wte", slice(0, 1000))."""


class Entry(NamedTuple):
    """The description of an array in a file's header."""

    name: str
    dtype: str
    """Name of the element type in safetensors ("F32", "BF16", ...), or for other types, in the file's format."""
    shape: tuple[int, ...]
    offset: int
    """Position of the first byte, in bytes from the start of the file."""
    nbytes: int
    """Size of the array in bytes."""


class Memory(NamedTuple):
    """The bytes of an array with their type and layout, for integrations that do not use NumPy."""

    view: memoryview
    """The bytes themselves, not a copy."""
    dtype: str
    """Name of the element type, as in `Entry.dtype`."""
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    """Strides in elements; empty for C order."""


def name_of(part: Part) -> str:
    """Return the name of the array to which a part belongs."""
    return part if isinstance(part, str) else part[0]


def range_of(entry: Entry, part: Part) -> Range:
    """Return the byte range that an array, or some of its rows, occupies in the file."""
    name, rows = (part, slice(None)) if isinstance(part, str) else part
    if not entry.shape or entry.nbytes == 0:
        return entry.offset, entry.nbytes
    if not isinstance(rows, slice):
        raise TypeError(f"{name!r}: rows must be a slice, not {rows!r}")
    start, stop, step = rows.indices(entry.shape[0])
    if step != 1:
        raise ValueError(f"{name!r}: rows must be a slice with step 1, not step {step}")
    if stop <= start:
        return entry.offset, 0
    # Rows of packed elements need not start on a byte boundary: round outwards.
    begin = start * entry.nbytes // entry.shape[0]
    end = -(-stop * entry.nbytes // entry.shape[0])
    return entry.offset + begin, end - begin


def array_of(memory: Memory) -> NDArray[Any]:
    """Return an array's bytes as a NumPy array, without copying. Raise ValueError if NumPy lacks the shape."""
    import numpy as np

    view, dtype_name, shape, strides = memory
    dtype = to_numpy(dtype_name)
    if dtype.metadata is not None:  # raw bytes
        return np.ndarray(len(view), dtype, view)
    if not strides:
        return np.ndarray(shape, dtype, view)
    return np.ndarray(shape, dtype, view, strides=tuple(step * dtype.itemsize for step in strides))


TYPES: dict[str, tuple[str | None, str | None, tuple[int, int]]] = {
    "BOOL": ("?", None, (6, 8)),
    "U8": ("u1", None, (1, 8)),
    "I8": ("i1", None, (0, 8)),
    "F8_E5M2": (None, "float8_e5m2", (12, 8)),
    "F8_E4M3": (None, "float8_e4m3fn", (10, 8)),
    "F8_E8M0": (None, "float8_e8m0fnu", (14, 8)),
    "F8_E4M3FNUZ": (None, "float8_e4m3fnuz", (11, 8)),
    "F8_E5M2FNUZ": (None, "float8_e5m2fnuz", (13, 8)),
    "I16": ("<i2", None, (0, 16)),
    "U16": ("<u2", None, (1, 16)),
    "F16": ("<f2", None, (2, 16)),
    "BF16": (None, "bfloat16", (4, 16)),
    "I32": ("<i4", None, (0, 32)),
    "U32": ("<u4", None, (1, 32)),
    "F32": ("<f4", None, (2, 32)),
    "C64": ("<c8", None, (5, 64)),
    "F64": ("<f8", None, (2, 64)),
    "I64": ("<i8", None, (0, 64)),
    "U64": ("<u8", None, (1, 64)),
}
"""For each safetensors type: its little-endian NumPy dtype, or its name in ml_dtypes, and its DLPack code and bits."""
PACKED = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits per element for types that are smaller than a byte. Arrays of these types are returned as raw bytes."""

_NUMPY_ORDERS = tuple("<>|=")  # a type string of numpy begins with a byte order

_BY_NUMPY = {(numpy or ml_dtypes or "").lstrip("<"): name for name, (numpy, ml_dtypes, _) in TYPES.items()}
BY_DLPACK = {dlpack: name for name, (_, _, dlpack) in TYPES.items()}


def is_raw(name: str) -> bool:
    """Return whether arrays of a type are returned as raw bytes, as for packed types and types of a single format."""
    return name not in TYPES and name[:1] not in _NUMPY_ORDERS


@functools.cache
def to_numpy(name: str) -> np.dtype[Any]:
    """Return the dtype for a type name: from NumPy, or else from ml_dtypes; uint8 with metadata for raw types."""
    import numpy as np

    if name[:1] in _NUMPY_ORDERS:
        return np.dtype(name)
    if is_raw(name):
        return np.dtype("u1", metadata={"onecopy": name})
    numpy, scalar, _ = TYPES[name]
    if numpy is not None:
        return np.dtype(numpy)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, str(scalar)))
    return dtype


def of_numpy(dtype: np.dtype[Any]) -> str | None:
    """Return the safetensors name of a NumPy dtype of any byte order, or None if safetensors lacks the type."""
    marked: Any = dtype.metadata
    if marked and "onecopy" in marked:
        return str(marked["onecopy"])
    return _BY_NUMPY.get(dtype.name) or _BY_NUMPY.get("?" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}")


def in_safetensors(name: str) -> bool:
    """Return whether `save` can write elements of a type, given the type's name in any file format."""
    return not is_raw(name) and of_numpy(to_numpy(name)) is not None


@functools.cache
def of_torch(dtype: Any) -> str | None:
    """Return the safetensors name of a torch dtype ("F4" for pairs of F4), or None if safetensors lacks the type."""
    import numpy as np

    name = str(dtype).removeprefix("torch.")
    for known, (numpy, scalar, _) in TYPES.items():
        if name == (scalar or np.dtype(numpy).name):
            return known
    return "F4" if name == "float4_e2m1fn_x2" else None


def nbytes_of(name: str, shape: tuple[int, ...]) -> int:
    """Return the size in bytes of an array of a safetensors type. Raise KeyError for other types."""
    return prod(shape) * (PACKED.get(name) or TYPES[name][2][1]) // 8
