"""`numpy.load` of ``.npy`` files returns arrays on a copy-on-write mapping."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from onecopy.auto.call_log import note
from onecopy.auto.hooks import replace
from onecopy.auto.mapped import MIN_BYTES, mapping_of, why_not

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import BinaryIO

LOAD = "numpy.load"
_NPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"


def apply(numpy: ModuleType) -> None:
    """Replace `numpy.load`."""
    replace(numpy, "load", _load)
    for name in ("_npyio_impl", "npyio"):  # of numpy 2, of numpy 1
        module = getattr(numpy.lib, name, None)
        if module is not None and "load" in vars(module):
            module.load = numpy.load


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(*args: Any, **kwargs: Any) -> Any:
        file = args[0] if args else kwargs.get("file")
        if len(args) > 1 or kwargs.get("mmap_mode") is not None:
            return original(*args, **kwargs)
        try:
            found = _mapped(file, **{name: kwargs[name] for name in ("max_header_size",) if name in kwargs})
        except Exception:  # any: numpy reads the file, or raises its own error
            found = None
        return original(*args, **kwargs) if found is None else found

    return load


def _mapped(file: Any, **limits: int) -> Any:
    """Return the array of a file on a mapping; None if it is not mapped. A file object ends up behind the array."""
    if isinstance(file, (str, os.PathLike)):
        path = os.path.abspath(os.fspath(file))  # noqa: PTH100 - text
        reason = why_not(path)
        if reason is not None:
            _note_read(path, os.path.getsize(path), reason)  # noqa: PTH202
            return None
        with open(path, "rb") as opened:
            return _array_in(opened, path, **limits)
    name = getattr(file, "name", None)
    if not isinstance(name, str) or not hasattr(file, "fileno") or "b" not in getattr(file, "mode", ""):
        return None
    before = file.tell()
    if os.fstat(file.fileno()).st_size - before < MIN_BYTES or not os.path.samestat(os.fstat(file.fileno()), os.stat(name)):  # noqa: PTH116
        return None
    found = None
    try:
        if why_not(name) is None:
            found = _array_in(file, os.path.abspath(name), **limits)  # noqa: PTH100
    finally:
        if found is None:
            file.seek(before)
    return found


def _array_in(file: BinaryIO, path: str, **limits: int) -> Any:
    """Return the array that begins at the position of a file, which is then behind it; None if it is not mapped."""
    import numpy as np
    from numpy.lib import format as npy

    begin = file.tell()
    if file.read(len(_ZIP)) == _ZIP:
        _note_read(path, os.fstat(file.fileno()).st_size, "an npz file: its arrays are not aligned")
        return None
    file.seek(begin)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(npy.read_magic(file))
    if read is None:
        return None
    shape, fortran, dtype = read(file, **limits)
    offset = file.tell()
    nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if nbytes < MIN_BYTES:
        return None
    if dtype.hasobject or offset % max(dtype.alignment, 1):
        _note_read(path, nbytes, "Python objects, which are pickled" if dtype.hasobject else "not aligned in the file")
        return None
    with mapping_of(path) as mapping:
        if offset + nbytes > mapping.nbytes:
            return None  # numpy raises its error for a truncated file
        array = np.ndarray(shape, dtype, mapping.view(offset, nbytes), order="F" if fortran else "C")
    file.seek(offset + nbytes)
    note(LOAD, path, shared=nbytes)
    return array


def _note_read(path: str, nbytes: int, reason: str) -> None:
    if nbytes >= MIN_BYTES:
        note(LOAD, path, copied=nbytes, reason=reason)
