"""`ArrayProtocol`: shape, dtype, and the protocols of numpy, DLPack and buffers for all arrays of this package."""

from __future__ import annotations

import abc
import operator
from typing import TYPE_CHECKING, Any

from onecopy.arrays import dtypes
from onecopy.files import Closeable

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import DTypeLike, NDArray

__all__ = ["ArrayProtocol", "Kind", "kind_of"]


class Kind:
    """Shape and element type of an array, for numpy and for the file."""

    def __init__(self, shape: tuple[int, ...], name: str) -> None:
        self.shape = shape
        self.name = name
        self.dtype = dtypes.to_numpy(name)
        self.nbytes = self.dtype.itemsize
        for extent in shape:
            self.nbytes *= extent

    def over(self, memory: memoryview) -> NDArray[Any]:
        """Return an array on this memory."""
        import numpy as np

        return np.ndarray(self.shape, self.dtype, memory[: self.nbytes])


def kind_of(shape: int | Iterable[int], dtype: DTypeLike) -> Kind:
    """Return shape and element type, validated for array files.

    Raises
    ------
    ValueError
        An extent is negative, or the dtype is not little-endian.
    TypeError
        safetensors has no such element type.
    """
    import numpy as np

    extents = tuple(map(operator.index, shape)) if hasattr(shape, "__iter__") else (operator.index(shape),)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"extents must not be negative: shape {extents}")
    wanted = np.dtype(dtype)
    name = dtypes.of_numpy(wanted)
    if name is None or dtypes.is_raw(name):
        raise TypeError(f"dtype {wanted} is not supported: safetensors has no such element type")
    if wanted != wanted.newbyteorder("<"):
        raise ValueError(f"dtype {wanted} is not supported: scratch arrays are little-endian")
    return Kind(extents, name)


class ArrayProtocol(Closeable, abc.ABC):
    """Base class of arrays whose `array` is a numpy array on their memory."""

    _kind: Kind

    @property
    @abc.abstractmethod
    def array(self) -> NDArray[Any]:
        """The array as a C-order view, which keeps the memory alive after `close`. ValueError if closed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release the memory; it is freed with the last view. Closing twice has no effect."""

    @property
    @abc.abstractmethod
    def closed(self) -> bool:
        """Whether `close` was called."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the axes."""
        return self._kind.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._kind.dtype

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return self._kind.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-dimensional array has no length")
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        array = self.array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"converting {array.dtype} to {np.dtype(dtype)} needs a copy, but copy is False")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __buffer__(self, flags: int) -> memoryview:  # Python 3.12; before it, memoryview(x.array)
        return self.array.data

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU
