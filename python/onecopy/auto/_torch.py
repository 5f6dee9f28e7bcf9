"""`torch.load` reads into snapshots; `Module.load_state_dict` moves weights to snapshots instead of copying them.

**How `load_state_dict` shares.** It calls ``parameter.copy_(tensor)`` for each weight. Where the tensor lies on a
mapped file, the parameter gets memory of a snapshot, copy-on-write, with the values of the tensor, and neither sees
what is written to the other. The parameter stays the same object, with its gradient and hooks.

**Resizing.** Torch resizes the storages of weights, but not of what `torch.load` returned, and none on a snapshot. So
the functions that resize move a weight to memory of torch first, as a copy.

**Not shared:** files of torch before 1.6, in `_note_old_format`; weights for the reasons in `_why_copied`; tensors that
are not on a file which still has their values, in `_Sharing` and `_source_of_region`.
"""

from __future__ import annotations

import gc
import os
import weakref
from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch  # it is imported already: `hooks` loads this module then
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from onecopy.auto import turns
from onecopy.auto.hooks import call_before, descriptor_of, replace
from onecopy.auto.mapped import MIN_ARRAY, Source, source_of
from onecopy.files import Mapping as FileMapping
from onecopy.runs import MIN_BYTES
from onecopy.runs.call_log import LOAD_STATE_DICT, note
from onecopy.store.fork import trim_heap
from onecopy.variables import RUN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from onecopy.memory.proc import Pages, Regions

LOAD = "torch.load"
_SMALL = 4096
"""Bytes; smaller weights are copied: a page of a file would take as much."""

_loaded: dict[int, _Second] = {}
"""By address: the storages on snapshots that `torch.load` returned, with a second mapping of the same bytes."""
_moved: dict[int, None] = {}
"""Addresses of the storages on snapshots and casts that weights got instead of memory of torch."""


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
    if RUN in os.environ:
        call_before(torch.nn.Module, "register_parameter", _await_turn)


def _tensor_on(array: Any, known: dict[int, Any], value: Any) -> Any:
    """Return a tensor of bytes on an array of bytes; `known` has the address of its storage while it lives."""
    tensor = torch.from_numpy(array)
    known[tensor.data_ptr()] = value
    weakref.finalize(array, known.pop, tensor.data_ptr(), None).atexit = False
    return tensor


def _is_observed() -> bool:
    """Return whether a mode of torch sees the functions that are called: it must see those of torch alone."""
    modes = _get_current_function_mode_stack()
    return torch._C._len_torch_dispatch_stack() > 0 or any(type(mode) is not DeviceContext for mode in modes)


# --- files of torch.save ----------------------------------------------------------------------------------------------


def _open_reader(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, name_or_buffer: Any) -> None:  # noqa: N807
        descriptor = descriptor_of(name_or_buffer)
        begin = 0 if descriptor is None else name_or_buffer.tell()
        original(self, name_or_buffer)
        if descriptor is not None:
            self.file_like = _Reader(self.file_like, name_or_buffer, begin)

    return __init__


def _close_reader(reader: Any, *_: Any) -> None:
    if isinstance(reader.file_like, _Reader):
        reader.file_like.close()


def _note_old_format(file: Any, *_: Any, **__: Any) -> None:
    if (descriptor := descriptor_of(file)) is not None:
        reason = "in the format of torch before 1.6, which cannot be mapped"
        note(LOAD, os.path.abspath(file.name), copied=os.fstat(descriptor).st_size, reason=reason)  # noqa: PTH100


class _Reader:
    """The reader of torch for an archive in a file, of which large storages are on a snapshot."""

    def __init__(self, reader: Any, file: Any, begin: int) -> None:
        self._reader, self._file, self._begin = reader, file, begin
        self._source: Source | None = None
        self._is_refused = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """Return an empty tensor whose storage has the bytes, on a snapshot if possible."""
        tensor = None
        if numel >= MIN_ARRAY and dtype is torch.UntypedStorage and not _is_observed():
            try:
                tensor = self._mapped(name, numel)
            except Exception:  # any: torch reads it, or raises its own error
                tensor = None
        return self._reader.get_storage_from_record(name, numel, dtype) if tensor is None else tensor

    def _mapped(self, name: str, nbytes: int) -> Any:
        import numpy as np

        if self._source is None and not self._is_refused:
            self._source = source_of(LOAD, self._file.fileno())
            self._is_refused = self._source is None
        begin = self._begin + self._reader.get_record_offset(name)
        source = self._source
        if source is None or not source.is_of(self._file.fileno()) or begin % 64 or begin + nbytes > source.nbytes:
            return None
        if self._reader.get_record_size(name) != nbytes:
            return None
        array = source.array(begin, (nbytes,), np.dtype(np.uint8))
        self._file.seek(begin + nbytes)  # where torch stops reading
        return _tensor_on(array, _loaded, _Second(source.memory(begin, nbytes), source.path))[:0]

    def close(self) -> None:
        """Release the snapshot."""
        if self._source is not None:
            self._source.close()


# --- weights that are resized -----------------------------------------------------------------------------------------


def _is_moved(storage: Any) -> bool:
    return bool(_moved) and storage.device.type == "cpu" and storage.data_ptr() in _moved


def _resizable(original: Callable[..., bool]) -> Callable[..., bool]:
    def resizable(self: Any) -> bool:
        return original(self) or _is_moved(self)

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
        if _moved and _is_dense(self):
            _moved.pop(self.untyped_storage().data_ptr(), None)  # torch resizes no storage that numpy has seen
        return array

    return numpy


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
    from onecopy.integrations.torch import load

    def resizable(weight: Any) -> Any:
        raw = weight.reshape(-1).view(torch.uint8).numpy()
        return _tensor_on(raw, _moved, None).view(weight.dtype).view(weight.shape)

    return {name: resizable(weight) if weight.is_floating_point() else weight for name, weight in load(path).items()}


# --- modules ----------------------------------------------------------------------------------------------------------


def _load_state_dict(original: Callable[..., Any]) -> Callable[..., Any]:
    def load_state_dict(*args: Any, **kwargs: Any) -> Any:
        if _is_observed() or _bytes_of(args[1] if len(args) > 1 else kwargs.get("state_dict")) < MIN_BYTES:
            return original(*args, **kwargs)
        sharing = _Sharing()
        try:
            with sharing:
                return original(*args, **kwargs)
        finally:
            sharing.close()
            turns.finished()

    return load_state_dict


def _await_turn(_: Any, name: Any, param: Any) -> None:  # noqa: ARG001
    if param is not None and param.device.type == "cpu":
        turns.registered(param.nbytes)


def _bytes_of(state: Any) -> int:
    values = state.values() if isinstance(state, Mapping) else ()
    return sum(one.numel() * one.element_size() for one in values if isinstance(one, torch.Tensor))


class _Sharing(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # the type checker may run without torch
    """What one call of `load_state_dict` shares: a mode of torch in which each ``copy_`` is replaced where possible."""

    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[tuple[int, int, str], Source | str] = {}
        """By the file of a region: a snapshot of the file, or why there is none."""
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
        nbytes = source.numel() * source.element_size()
        if nbytes < _SMALL or source.device.type != "cpu":
            return False
        second = _loaded.get(source.untyped_storage().data_ptr())
        region = None if second is not None else self._region(source)
        path = region.path if region is not None else "" if second is None else second.path
        try:
            if second is None and region is None:
                raise _Unfit("the given tensors are not on a mapped file")
            if reason := _why_copied(target, source) or self._why_private(source.data_ptr(), nbytes):
                raise _Unfit(reason)
            if second is None:
                _move(target, source, self._part_of_region(region, source, nbytes))
            elif not self._has(target, source, second, nbytes):
                _move(target, source, second.part(source, nbytes))
            torch.autograd.graph.increment_version(target)  # as `copy_` does
        except (_Unfit, OSError, RuntimeError) as error:  # without /proc; another version of torch
            self._copied[path, str(error)] = self._copied.get((path, str(error)), 0) + nbytes
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
        same = bool(target.data_ptr() == second.address_for(source))
        return same and not self._why_private(target.data_ptr(), nbytes)

    def _part_of_region(self, region: Any, source: Any, nbytes: int) -> Any:
        """Return bytes of a snapshot of the file that a tensor lies on, which have its values."""
        if region.perms[3] != "p":
            raise _Unfit("the given tensors are on a mapping that other processes may write to")
        file, offset = self._source(region), region.offset + source.data_ptr() - region.start
        if isinstance(file, str):
            raise _Unfit(file)
        if offset % source.element_size() or offset + nbytes > file.nbytes:
            raise _Unfit("not aligned in the file" if offset % source.element_size() else "the file was truncated")
        return file.memory(offset, nbytes)

    def _why_private(self, address: int, nbytes: int) -> str:
        from onecopy.memory.proc import Pages

        if self._pages is None:
            self._pages = Pages().__enter__()
        return "changed after it was loaded" if self._pages.private_bytes(address, nbytes) else ""

    def _region(self, source: Any) -> Any:
        from onecopy.memory.proc import Regions

        if self._regions is None:
            self._regions = Regions()
        region = self._regions.at(source.data_ptr())
        return region if region is not None and region.inode and region.path.startswith("/") else None

    def _source(self, region: Any) -> Source | str:
        """Return a snapshot of the file of a region, or why there is none: its path must still lead to this file."""
        key = region.dev, region.inode, region.path
        if key not in self._sources:
            self._sources[key] = _source_of_region(region)
        return self._sources[key]


def _move(target: Any, source: Any, array: Any) -> None:
    """Give `target` the memory of an array of bytes, which has the values of `source`."""
    target.data = _tensor_on(array, _moved, None).view(source.dtype).view(source.shape)


def _source_of_region(region: Any) -> Source | str:
    from onecopy.memory.proc import Regions

    if region.deleted:
        return "the file was removed after it was mapped"
    try:
        with FileMapping(region.path) as mapping:
            again = Regions().at(mapping.address)  # not `os.stat`, which reports another device on btrfs and overlayfs
            if again is None or (again.dev, again.inode) != (region.dev, region.inode):
                return "the file was replaced after it was mapped"
            return source_of(LOAD_STATE_DICT, mapping.fileno()) or "it has no snapshot"
    except OSError as error:
        return f"the file cannot be mapped again: {error.strerror}"


class _Unfit(Exception):
    """A weight must be copied; the message is the reason."""


class _Second:
    """A second mapping of bytes that `torch.load` returned, for weights that get their values."""

    def __init__(self, array: Any, path: str) -> None:
        self.path = path
        """Path of the file."""
        self._array = array
        self._taken: list[tuple[int, int]] = []
        """Begin and end of the bytes that weights have, sorted: a second weight with the same bytes gets a copy."""

    def address_for(self, source: Any) -> int:
        """Return where the values of a tensor of the first mapping are."""
        return int(self._array.ctypes.data + source.data_ptr() - source.untyped_storage().data_ptr())

    def part(self, source: Any, nbytes: int) -> Any:
        """Return the values of a tensor of the first mapping, as bytes, once."""
        begin = source.data_ptr() - source.untyped_storage().data_ptr()
        place = bisect_left(self._taken, (begin + nbytes, 0))
        if place and self._taken[place - 1][1] > begin:
            raise _Unfit("another weight has the same bytes of the file")
        self._taken.insert(place, (begin, begin + nbytes))
        return self._array[begin : begin + nbytes]


def _why_copied(target: Any, source: Any) -> str:
    """Return why `copy_` cannot be replaced by other memory of `target`; empty if no code can see the difference."""
    for one in (target, source):
        if type(one) not in (torch.Tensor, torch.nn.Parameter):
            return f"of the class {type(one).__name__}"
    storage = target.untyped_storage()
    reasons = (
        (target.device.type != "cpu", f"copied to {target.device}"),
        (target.dtype != source.dtype, f"cast from {str(source.dtype)[6:]} to {str(target.dtype)[6:]}"),
        (torch.strided != target.layout or torch.strided != source.layout, "not a dense tensor"),
        (target.shape != source.shape, "of another shape"),
        (not target.is_contiguous() or not source.is_contiguous(), "not contiguous"),
        (source.is_conj() or source.is_neg() or target.is_inference(), "not a plain weight"),
        (target.grad_fn is not None, "computed from other tensors"),
        (target.is_shared(), "in memory that is shared with other processes"),
        (not storage.resizable(), "in memory of another library"),
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
