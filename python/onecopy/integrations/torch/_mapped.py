"""Arrays and tensors on the bytes of a shared `List` of one row.

Their pages are copy-on-write, so that code may write to an item in place: torch has no read-only tensors, and warns
about tensors of read-only arrays. Written pages are private to the process. multiprocessing sends them to processes as
the handle of the list while they are as they were shared; all else that pickles them pickles their data.
"""

from __future__ import annotations

import functools
import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np

from onecopy.errors import NotShareable
from onecopy.files import Mapping
from onecopy.memory.addresses import Pages
from onecopy.records.backing import Backed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onecopy.records import List


class MappedArray(np.ndarray[Any, np.dtype[Any]]):
    """An array on mapped memory. Views and results are plain arrays."""

    _rows: List[Any] | None = None  # None for views

    def __getitem__(self, key: Any) -> Any:
        return self.view(np.ndarray)[key]

    def __iter__(self) -> Any:
        return iter(self.view(np.ndarray))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array.view(np.ndarray)

    def copy(self, order: Any = "C") -> NDArray[Any]:  # type: ignore[override]
        """Return a copy as a plain array in private memory."""
        return self.view(np.ndarray).copy(order)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)


def _sent_array(array: MappedArray) -> Any:
    if array._rows is None or _is_written(array.ctypes.data, array.nbytes):
        return array.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
    return array_in, (array._rows, array.dtype, array.shape)


def _sent_tensor(tensor: Any) -> Any:
    if _is_written(tensor.data_ptr(), tensor.nbytes):
        return tensor.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
    return tensor_in, (tensor._rows, tensor.dtype, tuple(tensor.shape))


def _is_written(address: int, nbytes: int) -> bool:
    """Return whether copy-on-write memory was written to; True if that is not known."""
    try:
        with Pages() as pages:
            return pages.private_bytes(address, nbytes) > 0
    except OSError:  # without /proc
        return True


ForkingPickler.register(MappedArray, _sent_array)


def is_mapped(value: Any) -> bool:
    """Return whether an object is already on a mapped file of onecopy."""
    return isinstance(value, Backed | MappedArray) or hasattr(type(value), "mapped_by_onecopy")


def bytes_of(value: Any) -> NDArray[np.uint8]:
    """Return the bytes of an array or tensor in C order; NotShareable with the reason for other objects."""
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
        raise NotShareable(f"a {type(value).__name__} has more than data: share tensor.detach()")
    if value.device.type != "cpu" or value.layout != torch.strided or value.is_quantized:
        raise NotShareable(
            f"a tensor on {value.device} with layout {value.layout}: only dense CPU tensors can be shared"
        )
    contiguous = value.resolve_conj().resolve_neg().contiguous()
    raw: NDArray[np.uint8] = contiguous.flatten().view(torch.uint8).numpy()
    return raw


def _why_not(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, np.memmap):
        return "already mapped, but it pickles as a copy of its data: open it in each worker, or use oc.Mapping"
    if isinstance(value, list | tuple | dict | np.ndarray):
        return f"a {kind} may differ from its base class: convert it to the base class"
    if isinstance(value, set | frozenset):
        return f"a {kind} cannot be shared: convert it to a sorted list or a dict"
    if hasattr(value, "__dict__"):
        return f"a {kind} is an object: call oc.torch.share_dataset on it to share its attributes"
    return f"a {kind} cannot be shared"


def array_in(rows: List[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> MappedArray:
    """Return an array on the bytes of the row, without reading them."""
    array = np.ndarray(shape, dtype, _memory_of(rows)).view(MappedArray)
    array._rows = rows
    return array


def tensor_in(rows: List[Any], dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return a tensor on the bytes of the row, without reading them."""
    import torch

    flat = torch.frombuffer(_memory_of(rows), dtype=torch.uint8)
    tensor = flat.view(dtype).reshape(shape).as_subclass(_tensor_class())
    tensor._rows = rows  # keeps the file open, and with it the handle valid
    return tensor


def _memory_of(rows: List[Any]) -> memoryview:
    """Map the bytes of the row again with copy-on-write pages."""
    raw = np.asarray(rows.lazy[0])
    offset = raw.__array_interface__["data"][0] - rows.file.core.address
    return Mapping(rows.path, offset, raw.nbytes, private=True).view()


@functools.cache
def _tensor_class() -> Any:
    """Return the class of mapped tensors, made when it is first needed, because torch is optional."""
    import torch

    class MappedTensor(torch.Tensor):  # type: ignore[misc]
        """A tensor on mapped memory. Views and results are plain tensors."""

        mapped_by_onecopy = True
        __torch_function__ = torch._C._disabled_torch_function_impl

        def __reduce_ex__(self, protocol: Any) -> Any:
            return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)

        def __deepcopy__(self, memo: Any) -> Any:
            return self.clone()

    ForkingPickler.register(MappedTensor, _sent_tensor)
    return MappedTensor
