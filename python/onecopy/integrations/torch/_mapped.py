"""Arrays and tensors on the bytes of a shared List of one row, which travel to other processes as its handle.

Their pages are copy-on-write, so that code which writes to an item in place works as before: torch has no read-only
tensors, and makes tensors of read-only arrays with a warning. What is written is private to its process.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from onecopy.errors import NotShareable
from onecopy.files import Mapping
from onecopy.records.backing import Backed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onecopy.records import List


class MappedArray(np.ndarray[Any, np.dtype[Any]]):
    """An array on mapped memory; pickled, it is a handle. What is made from it are plain arrays, as of numpy.memmap."""

    _rows: List[Any] | None = None  # of views, which are no longer all of it

    def __getitem__(self, key: Any) -> Any:
        return self.view(np.ndarray)[key]

    def __iter__(self) -> Any:
        return iter(self.view(np.ndarray))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array.view(np.ndarray)

    def copy(self, order: Any = "C") -> NDArray[Any]:  # type: ignore[override]
        """Return a plain array of this process."""
        return self.view(np.ndarray).copy(order)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._rows is None:
            return self.view(np.ndarray).__reduce_ex__(protocol)
        return array_in, (self._rows, self.dtype, self.shape)


def is_mapped(value: Any) -> bool:
    """Return whether something lies in a mapped file already, as ours do."""
    return isinstance(value, Backed | MappedArray) or hasattr(type(value), "mapped_by_onecopy")


def bytes_of(value: Any) -> NDArray[np.uint8]:
    """Return the bytes of an array or tensor in C order; NotShareable with the reason for anything else."""
    if type(value) is np.ndarray:
        if value.dtype.hasobject:
            raise NotShareable("an array of Python objects; a list of them can be shared")
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _bytes_of_tensor(torch, value)
    raise NotShareable(_why_not(value))


def _bytes_of_tensor(torch: Any, value: Any) -> NDArray[np.uint8]:
    if type(value) is not torch.Tensor or value.requires_grad:
        raise NotShareable(f"a {type(value).__name__} that is more than data: share tensor.detach()")
    if value.device.type != "cpu" or value.layout != torch.strided or value.is_quantized:
        raise NotShareable(
            f"a tensor on {value.device} with layout {value.layout}: only plain ones of the CPU are shared"
        )
    contiguous = value.resolve_conj().resolve_neg().contiguous()
    raw: NDArray[np.uint8] = contiguous.flatten().view(torch.uint8).numpy()
    return raw


def _why_not(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, np.memmap):
        return "mapped already; to workers that are not forked it travels as its data: open it there, or as oc.Mapping"
    if isinstance(value, list | tuple | dict | np.ndarray):
        return f"a {kind} may do more than its base: make it a plain one"
    if isinstance(value, set | frozenset):
        return f"a {kind} has no shared form: make it a sorted list, or a dict"
    if hasattr(value, "__dict__"):
        return f"an object: oc.torch.share_dataset of it looks at its attributes, where they are its data (a {kind})"
    return f"a {kind} has no shared form"


def array_in(rows: List[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> MappedArray:
    """Return the array whose bytes are the one row; reads nothing."""
    array = np.ndarray(shape, dtype, _memory_of(rows)).view(MappedArray)
    array._rows = rows
    return array


def tensor_in(rows: List[Any], dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return the tensor whose bytes are the one row; reads nothing."""
    import torch

    flat = torch.frombuffer(_memory_of(rows), dtype=torch.uint8)
    tensor = flat.view(dtype).reshape(shape).as_subclass(_tensor_class())
    tensor._rows = rows  # keeps the file open, and so its handle good
    return tensor


def _memory_of(rows: List[Any]) -> memoryview:
    """Map the bytes of the one row again, copy-on-write."""
    raw = np.asarray(rows.lazy[0])
    offset = raw.__array_interface__["data"][0] - rows.file.core.address
    return Mapping(rows.path, offset, raw.nbytes, private=True).view()


@functools.cache
def _tensor_class() -> Any:
    """Return the class of mapped tensors, made when there is torch."""
    import torch

    class MappedTensor(torch.Tensor):  # type: ignore[misc]
        """A tensor on mapped memory; pickled, it is a handle. What is made from it are plain tensors."""

        mapped_by_onecopy = True
        __torch_function__ = torch._C._disabled_torch_function_impl

        def __reduce_ex__(self, protocol: Any) -> Any:
            return tensor_in, (self._rows, self.dtype, tuple(self.shape))

        def __deepcopy__(self, memo: Any) -> Any:
            return self.clone()

    return MappedTensor
