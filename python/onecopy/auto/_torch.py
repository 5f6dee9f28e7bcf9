"""`torch.load` maps files of `torch.save`; `Module.load_state_dict` moves weights to mappings instead of copying them.

**How `load_state_dict` shares.** It calls ``parameter.copy_(tensor)`` for each weight. Where the tensor lies on a
mapped file, the parameter gets memory of a second, copy-on-write mapping of this file: it has the values of the tensor,
and neither sees what is written to the other. The parameter stays the same object, with its gradient and hooks.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onecopy.auto import overwriting, turns
from onecopy.auto.hooks import replace
from onecopy.auto.mapped import File, SecondMappings
from onecopy.runs import RUN
from onecopy.runs.call_log import LOAD_STATE_DICT, MIN_BYTES, note
from onecopy.store.fork import trim_heap

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from onecopy.memory.addresses import Pages, Regions

LOAD = "torch.load"
_ZIP = b"PK\x03\x04"
_SMALL = 4096
"""Bytes; smaller weights are copied: a page of a file would take as much."""


def apply(torch: ModuleType) -> None:
    """Replace the functions of torch."""
    for name in ("load", "save"):
        replace(torch.serialization, name, {"load": _load, "save": _save}[name])
        setattr(torch, name, getattr(torch.serialization, name))
    replace(torch.nn.Module, "load_state_dict", _load_state_dict)
    if RUN in os.environ:
        replace(torch.nn.Module, "register_parameter", _register_parameter)


# --- files of torch.save ----------------------------------------------------------------------------------------------


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(*args: Any, **kwargs: Any) -> Any:
        file = args[0] if args else kwargs.get("f")
        if kwargs.get("mmap") is not None or not isinstance(file, (str, os.PathLike)):
            return original(*args, **kwargs)
        try:
            found = File(file)
            reason = found.reason or _why_read(found, args[1] if len(args) > 1 else kwargs.get("map_location"))
        except OSError:  # torch raises an error for this path
            return original(*args, **kwargs)
        if reason:
            note(LOAD, found.path, copied=found.nbytes, reason=reason)
            return original(*args, **kwargs)
        found.protect()
        loaded = original(*args, **kwargs, mmap=True)
        note(LOAD, found.path, shared=found.nbytes)
        return loaded

    return load


def _why_read(file: File, location: Any) -> str:
    """Return why torch cannot map a file; empty if it can."""
    import torch

    if location is not None and str(location) != "cpu":
        return f"map_location={location!r}"
    if not file.path.endswith(".safetensors") and not file.begins().startswith(_ZIP):
        return "in the format of torch before 1.6, which cannot be mapped"
    if torch.serialization.get_default_mmap_options() != _MAP_PRIVATE:
        return "torch.serialization.set_default_mmap_options was called"
    return ""


_MAP_PRIVATE = 2


def _save(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(*args: Any, **kwargs: Any) -> Any:
        file = args[1] if len(args) > 1 else kwargs.get("f")
        if isinstance(file, (str, os.PathLike)):
            overwriting.before_write(file, whole=True)
        return original(*args, **kwargs)

    return save


# --- modules ----------------------------------------------------------------------------------------------------------


def _load_state_dict(original: Callable[..., Any]) -> Callable[..., Any]:
    def load_state_dict(*args: Any, **kwargs: Any) -> Any:
        if _bytes_of(args[1] if len(args) > 1 else kwargs.get("state_dict")) < MIN_BYTES:
            return original(*args, **kwargs)
        sharing = _Sharing()
        try:
            with _mode(sharing):
                return original(*args, **kwargs)
        finally:
            sharing.close()
            turns.finished()

    return load_state_dict


def _register_parameter(original: Callable[..., Any]) -> Callable[..., Any]:
    def register_parameter(self: Any, name: Any, param: Any) -> None:
        if param is not None and param.device.type == "cpu":
            turns.registered(param.nbytes)
        original(self, name, param)

    return register_parameter


def _bytes_of(state: Any) -> int:
    import torch

    values = state.values() if isinstance(state, Mapping) else ()
    return sum(one.numel() * one.element_size() for one in values if isinstance(one, torch.Tensor))


def _mode(sharing: _Sharing) -> Any:
    """Return a mode of torch in which ``copy_`` is offered to `sharing` first."""
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # the type checker may run without torch
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is Tensor.copy_ and len(args) == 2 and not kwargs and sharing.share(*args):
                return args[0]
            return function(*args, **(kwargs or {}))

    return Mode()


class _Sharing:
    """What one call of `load_state_dict` shares."""

    def __init__(self) -> None:
        self._mappings = SecondMappings()
        self._regions: Regions | None = None
        self._pages: Pages | None = None
        self._taken = _Ranges()
        """Addresses that a weight has: a second one with the same bytes of the file gets a copy."""
        self._shared: dict[str, int] = {}
        self._copied: dict[tuple[str, str], int] = {}
        """Bytes by path and reason."""

    def share(self, target: Any, source: Any) -> bool:
        """Point a weight to shared memory that has the values of `source`; False if they must be copied."""
        nbytes = source.numel() * source.element_size()
        if nbytes < _SMALL or source.device.type != "cpu":
            return False
        try:
            found = self._region(source)
            if found is None:
                self._copy("", "the given tensors are not on a mapped file", nbytes)
                return False
            reason = _why_copied(target, source) or self._put(target, source, found, nbytes)
        except (OSError, RuntimeError) as error:  # without /proc; another version of torch
            self._copy("", str(error), nbytes)
            return False
        if reason is not None:
            self._copy(found.path, reason, nbytes)
        return reason is None

    def close(self) -> None:
        """Release what was needed for sharing, and report."""
        self._mappings.close()
        if self._pages is not None:
            self._pages.__exit__()
        for (path, reason), nbytes in self._copied.items():
            note(LOAD_STATE_DICT, path, copied=nbytes, reason=reason)
        for path, nbytes in self._shared.items():
            note(LOAD_STATE_DICT, path, shared=nbytes)
        if self._shared:
            trim_heap()  # of the memory that the weights had before

    def _copy(self, path: str, reason: str, nbytes: int) -> None:
        self._copied[path, reason] = self._copied.get((path, reason), 0) + nbytes

    def _region(self, source: Any) -> Any:
        from onecopy.memory.addresses import Regions

        if self._regions is None:
            self._regions = Regions()
        region = self._regions.at(source.data_ptr())
        return region if region is not None and region.inode and region.path.startswith("/") else None

    def _put(self, target: Any, source: Any, region: Any, nbytes: int) -> str | None:
        """Give `target` the memory of a second mapping; return why not."""
        from onecopy.memory.addresses import Pages

        if region.perms[3] != "p":
            return "the given tensors are on a mapping that other processes may write to"
        if self._pages is None:
            self._pages = Pages().__enter__()
        if self._pages.private_bytes(source.data_ptr(), nbytes):
            return "changed after it was loaded"
        mapping = self._mappings.of(region)
        if isinstance(mapping, str):
            return mapping
        offset = region.offset + source.data_ptr() - region.start
        if offset % source.element_size() or offset + nbytes > mapping.nbytes:
            return "not aligned in the file" if offset % source.element_size() else "the file was truncated"
        return self._move(target, source, mapping.view(offset, nbytes), region.path)

    def _move(self, target: Any, source: Any, view: memoryview, path: str) -> str | None:
        """Give `target` the memory of a view, which has the values of `source`; return why not."""
        import torch

        flat = torch.frombuffer(view, dtype=torch.uint8)
        begin = flat.data_ptr()
        if target.data_ptr() == begin and not (self._pages and self._pages.private_bytes(begin, view.nbytes)):
            return None  # a weight with several names, which has it already
        if not self._taken.add(begin, begin + view.nbytes):
            return "another weight has the same bytes of the file"
        target.data = flat.view(source.dtype).view(source.shape)
        torch.autograd.graph.increment_version(target)  # as `copy_` does
        self._shared[path] = self._shared.get(path, 0) + view.nbytes
        return None


class _Ranges:
    """Ranges of which none overlaps another."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        """Sorted."""
        self._ends: dict[int, int] = {}
        """By the beginning."""

    def add(self, begin: int, end: int) -> bool:
        """Add a range; False if it overlaps one that was added before."""
        place = bisect_left(self._begins, end)
        if place and self._ends[self._begins[place - 1]] > begin:
            return False
        self._begins.insert(place, begin)
        self._ends[begin] = end
        return True


def _why_copied(target: Any, source: Any) -> str | None:
    """Return why `copy_` cannot be replaced by other memory of `target`; None if no code can see the difference."""
    import torch

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
        (
            target._base is not None or storage.nbytes() != target.nbytes or _has_aliases(storage),
            "other tensors share the memory of the weight",
        ),
    )
    return next((reason for differs, reason in reasons if differs), None)


def _has_aliases(storage: Any) -> bool:
    """Return whether other tensors than one have this storage."""
    import torch

    count = torch._C._storage_Use_Count
    alone = torch.empty(1)
    return bool(count(storage._cdata) > count(alone.untyped_storage()._cdata))
