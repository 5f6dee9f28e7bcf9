"""`joblib.load` maps the arrays of files that are not compressed, with joblib's own ``mmap_mode="c"``."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from onecopy.auto.hooks import replace
from onecopy.auto.mapped import File
from onecopy.runs.call_log import note

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

LOAD = "joblib.load"
_COMPRESSED = (b"\x78", b"\x1f\x8b", b"BZ", b"\x5d\x00", b"\xfd7zXZ", b"\x04\x22\x4d\x18", b"ZF")
"""How files begin that joblib compressed with zlib, gzip, bz2, lzma, xz, lz4, or an old version of it."""


_SWAP = "ensure_native_byte_order"
"""An argument of `joblib.load`, by default "auto": True if nothing is mapped."""
_ALIGNMENT = 16
"""Bytes; joblib before 1.2 did not align arrays, and warns about a mapping of them."""


def apply(joblib: ModuleType) -> None:
    """Replace `joblib.load`, and the function with which joblib maps an array, which counts them."""
    replace(joblib.numpy_pickle, "make_memmap", _make_memmap)
    replace(joblib.numpy_pickle, "load", _load)
    setattr(joblib, "load", joblib.numpy_pickle.load)  # noqa: B010 - a module has no type


class _Unfit(Exception):
    """An array cannot be mapped; the message is the reason."""


_of_thread = threading.local()
"""`arrays`: references to the arrays that `joblib.load` has mapped, while it loads."""


def _make_memmap(original: Callable[..., Any]) -> Callable[..., Any]:
    def make_memmap(*args: Any, **kwargs: Any) -> Any:
        arrays: list[weakref.ref[Any]] | None = getattr(_of_thread, "arrays", None)
        if arrays is not None and kwargs.get("offset", 0) % _ALIGNMENT:
            raise _Unfit("not aligned in the file: saved by joblib before 1.2")
        if arrays is not None and not kwargs["dtype"].isnative:  # joblib swaps the bytes of arrays that it reads
            raise _Unfit("of another byte order")
        made = original(*args, **kwargs)
        if arrays is not None:
            arrays.append(weakref.ref(made))
        return made

    return make_memmap


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(*args: Any, **kwargs: Any) -> Any:
        filename = args[0] if args else kwargs.get("filename")
        if (
            len(args) > 1
            or kwargs.get("mmap_mode") is not None
            or kwargs.get(_SWAP, "auto") not in ("auto", True)
            or not isinstance(filename, (str, os.PathLike))
        ):
            return original(*args, **kwargs)
        try:
            file = File(filename)
            reason = file.reason or ("compressed" if file.begins().startswith(_COMPRESSED) else "")
        except OSError:  # joblib raises an error for this path
            return original(*args, **kwargs)
        if not reason:
            file.protect()
            _of_thread.arrays = []
            try:
                others = {name: value for name, value in kwargs.items() if name != _SWAP}
                loaded = original(*args, **{**others, "mmap_mode": "c"})
            except _Unfit as error:
                reason = str(error)
            except OSError as error:  # too many arrays: each has a descriptor of its own
                reason = f"cannot be mapped: {error.strerror}"
            else:
                _note_mapped(file, _of_thread.arrays)
                return loaded
            finally:
                del _of_thread.arrays
        note(LOAD, file.path, copied=file.nbytes, reason=reason)
        return original(*args, **kwargs)

    return load


def _note_mapped(file: File, references: list[weakref.ref[Any]]) -> None:
    """Report the arrays that are in use after loading; the others were copied by the objects that they belong to."""
    arrays = [array for reference in references if (array := reference()) is not None]
    shared = sum(array.nbytes for array in arrays)
    note(LOAD, file.path, shared=shared)
    note(LOAD, file.path, copied=file.nbytes - shared, reason="not arrays, or arrays that the loaded object copies")
