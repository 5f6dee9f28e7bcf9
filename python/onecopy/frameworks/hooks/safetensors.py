"""Makes `safetensors.numpy.load_file` return arrays in a snapshot.

`safetensors.torch.load_file` maps files itself. A file on a network or user-space file system is read into the page
cache in the background.

**Not shared:** arrays that are small, have a dtype that NumPy lacks, or are not aligned in the file (see `_array`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import safe_open

from onecopy import _core
from onecopy.errors import FormatError
from onecopy.run.call_log import note
from onecopy.run.hooks import guarded, replace, replace_where_shared
from onecopy.run.mapped import MIN_PART, Parts, Source, keep, read_ahead, source_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

LOAD_FILE, LOAD_FILE_OF_TORCH = "safetensors.numpy.load_file", "safetensors.torch.load_file"


def apply(module: ModuleType) -> None:
    """Replace `load_file` in the module `safetensors.numpy` or `safetensors.torch`."""
    if module.__name__ == "safetensors.torch":
        replace(module, "load_file", _load_file_of_torch)
    else:
        replace_where_shared(module, "load_file", _load_file)


def _load_file_of_torch(original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def load_file(filename: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        job = None
        with suppress(Exception):  # any: safetensors raises its own error
            job = read_ahead(LOAD_FILE_OF_TORCH, [filename])
        tensors = original(filename, *args, **kwargs)
        if tensors:
            guarded(LOAD_FILE_OF_TORCH, keep, job, next(iter(tensors.values())))
        return tensors

    return load_file


def _load_file(filename: Any, **options: Any) -> dict[str, Any] | None:
    source = source_of(LOAD_FILE, os.fspath(filename))
    if source is None:
        return None
    with source, safe_open(filename, framework="np", **options) as opened:
        if not source.is_of(filename):  # replaced meanwhile
            return None
        try:
            ours = _core.open_arrays(source.path, handle=_core.FileHandle(os.dup(source.descriptor)))[0]
        except FormatError:  # safetensors reads some files that onecopy refuses
            return None
        parts = Parts(source)
        listed = getattr(opened, "offset_keys", opened.keys)  # as `load_file` of the same version lists them
        return {name: _array(source, parts, ours, opened, name) for name in listed()}


def _array(source: Source, parts: Parts, ours: _core.ArrayFile, opened: Any, name: str) -> Any:
    """Return an array as safetensors does: a view of bytes to which there are no other references."""
    from safetensors.numpy import _TYPES  # which `safetensors.torch` does not import

    _, kind, shape, offset, nbytes = ours.entry(name) or ("", "", (), 0, 0)  # an array that fills a gap has no entry
    dtype = _TYPES.get(kind)
    if dtype is None or nbytes < MIN_PART:
        return opened.get_tensor(name)
    if offset % np.dtype(dtype).alignment:
        note(LOAD_FILE, source.path, copied=nbytes, reason="not aligned in the file")
        return opened.get_tensor(name)
    array = source.counted(parts.part(offset, nbytes))
    return np.frombuffer(memoryview(array), dtype).reshape(shape)
