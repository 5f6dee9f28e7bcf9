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
from onecopy.auto.mapped import File

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
            found = _mapped(File(filename)) if isinstance(filename, (str, os.PathLike)) else None
        except Exception:  # any: safetensors reads the file, or raises its own error
            found = None
        return original(*args, **kwargs) if found is None else found

    return load_file


def _protected(original: Callable[..., Any]) -> Callable[..., Any]:
    def load_file(*args: Any, **kwargs: Any) -> Any:
        filename = args[0] if args else kwargs.get("filename")
        if isinstance(filename, (str, os.PathLike)):
            with suppress(OSError):  # safetensors raises it
                File(filename).protect()
        return original(*args, **kwargs)

    return load_file


def _mapped(file: File) -> dict[str, Any] | None:
    """Return the arrays of a file; None if it is not mapped."""
    from safetensors.numpy import _TYPES

    from onecopy.arrays import open_arrays

    reason = file.reason
    if not reason:
        with open_arrays(file.path, private=True) as opened:
            if any(entry.dtype not in _TYPES for entry in opened.entries):
                reason = "has a dtype that numpy does not have"
            elif not all(opened[name].flags.aligned for name in opened):
                reason = "not aligned in the file"
            else:
                file.protect()
                note(LOAD_FILE, file.path, shared=sum(entry.nbytes for entry in opened.entries))
                return {name: opened[name] for name in opened}
    note(LOAD_FILE, file.path, copied=file.nbytes, reason=reason)
    return None


def _save_file(original: Callable[..., Any]) -> Callable[..., Any]:
    def save_file(*args: Any, **kwargs: Any) -> Any:
        filename = args[1] if len(args) > 1 else kwargs.get("filename")
        if isinstance(filename, (str, os.PathLike)):
            overwriting.before_write(filename, whole=True)
        return original(*args, **kwargs)

    return save_file
