"""What people hand to `save`, as contiguous little-endian bytes: numpy arrays, DLPack tensors, buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onecopy import _core, _dtypes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

CHUNK = 16 << 20  # bytes; what is not contiguous is copied this much at a time

Spec = tuple[str, str, tuple[int, ...]]
"""(name, dtype as in the file, shape)"""


def describe(name: str, value: Any) -> Spec:
    """Return name, element type and shape; TypeError for what safetensors does not have."""
    dtype, array = _as_array(name, value)
    if dtype in _dtypes.PACKED:
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
    except (TypeError, ValueError):
        raise TypeError(
            f"{name!r} is a {type(value).__name__}: neither a numpy array, nor a DLPack tensor, nor a buffer"
        ) from None


def _of_numpy(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    dtype = _dtypes.of_numpy(array.dtype)
    if dtype is None:
        raise TypeError(f"{name!r}: safetensors has no element type for numpy's {array.dtype}")
    return dtype, array


def _of_dlpack(name: str, value: Any) -> tuple[str, NDArray[Any]]:
    try:
        memory, first, code, bits, shape, strides = _core.import_dlpack(
            value.detach() if hasattr(value, "detach") else value
        )
    except (TypeError, RuntimeError, BufferError, ValueError) as error:
        raise TypeError(
            f"{name!r}: {type(value).__name__} cannot be read in place ({error}); is it on a GPU?"
        ) from error
    dtype = _dtypes.of_dlpack(code, bits)
    if dtype is None:
        raise TypeError(f"{name!r}: safetensors has no element type for DLPack's type code {code} of {bits} bits")
    item = bits // 8
    # Bytes are all that is needed: an unsigned type of the same size says where they lie.
    array = np.ndarray(shape, f"<V{item}" if item > 8 else f"<u{item}", memory, first, [item * s for s in strides])
    return dtype, array
