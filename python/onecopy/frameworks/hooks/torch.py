"""Makes `torch.load` return tensors in snapshots, and `Module.load_state_dict` move weights to snapshots.

`load_state_dict` calls ``parameter.copy_(tensor)`` for each weight. If the tensor is in a mapped file, the parameter
instead uses copy-on-write memory of a snapshot with the same values. The parameter stays the same object, with its
gradient and hooks, and writing to one of the two tensors does not change the other.

**Resizing.** torch can resize storages in its own memory, but not another library's storages. Therefore, functions that
resize storages first copy a moved weight to torch's memory.

**Addresses.** Moving a weight changes its address. If the program has called its `data_ptr`, the values are copied
instead, because ctypes, numba or an extension may have kept the address.

**Not shared:** files in the format of torch before 1.6 (see `_note_old_format`); some weights (`_why_copied` returns
the reason); tensors whose values are not, or no longer, in a mapped file (`_Sharing` and `_source_of_region`).
"""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch  # `hooks` loads this module when torch is imported
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from onecopy.base import lazy
from onecopy.base.run_constants import MIN_BYTES, RUN
from onecopy.files.mapping import Mapping as FileMapping
from onecopy.frameworks.torch import load
from onecopy.memory.proc import Pages, Regions
from onecopy.run import load_gate
from onecopy.run.call_log import LOAD_STATE_DICT, note, note_read
from onecopy.run.hooks import call_before, descriptor_of, guarded, replace
from onecopy.run.mapped import MIN_PART, Parts, Source, source_of
from onecopy.store.fork import trim_heap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

LOAD = "torch.load"
_ADDRESS_IS_KEPT = "_onecopy_address_is_kept"
"""Attribute that marks a storage whose address the program may have kept."""
_MIN_WEIGHT = 4096
"""Size in bytes below which weights are copied: the size of a page."""
_ALIGNMENT = 64
"""Alignment in bytes of memory that torch allocates for weights."""
_LOCAL_HEADER, _MOST_HEADER = 30, 1024
"""Bytes of an entry's header in a zip archive, without and with its name and padding."""

_loaded: dict[int, _SecondMapping] = {}
"""Second mappings of files, keyed by the address of the storage in a snapshot that `torch.load` returned."""
_moved: dict[int, None] = {}
"""Addresses of storages in snapshots and cast files that replace memory that torch allocated for weights."""
address_of = torch.Tensor.data_ptr
"""The original torch function, which `apply` replaces. onecopy calls it, because onecopy does not keep the address."""


def apply(module: ModuleType) -> None:
    """Replace functions of torch. For the module `trace_rules`, keep `torch.compile` from tracing onecopy's code."""
    if module.__name__ == "torch._dynamo.trace_rules":
        for package in ("onecopy", *lazy.DISTRIBUTIONS.values()):  # not installed: ignored
            module.add(package)
        return
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
    """Return a tensor that uses an array of bytes. While the array exists, `known` maps its address to `value`."""
    tensor = torch.from_numpy(array)
    known[address_of(tensor)] = value
    weakref.finalize(array, known.pop, address_of(tensor), None).atexit = False
    return tensor


def _is_observed() -> bool:
    """Return whether a torch mode intercepts calls. Modes must not see calls made by onecopy."""
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
    """Return the current position of a file that Python opened, or None for any other object."""
    return None if descriptor_of(file) is None else file.tell()


def _close_reader(reader: Any, *_: Any) -> None:
    if isinstance(reader.file_like, _Reader):
        reader.file_like.close()


def _note_old_format(file: Any, *_: Any, **__: Any) -> None:
    if (descriptor := descriptor_of(file)) is not None:
        note_read(LOAD, descriptor, "the format of torch before 1.6 cannot be mapped")


class _Reader:
    """A replacement for torch's archive reader that returns large storages in a snapshot of the file."""

    def __init__(self, reader: Any, file: Any, begin: int) -> None:
        self._reader, self._file, self._begin = reader, file, begin
        self._source: Source | None = None
        self._is_refused = False
        self._parts: Parts | None = None
        self._second: _SecondMapping | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """Return an empty tensor whose storage contains a record's bytes, in a snapshot if possible."""
        tensor = None
        if numel >= MIN_PART and dtype is torch.UntypedStorage and not _is_observed():
            tensor = guarded(LOAD, self._mapped, name, numel)
        return self._reader.get_storage_from_record(name, numel, dtype) if tensor is None else tensor

    def _mapped(self, name: str, nbytes: int) -> Any:
        if self._source is None and not self._is_refused:
            self._is_refused = True  # also if this raises an error
            self._source = source_of(LOAD, self._file.fileno())
        begin = self._begin + self._reader.get_record_offset(name)
        source = self._source
        if source is None or not source.is_of(self._file.fileno()) or begin % 64 or begin + nbytes > source.nbytes:
            return None
        size = getattr(self._reader, "get_record_size", None)  # not in torch 2.9
        if (size is not None and size(name) != nbytes) or not _is_stored(source.descriptor, begin):
            return None
        if self._parts is None or self._second is None:
            self._parts = Parts(source)
            self._second = _SecondMapping(Parts(source), self._parts.address)
        array = source.counted(self._parts.part(begin, nbytes))
        tensor = _tensor_on(array, _loaded, self._second)
        self._file.seek(begin + nbytes)  # where torch stops reading
        return tensor[:0]

    def close(self) -> None:
        """Release the snapshot."""
        if self._source is not None:
            self._source.close()


def _is_stored(descriptor: int, begin: int) -> bool:
    """Return whether the zip entry whose data begins at `begin` is uncompressed, according to its header."""
    before = os.pread(descriptor, min(begin, _MOST_HEADER), max(begin - _MOST_HEADER, 0))
    header = before[before.rfind(b"PK\3\4") :]
    names_and_extra = sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    return header[8:10] == b"\0\0" and len(header) == _LOCAL_HEADER + names_and_extra


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
        _moved.pop(tensor.untyped_storage().data_ptr(), None)  # torch does not resize a storage that numpy has seen


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
            setattr(tensor.untyped_storage(), _ADDRESS_IS_KEPT, True)


def _is_dense(tensor: Any) -> bool:
    return bool(tensor.layout is torch.strided and tensor.device.type == "cpu")


def _move_to_heap(storage: Any) -> None:
    """Move all tensors of a storage from a snapshot to a copy in torch's memory."""
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
    """Return the weights in a file, in copy-on-write pages. torch can resize them like its own weights."""

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
    """Return whether a state dict is large enough to be shared, and no torch mode intercepts the call."""
    return not _is_observed() and _bytes_of(state) >= MIN_BYTES


def _await_turn(_: Any, name: Any, param: Any) -> None:  # noqa: ARG001
    if param is not None and _is_dense(param):
        load_gate.registered(param.nbytes)


def _bytes_of(state: Any) -> int:
    values = state.values() if isinstance(state, Mapping) else ()
    return sum(one.nbytes for one in values if isinstance(one, torch.Tensor) and one.layout is torch.strided)


class _Sharing(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # the type checker may run without torch
    """A torch mode for one call to `load_state_dict`. If possible, it replaces each ``copy_`` with sharing."""

    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[tuple[int, int, str], Source | str] = {}
        """Snapshots of mapped files, or the reasons why there are none, by device, inode and path."""
        self._parts: dict[Source, Parts] = {}
        self._regions: Regions | None = None
        self._pages: Pages | None = None
        self._shared: dict[str, int] = {}
        self._copied: dict[tuple[str, str], int] = {}
        """Number of copied bytes, by path and reason."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.copy_ and len(args) == 2 and not kwargs and self._share(*args):
            return args[0]
        return function(*args, **(kwargs or {}))

    def _share(self, target: Any, source: Any) -> bool:
        """Move a weight to shared memory with the values of `source`. Return False if they must be copied."""
        path, nbytes = "", 0
        try:
            nbytes = source.nbytes if _is_dense(source) else 0
            if nbytes < _MIN_WEIGHT:
                return False
            second = _loaded.get(source.untyped_storage().data_ptr())
            region = None if second is not None else self._region(source)
            mapped = region if second is None else second
            if mapped is None:
                raise _NotShared("the given tensors are not in a mapped file")
            path = mapped.path
            if reason := _why_copied(target, source) or self._why_private(address_of(source), nbytes):
                raise _NotShared(reason)
            if second is None:
                _move(target, source, self._part_of_region(region, source, nbytes))
            elif not self._is_shared(target, source, second, nbytes):
                _move(target, source, second.part(source, nbytes))
            torch.autograd.graph.increment_version(target)  # as `copy_` does
        except Exception as error:  # any: torch copies, or raises its own error
            reason = str(error) or type(error).__name__
            self._copied[path, reason] = self._copied.get((path, reason), 0) + nbytes
            return False
        self._shared[path] = self._shared.get(path, 0) + nbytes
        return True

    def close(self) -> None:
        """Release the snapshots, and report how many bytes were shared and copied."""
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
            trim_heap()  # releases the former memory of the weights

    def _is_shared(self, target: Any, source: Any, second: _SecondMapping, nbytes: int) -> bool:
        """Return whether a weight already uses these bytes, under another name."""
        same = bool(address_of(target) == second.address_for(source))
        return same and not self._why_private(address_of(target), nbytes)

    def _part_of_region(self, region: Any, source: Any, nbytes: int) -> Any:
        """Return the bytes of a tensor's values, from a snapshot of the file that contains them."""
        if region.perms[3] != "p":
            raise _NotShared("the given tensors are in a mapping to which other processes may write")
        offset = region.offset + address_of(source) - region.start
        file = self._source(region, -offset % _ALIGNMENT)
        if isinstance(file, str):
            raise _NotShared(file)
        if offset + nbytes > file.nbytes:
            raise _NotShared("the file was truncated")
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
        """Return a snapshot of a region's file, or the reason why there is none. `lead` is passed to `source_of`."""
        key = region.dev, region.inode, region.path
        if key not in self._sources:
            self._sources[key] = _source_of_region(region, lead)
        return self._sources[key]


def _move(target: Any, source: Any, array: Any) -> None:
    """Make `target` use the memory of an array of bytes with the values of `source`."""
    if array.ctypes.data % _ALIGNMENT:  # results of matrix products may depend on it
        raise _NotShared("not aligned in the file")
    target.data = _tensor_on(array, _moved, None).view(source.dtype).view(source.shape)


def _source_of_region(region: Any, lead: int) -> Source | str:
    if region.deleted:
        return "the file was removed after it was mapped"
    try:
        with FileMapping(region.path) as mapping:
            again = Regions().at(mapping.address)  # `os.stat` reports another device on btrfs and overlayfs
            if again is None or (again.dev, again.inode) != (region.dev, region.inode):
                return "the file was replaced after it was mapped"
            return source_of(LOAD_STATE_DICT, mapping.fileno(), lead) or "no snapshot of the file could be taken"
    except OSError as error:
        return f"the file cannot be mapped again: {error.strerror}"


class _NotShared(Exception):
    """A weight must be copied; the message states the reason."""


class _SecondMapping:
    """A second mapping of a file that `torch.load` has mapped, for weights that receive the loaded values."""

    def __init__(self, parts: Parts, first_address: int) -> None:
        self._parts, self._first_address = parts, first_address
        self.path = parts.path

    def address_for(self, source: Any) -> int:
        """Return the address at which this mapping contains the values of a tensor in the first mapping."""
        return self._parts.address + int(address_of(source)) - self._first_address

    def part(self, source: Any, nbytes: int) -> Any:
        """Return this mapping's bytes for a tensor in the first mapping. Each part can be returned only once."""
        array = self._parts.part(address_of(source) - self._first_address, nbytes)
        if array is None:
            raise _NotShared("another weight uses the same bytes of the file")
        return array


def _why_copied(target: Any, source: Any) -> str:
    """Return why the memory of `target` cannot be replaced, or "" if the program would not notice the difference."""
    for one in (target, source):
        if type(one) not in (torch.Tensor, torch.nn.Parameter):
            return f"a tensor of the class {type(one).__name__}"
    storage = target.untyped_storage()
    reasons = (
        (target.device.type != "cpu", f"copied to {target.device}"),
        (target.dtype != source.dtype, f"cast from {str(source.dtype)[6:]} to {str(target.dtype)[6:]}"),
        (target.layout is not torch.strided, "not a dense tensor"),
        (target.shape != source.shape, "the shapes differ"),
        (not target.is_contiguous() or not source.is_contiguous(), "not contiguous"),
        (source.is_conj() or source.is_neg() or target.is_inference(), "a conjugated, negated or inference tensor"),
        (target.grad_fn is not None, "computed from other tensors"),
        (target.is_shared(), "in memory that is shared with other processes"),
        (not storage.resizable(), "in another library's memory"),
        (hasattr(storage, _ADDRESS_IS_KEPT), "the program has read the weight's address"),
        (
            target._base is not None or storage.nbytes() != target.nbytes or _has_aliases(storage),
            "other tensors share the weight's memory",
        ),
    )
    return next((reason for differs, reason in reasons if differs), "")


def _has_aliases(storage: Any) -> bool:
    """Return whether several tensors use this storage."""
    count, tensor = torch._C._storage_Use_Count, torch.empty(1)
    alone = tensor.untyped_storage()  # in torch 2.9, this reference counts too, like the caller's
    return bool(count(storage._cdata) > count(alone._cdata))
