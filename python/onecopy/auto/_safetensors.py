"""`safetensors.numpy.load_file` maps the file; functions that save replace files that are mapped.

`safetensors.torch.load_file` and `safe_open(framework="pt")` return tensors on a copy-on-write mapping by themselves.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from onecopy.auto import overwriting
from onecopy.auto.call_log import note
from onecopy.auto.hooks import replace
from onecopy.auto.mapped import MIN_BYTES, protect, why_not

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

LOAD_FILE = "safetensors.numpy.load_file"


def apply(module: ModuleType) -> None:
    """Replace functions of `safetensors.numpy` or `safetensors.torch`."""
    replace(module, "save_file", _save_file)
    replace(module, "load_file", _load_file if module.__name__ == "safetensors.numpy" else _protected)


def _load_file(original: Callable[..., Any]) -> Callable[..., Any]:
    def load_file(*args: Any, **kwargs: Any) -> Any:
        filename = args[0] if args else kwargs.get("filename")
        try:
            found = _mapped(os.path.abspath(os.fspath(filename))) if filename else None  # noqa: PTH100 - text
        except Exception:  # any: safetensors reads the file, or raises its own error
            found = None
        return original(*args, **kwargs) if found is None else found

    return load_file


def _protected(original: Callable[..., Any]) -> Callable[..., Any]:
    def load_file(*args: Any, **kwargs: Any) -> Any:
        filename = args[0] if args else kwargs.get("filename")
        if isinstance(filename, (str, os.PathLike)):
            with suppress(OSError):  # safetensors raises it
                protect(os.fspath(filename))
        return original(*args, **kwargs)

    return load_file


def _mapped(path: str) -> dict[str, Any] | None:
    """Return the arrays of a file; None if it is not mapped."""
    from safetensors.numpy import _TYPES

    from onecopy.arrays import open_arrays

    reason = why_not(path)
    if reason is None:
        with open_arrays(path, private=True) as file:
            if any(entry.dtype not in _TYPES for entry in file.entries):
                reason = "has a dtype that numpy does not have"
            elif any(not file[name].flags.aligned for name in file):
                reason = "not aligned in the file"
            else:
                protect(path)
                note(LOAD_FILE, path, shared=sum(entry.nbytes for entry in file.entries))
                return {name: file[name] for name in file}
    nbytes = os.path.getsize(path)  # noqa: PTH202
    if nbytes >= MIN_BYTES:
        note(LOAD_FILE, path, copied=nbytes, reason=reason)
    return None


def _save_file(original: Callable[..., Any]) -> Callable[..., Any]:
    def save_file(*args: Any, **kwargs: Any) -> Any:
        filename = args[1] if len(args) > 1 else kwargs.get("filename")
        if isinstance(filename, (str, os.PathLike)):
            overwriting.before_write(filename, whole=True)
        return original(*args, **kwargs)

    return save_file
