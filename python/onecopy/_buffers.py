"""What people hand to `save`, as contiguous little-endian bytes: numpy arrays, DLPack tensors, buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onecopy import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

CHUNK = 16 << 20  # bytes; what is not contiguous is copied this much at a time

_BY_KIND = {
    ("b", 1): "BOOL",
    ("u", 1): "U8",
    ("i", 1): "I8",
    ("i", 2): "I16",
    ("u", 2): "U16",
    ("f", 2): "F16",
    ("i", 4): "I32",
    ("u", 4): "U32",
    ("f", 4): "F32",
    ("c", 8): "C64",
    ("f", 8): "F64",
    ("i", 8): "I64",
    ("u", 8): "U64",
}
_BY_ML_DTYPE = {
    "bfloat16": "BF16",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
# DLPack's DLDataTypeCode, for the types that numpy cannot import: (code, bits).
_BY_DLPACK = {
    (4, 16): "BF16",
    (10, 8): "F8_E4M3",
    (11, 8): "F8_E4M3FNUZ",
    (12, 8): "F8_E5M2",
    (13, 8): "F8_E5M2FNUZ",
    (14, 8): "F8_E8M0",
}

Spec = tuple[str, str, tuple[int, ...]]
"""(name, dtype as in the file, shape)"""


def describe(name: str, value: Any) -> Spec:
    """Return name, element type and shape; TypeError for what safetensors does not have."""
    dtype, array = _as_array(name, value)
    if dtype in ("F4", "F6_E2M3", "F6_E3M2"):
        raise TypeError(f"{name!r}: packed {dtype} arrays have lost their shape and cannot be saved again")
    return name, dtype, array.shape


def chunks(name: str, value: Any) -> Iterator[NDArray[np.uint8]]:
    """Yield the value's bytes in C order, little-endian; what is contiguous already is not copied."""
    _, array = _as_array(name, value)
    yield from _chunks(array)


def _chunks(array: NDArray[Any]) -> Iterator[NDArray[np.uint8]]:
    little = array.dtype.newbyteorder("<")
    if array.size == 0:
        return
    if array.flags.c_contiguous and array.dtype == little:
        yield array.reshape(-1).view(np.uint8)
    elif array.nbytes <= CHUNK:
        yield np.ascontiguousarray(array, little).reshape(-1).view(np.uint8)
    else:
        rows = max(1, CHUNK * len(array) // array.nbytes)
        for start in range(0, len(array), rows):
            # One row that is still too large is cut along its own first axis.
            yield from _chunks(array[start] if rows == 1 else array[start : start + rows])


def _as_array(name: str, value: Any) -> tuple[str, NDArray[Any]]:
    if isinstance(value, np.ndarray | np.generic):
        return _of_numpy(name, np.asarray(value))
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(name, value)
    try:
        return _of_numpy(name, np.asarray(memoryview(value)))
    except TypeError:
        raise TypeError(
            f"{name!r} is a {type(value).__name__}: neither a numpy array, nor a DLPack tensor, nor a buffer"
        ) from None


def _of_numpy(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    marked: Any = array.dtype.metadata  # of raw items, from a file that was opened without ml_dtypes
    dtype = (marked or {}).get("onecopy") or _BY_ML_DTYPE.get(array.dtype.name) or _BY_KIND.get((array.dtype.kind, array.dtype.itemsize))
    if dtype is None:
        raise TypeError(f"{name!r}: safetensors has no element type for numpy's {array.dtype}")
    return dtype, array


def _of_dlpack(name: str, value: Any) -> tuple[str, NDArray[Any]]:
    try:
        memory, code, bits, shape, strides = _core.import_dlpack(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, RuntimeError, BufferError, ValueError) as error:
        raise TypeError(f"{name!r}: {type(value).__name__} cannot be read in place ({error}); is it on a GPU?") from error
    kind = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}.get(code, "")
    dtype = _BY_DLPACK.get((code, bits)) or _BY_KIND.get((kind, bits // 8))
    if dtype is None or bits % 8:
        raise TypeError(f"{name!r}: safetensors has no element type for DLPack's type code {code} of {bits} bits")
    item = bits // 8
    # Bytes are all that is needed: an unsigned type of the same size says where they lie.
    array = np.ndarray(shape, f"<V{item}" if item > 8 else f"<u{item}", memory, strides=[item * s for s in strides])
    return dtype, array
