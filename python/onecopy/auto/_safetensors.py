"""`safetensors.numpy.load_file` returns arrays on a snapshot.

``safe_open(framework="pt")``, and so `safetensors.torch.load_file`, maps the file by itself.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from onecopy.auto.hooks import replace
from onecopy.auto.mapped import MIN_ARRAY, Source, source_of
from onecopy.runs.call_log import note

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

LOAD_FILE = "safetensors.numpy.load_file"


def apply(module: ModuleType) -> None:
    """Replace `load_file` of the module `safetensors.numpy`."""
    replace(module, "load_file", _load_file)


def _load_file(original: Callable[..., Any]) -> Callable[..., Any]:
    def load_file(*args: Any, **kwargs: Any) -> Any:
        filename = args[0] if args else kwargs.get("filename")
        try:
            source = source_of(LOAD_FILE, os.fspath(filename))  # type: ignore[arg-type]  # an error of safetensors
        except Exception:  # any: safetensors reads the file, or raises its own error
            source = None
        if source is None:
            return original(*args, **kwargs)
        with source:
            from safetensors import safe_open

            others = {name: kwargs[name] for name in kwargs if name != "filename"}
            with safe_open(filename, framework="np", **others) as opened:
                if not source.is_of(filename):  # replaced meanwhile
                    return opened.get_tensors()
                header = _header(source)
                return {name: _array(source, header, opened, name) for name in opened.offset_keys()}

    return load_file


def _header(source: Source) -> dict[str, Any]:
    """Return the header of the file, with the position of its data as `""`."""
    length = int.from_bytes(os.pread(source.descriptor, 8, 0), "little")
    return {"": 8 + length, **json.loads(os.pread(source.descriptor, length, 8))}


def _array(source: Source, header: dict[str, Any], opened: Any, name: str) -> Any:
    """Return an array as safetensors does: a view of bytes that nothing else references."""
    import numpy as np
    from safetensors.numpy import _TYPES

    entry = header.get(name, {"data_offsets": (0, 0), "dtype": "", "shape": ()})
    begin, nbytes = header[""] + entry["data_offsets"][0], entry["data_offsets"][1] - entry["data_offsets"][0]
    dtype = _TYPES.get(entry["dtype"])
    if dtype is None or nbytes < MIN_ARRAY or begin + nbytes > source.nbytes:
        return opened.get_tensor(name)
    if begin % np.dtype(dtype).alignment:
        note(LOAD_FILE, source.path, copied=nbytes, reason="not aligned in the file")
        return opened.get_tensor(name)
    array = source.array(begin, (nbytes,), np.dtype(np.uint8))
    return np.frombuffer(memoryview(array), dtype).reshape(entry["shape"])
