"""What every array of this room shows: shape and type, and itself to numpy, DLPack and the buffer protocol."""

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
    """Shape and element type of an array, as numpy and as the file have them."""

    def __init__(self, shape: tuple[int, ...], name: str) -> None:
        self.shape = shape
        self.name = name
        self.dtype = dtypes.to_numpy(name)
        self.nbytes = self.dtype.itemsize
        for extent in shape:
            self.nbytes *= extent

    def over(self, memory: memoryview) -> NDArray[Any]:
        """Return the array that lies in this memory."""
        import numpy as np

        return np.ndarray(self.shape, self.dtype, memory[: self.nbytes])


def kind_of(shape: int | Iterable[int], dtype: DTypeLike) -> Kind:
    """Return shape and type as the file has them.

    Raises
    ------
    ValueError
        A negative extent, or a type that is not little-endian.
    TypeError
        A type that safetensors does not have.
    """
    import numpy as np

    extents = tuple(map(operator.index, shape)) if hasattr(shape, "__iter__") else (operator.index(shape),)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"the shape must not be negative, but is {extents}")
    wanted = np.dtype(dtype)
    name = dtypes.of_numpy(wanted)
    if name is None or dtypes.is_raw(name):
        raise TypeError(f"safetensors has no element type for numpy's {wanted}, so a scratch array cannot have it")
    if wanted != wanted.newbyteorder("<"):
        raise ValueError(f"a scratch array is little-endian, and {wanted} is not")
    return Kind(extents, name)


class ArrayProtocol(Closeable, abc.ABC):
    """An array that is not an `ndarray` itself, and gives one."""

    _kind: Kind

    @property
    @abc.abstractmethod
    def array(self) -> NDArray[Any]:
        """The array: a view, in C order. It keeps the memory, also after `close`. ValueError when closed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the memory; it goes with the last array. Closing twice is fine."""

    @property
    @abc.abstractmethod
    def closed(self) -> bool:
        """True after `close`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._kind.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self._kind.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self._kind.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        array = self.array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"{array.dtype} becomes {np.dtype(dtype)} only by a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __buffer__(self, flags: int) -> memoryview:  # Python 3.12; before it, memoryview(x.array)
        return self.array.data

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # memory of the processor
