"""`joblib.load` maps the arrays of files that are not compressed, with joblib's own ``mmap_mode="c"``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from onecopy.auto.call_log import note
from onecopy.auto.hooks import replace
from onecopy.auto.mapped import MIN_BYTES, protect, why_not

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

LOAD = "joblib.load"
_COMPRESSED = (b"\x78", b"\x1f\x8b", b"BZ", b"\x5d\x00", b"\xfd7zXZ", b"\x04\x22\x4d\x18", b"ZF")
"""How files begin that joblib compressed with zlib, gzip, bz2, lzma, xz, lz4, or an old version of it."""


def apply(joblib: ModuleType) -> None:
    """Replace `joblib.load`."""
    replace(joblib, "load", _load)
    joblib.numpy_pickle.load = joblib.load


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(*args: Any, **kwargs: Any) -> Any:
        filename = args[0] if args else kwargs.get("filename")
        if len(args) > 1 or kwargs.get("mmap_mode") is not None or not isinstance(filename, (str, os.PathLike)):
            return original(*args, **kwargs)
        path = os.path.abspath(os.fspath(filename))  # noqa: PTH100 - text
        try:
            reason = why_not(path) or _why_read(path)
            nbytes = os.path.getsize(path)  # noqa: PTH202
        except OSError:  # joblib raises an error for this path
            return original(*args, **kwargs)
        if reason is not None:
            if nbytes >= MIN_BYTES:
                note(LOAD, path, copied=nbytes, reason=reason)
            return original(*args, **kwargs)
        protect(path)
        loaded = original(*args, **{**kwargs, "mmap_mode": "c"})
        note(LOAD, path, shared=nbytes)
        return loaded

    return load


def _why_read(path: str) -> str | None:
    with open(path, "rb") as file:
        return "compressed" if file.read(6).startswith(_COMPRESSED) else None
