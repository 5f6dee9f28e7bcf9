"""`torch.load` reads into snapshots; `Module.load_state_dict` moves weights to snapshots instead of copying them.

**How `load_state_dict` shares.** It calls ``parameter.copy_(tensor)`` for each weight. Where the tensor lies on a
mapped file, the parameter gets memory of a snapshot, copy-on-write, with the values of the tensor, and neither sees
what is written to the other. The parameter stays the same object, with its gradient and hooks.

**Resizing.** Torch resizes the storages of weights, but not of what `torch.load` returned, and none on a snapshot. So
the functions that resize move a weight to memory of torch first, as a copy.

**Addresses.** A weight that moves has another address. Where the program has called `data_ptr`, the weight stays, and
the values are copied: the program may have kept the address for ctypes, numba or an extension.

**Not shared:** files of torch before 1.6, in `_note_old_format`; weights for the reasons in `_why_copied`; tensors that
are not on a file which still has their values, in `_Sharing` and `_source_of_region`.
"""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch  # it is imported already: `hooks` loads this module then
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from onecopy.base.run_constants import MIN_BYTES, RUN
from onecopy.files.mapping import Mapping as FileMapping
from onecopy.frameworks.torch import load
from onecopy.memory.proc import Pages, Regions
from onecopy.run import load_gate
from onecopy.run.call_log import LOAD_STATE_DICT, note, note_read
from onecopy.run.hooks import call_before, descriptor_of, guarded, replace
from onecopy.run.mapped import MIN_ARRAY, Parts, Source, source_of
from onecopy.store.fork import trim_heap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

LOAD = "torch.load"
_KEPT = "_onecopy_address_is_kept"
"""Attribute of a storage whose address the program has."""
_SMALL = 4096
"""Bytes; smaller weights are copied: a page of a file would take as much."""
_ALIGNMENT = 64
"""Bytes; torch aligns the memory of its weights to them."""

_loaded: dict[int, _Second] = {}
"""By address: the storages on snapshots that `torch.load` returned, with a second mapping of the file."""
_moved: dict[int, None] = {}
"""Addresses of the storages on snapshots and casts that weights got instead of memory of torch."""
address_of = torch.Tensor.data_ptr
"""What `apply` replaces: the function of torch, for steps of onecopy, which keep no address."""


def apply(_: ModuleType) -> None:
    """Replace the functions of torch."""
    reader = torch.serialization._open_zipfile_reader
    replace(reader, "__init__", _open_reader)
    call_before(reader, "__exit__", _close_reader)
    call_before(torch.serialization, "_legacy_load", _note_old_format)
    replace(torch.nn.Module, "load_state_dict", _load_state_dict)
    replace(torch.UntypedStorage, "resizable", _resizable)
    call_before(torch.UntypedStorage, "resize_", _before_resize_of_storage)
    for name in ("resize_", "resize_as_"):
        call_before(torch.Tensor, name, _before_resize)
    replace(torch.Tensor, "numpy", _numpy)
    replace(torch.Tensor, "data_ptr", _data_ptr)
    if RUN in os.environ:
        call_before(torch.nn.Module, "register_parameter", _await_turn)


def _tensor_on(array: Any, known: dict[int, Any], value: Any) -> Any:
    """Return a tensor of bytes on an array of bytes; `known` has the address of its storage while it lives."""
    tensor = torch.from_numpy(array)
    known[address_of(tensor)] = value
    weakref.finalize(array, known.pop, address_of(tensor), None).atexit = False
    return tensor


def _is_observed() -> bool:
    """Return whether a mode of torch sees the functions that are called: it must see those of torch alone."""
    modes = _get_current_function_mode_stack()
    return torch._C._len_torch_dispatch_stack() > 0 or any(type(mode) is not DeviceContext for mode in modes)


# --- files of torch.save ----------------------------------------------------------------------------------------------


def _open_reader(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, name_or_buffer: Any) -> None:  # noqa: N807
        begin = guarded(LOAD, _begin_in_file, name_or_buffer)
        original(self, name_or_buffer)
        if begin is not None:
            self.file_like = _Reader(self.file_like, name_or_buffer, begin)

    return __init__


def _begin_in_file(file: Any) -> int | None:
    """Return the position in a file of Python's own; None for any other object."""
    return None if descriptor_of(file) is None else file.tell()


def _close_reader(reader: Any, *_: Any) -> None:
    if isinstance(reader.file_like, _Reader):
        reader.file_like.close()


def _note_old_format(file: Any, *_: Any, **__: Any) -> None:
    if (descriptor := descriptor_of(file)) is not None:
        note_read(LOAD, descriptor, "in the format of torch before 1.6, which cannot be mapped")


class _Reader:
    """The reader of torch for an archive in a file, of which large storages are on a snapshot."""

    def __init__(self, reader: Any, file: Any, begin: int) -> None:
        self._reader, self._file, self._begin = reader, file, begin
        self._source: Source | None = None
        self._is_refused = False
        self._parts: Parts | None = None
        self._second: _Second | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """Return an empty tensor whose storage has the bytes, on a snapshot if possible."""
        tensor = None
        if numel >= MIN_ARRAY and dtype is torch.UntypedStorage and not _is_observed():
            tensor = guarded(LOAD, self._mapped, name, numel)
        return self._reader.get_storage_from_record(name, numel, dtype) if tensor is None else tensor

    def _mapped(self, name: str, nbytes: int) -> Any:
        if self._source is None and not self._is_refused:
            self._is_refused = True  # also by an error
            self._source = source_of(LOAD, self._file.fileno())
        begin = self._begin + self._reader.get_record_offset(name)
        source = self._source
        if source is None or not source.is_of(self._file.fileno()) or begin % 64 or begin + nbytes > source.nbytes:
            return None
        if self._reader.get_record_size(name) != nbytes:
            return None
        if self._parts is None or self._second is None:
            self._parts = Parts(source)
            self._second = _Second(Parts(source), self._parts.address)
        array = source.counted(self._parts.part(begin, nbytes))
        tensor = _tensor_on(array, _loaded, self._second)
        self._file.seek(begin + nbytes)  # where torch stops reading
        return tensor[:0]

    def close(self) -> None:
        """Release the snapshot."""
        if self._source is not None:
            self._source.close()


# --- weights that are resized -----------------------------------------------------------------------------------------


def _is_moved(storage: Any) -> bool:
    return bool(_moved) and storage.device.type == "cpu" and storage.data_ptr() in _moved


def _resizable(original: Callable[..., bool]) -> Callable[..., bool]:
    def resizable(self: Any) -> bool:
        return original(self) or bool(guarded("torch.UntypedStorage.resizable", _is_moved, self))

    return resizable


def _before_resize_of_storage(storage: Any, *_: Any, **__: Any) -> None:
    if _is_moved(storage):
        _move_to_heap(storage)


def _before_resize(tensor: Any, *_: Any, **__: Any) -> None:
    if _moved and _is_dense(tensor):
        _before_resize_of_storage(tensor.untyped_storage())


def _numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    def numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
        array = original(self, *args, **kwargs)
        if _moved:
            guarded("torch.Tensor.numpy", _keep_storage, self)
        return array

    return numpy


def _keep_storage(tensor: Any) -> None:
    if _is_dense(tensor):
        _moved.pop(tensor.untyped_storage().data_ptr(), None)  # torch resizes no storage that numpy has seen


def _data_ptr(original: Callable[..., int]) -> Callable[..., int]:
    def data_ptr(self: Any) -> int:
        address = original(self)
        if address and type(self) in (torch.Tensor, torch.nn.Parameter):
            guarded("torch.Tensor.data_ptr", _keep_address, self)
        return address

    return data_ptr


def _keep_address(tensor: Any) -> None:
    with torch._C.DisableTorchFunction():
        if tensor.device.type == "cpu":
            setattr(tensor.untyped_storage(), _KEPT, True)


def _is_dense(tensor: Any) -> bool:
    return bool(tensor.layout is torch.strided and tensor.device.type == "cpu")


def _move_to_heap(storage: Any) -> None:
    """Give all tensors of a storage on a snapshot another one, in memory of torch, with the same bytes."""
    fresh = torch.UntypedStorage(storage.nbytes())
    fresh.copy_(storage)
    place = storage._cdata
    for tensor in gc.get_objects():
        is_dense = issubclass(type(tensor), torch.Tensor) and _is_dense(tensor)
        if is_dense and tensor.untyped_storage()._cdata == place:
            shape, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
            tensor.data = torch.empty(0, dtype=tensor.dtype).set_(fresh, offset, shape, stride)
    storage._set_cdata(fresh._cdata)


def load_resizable(path: Path) -> dict[str, Any]:
    """Return the weights of a file of casts, on its copy-on-write pages; torch resizes them like weights of its own."""

    def resizable(weight: Any) -> Any:
        raw = weight.reshape(-1).view(torch.uint8).numpy()
        return _tensor_on(raw, _moved, None).view(weight.dtype).view(weight.shape)

    return {name: resizable(weight) if weight.is_floating_point() else weight for name, weight in load(path).items()}


# --- modules ----------------------------------------------------------------------------------------------------------


def _load_state_dict(original: Callable[..., Any]) -> Callable[..., Any]:
    def load_state_dict(*args: Any, **kwargs: Any) -> Any:
        if not guarded(LOAD_STATE_DICT, _is_large, args[1] if len(args) > 1 else kwargs.get("state_dict")):
            return original(*args, **kwargs)
        sharing = _Sharing()
        try:
            with sharing:
                return original(*args, **kwargs)
        finally:
            guarded(LOAD_STATE_DICT, sharing.close)
            guarded(LOAD_STATE_DICT, load_gate.finished)

    return load_state_dict


def _is_large(state: Any) -> bool:
    """Return whether the values for a module are so large that they are shared, if nothing observes the call."""
    return not _is_observed() and _bytes_of(state) >= MIN_BYTES


def _await_turn(_: Any, name: Any, param: Any) -> None:  # noqa: ARG001
    if param is not None and _is_dense(param):
        load_gate.registered(param.nbytes)


def _bytes_of(state: Any) -> int:
    values = state.values() if isinstance(state, Mapping) else ()
    return sum(one.nbytes for one in values if isinstance(one, torch.Tensor) and one.layout is torch.strided)


class _Sharing(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # the type checker may run without torch
    """What one call of `load_state_dict` shares: a mode of torch in which each ``copy_`` is replaced where possible."""

    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[tuple[int, int, str], Source | str] = {}
        """By the file of a region: a snapshot of the file, or why there is none."""
        self._parts: dict[Source, Parts] = {}
        self._regions: Regions | None = None
        self._pages: Pages | None = None
        self._shared: dict[str, int] = {}
        self._copied: dict[tuple[str, str], int] = {}
        """Bytes by path and reason."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.copy_ and len(args) == 2 and not kwargs and self._share(*args):
            return args[0]
        return function(*args, **(kwargs or {}))

    def _share(self, target: Any, source: Any) -> bool:
        """Point a weight to shared memory that has the values of `source`; False if they must be copied."""
        path, nbytes = "", 0
        try:
            nbytes = source.nbytes if _is_dense(source) else 0
            if nbytes < _SMALL:
                return False
            second = _loaded.get(source.untyped_storage().data_ptr())
            region = None if second is not None else self._region(source)
            path = region.path if region is not None else "" if second is None else second.path
            if second is None and region is None:
                raise _Unfit("the given tensors are not on a mapped file")
            if reason := _why_copied(target, source) or self._why_private(address_of(source), nbytes):
                raise _Unfit(reason)
            if second is None:
                _move(target, source, self._part_of_region(region, source, nbytes))
            elif not self._has(target, source, second, nbytes):
                _move(target, source, second.part(source, nbytes))
            torch.autograd.graph.increment_version(target)  # as `copy_` does
        except Exception as error:  # any: without /proc; another version of torch; torch copies, or raises its own
            reason = str(error) or type(error).__name__
            self._copied[path, reason] = self._copied.get((path, reason), 0) + nbytes
            return False
        self._shared[path] = self._shared.get(path, 0) + nbytes
        return True

    def close(self) -> None:
        """Release what was needed for sharing, and report."""
        for source in self._sources.values():
            if isinstance(source, Source):
                source.close()
        if self._pages is not None:
            self._pages.__exit__()
        for (path, reason), nbytes in self._copied.items():
            note(LOAD_STATE_DICT, path, copied=nbytes, reason=reason)
        for path, nbytes in self._shared.items():
            note(LOAD_STATE_DICT, path, shared=nbytes)
        if self._shared:
            trim_heap()  # of the memory that the weights had before

    def _has(self, target: Any, source: Any, second: _Second, nbytes: int) -> bool:
        """Return whether a weight has the bytes already, under another of its names."""
        same = bool(address_of(target) == second.address_for(source))
        return same and not self._why_private(address_of(target), nbytes)

    def _part_of_region(self, region: Any, source: Any, nbytes: int) -> Any:
        """Return bytes of a snapshot of the file that a tensor lies on, which have its values."""
        if region.perms[3] != "p":
            raise _Unfit("the given tensors are on a mapping that other processes may write to")
        offset = region.offset + address_of(source) - region.start
        file = self._source(region, -offset % _ALIGNMENT)
        if isinstance(file, str):
            raise _Unfit(file)
        if offset + nbytes > file.nbytes:
            raise _Unfit("the file was truncated")
        if file not in self._parts:
            self._parts[file] = Parts(file)
        return self._parts[file].part(offset, nbytes)

    def _why_private(self, address: int, nbytes: int) -> str:
        if self._pages is None:
            self._pages = Pages().__enter__()
        return "changed after it was loaded" if self._pages.private_bytes(address, nbytes) else ""

    def _region(self, source: Any) -> Any:
        if self._regions is None:
            self._regions = Regions()
        region = self._regions.at(address_of(source))
        return region if region is not None and region.inode and region.path.startswith("/") else None

    def _source(self, region: Any, lead: int) -> Source | str:
        """Return a snapshot of the file of a region, or why there is none: its path must still lead to this file.

        `lead` aligns the first of its weights, and with it all others whose distance is a multiple of the alignment.
        """
        key = region.dev, region.inode, region.path
        if key not in self._sources:
            self._sources[key] = _source_of_region(region, lead)
        return self._sources[key]


def _move(target: Any, source: Any, array: Any) -> None:
    """Give `target` the memory of an array of bytes, which has the values of `source`."""
    if array.ctypes.data % _ALIGNMENT:  # some sums of a matrix product depend on it
        raise _Unfit("not aligned in the file")
    target.data = _tensor_on(array, _moved, None).view(source.dtype).view(source.shape)


def _source_of_region(region: Any, lead: int) -> Source | str:
    if region.deleted:
        return "the file was removed after it was mapped"
    try:
        with FileMapping(region.path) as mapping:
            again = Regions().at(mapping.address)  # not `os.stat`, which reports another device on btrfs and overlayfs
            if again is None or (again.dev, again.inode) != (region.dev, region.inode):
                return "the file was replaced after it was mapped"
            return source_of(LOAD_STATE_DICT, mapping.fileno(), lead) or "it has no snapshot"
    except OSError as error:
        return f"the file cannot be mapped again: {error.strerror}"


class _Unfit(Exception):
    """A weight must be copied; the message is the reason."""


class _Second:
    """A second mapping of a file that `torch.load` has mapped, for weights that get the values that it returned."""

    def __init__(self, parts: Parts, first: int) -> None:
        self._parts, self._first = parts, first
        """`first`: where the file begins in the first mapping."""
        self.path = parts.path

    def address_for(self, source: Any) -> int:
        """Return where the values of a tensor of the first mapping are."""
        return self._parts.address + int(address_of(source)) - self._first

    def part(self, source: Any, nbytes: int) -> Any:
        """Return the values of a tensor of the first mapping, as bytes, once."""
        array = self._parts.part(address_of(source) - self._first, nbytes)
        if array is None:
            raise _Unfit("another weight has the same bytes of the file")
        return array


def _why_copied(target: Any, source: Any) -> str:
    """Return why `copy_` cannot be replaced by other memory of `target`; empty if no code can see the difference."""
    for one in (target, source):
        if type(one) not in (torch.Tensor, torch.nn.Parameter):
            return f"of the class {type(one).__name__}"
    storage = target.untyped_storage()
    reasons = (
        (target.device.type != "cpu", f"copied to {target.device}"),
        (target.dtype != source.dtype, f"cast from {str(source.dtype)[6:]} to {str(target.dtype)[6:]}"),
        (target.layout is not torch.strided, "not a dense tensor"),
        (target.shape != source.shape, "of another shape"),
        (not target.is_contiguous() or not source.is_contiguous(), "not contiguous"),
        (source.is_conj() or source.is_neg() or target.is_inference(), "not a plain weight"),
        (target.grad_fn is not None, "computed from other tensors"),
        (target.is_shared(), "in memory that is shared with other processes"),
        (not storage.resizable(), "in memory of another library"),
        (hasattr(storage, _KEPT), "the program has asked for the address of the weight"),
        (
            target._base is not None or storage.nbytes() != target.nbytes or _has_aliases(storage),
            "other tensors share the memory of the weight",
        ),
    )
    return next((reason for differs, reason in reasons if differs), "")


def _has_aliases(storage: Any) -> bool:
    """Return whether other tensors than one have this storage."""
    count = torch._C._storage_Use_Count
    alone = torch.empty(1)
    return bool(count(storage._cdata) > count(alone.untyped_storage()._cdata))
