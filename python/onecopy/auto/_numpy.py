"""`numpy.load` of ``.npy`` files returns arrays on a copy-on-write mapping."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.auto.call_log import MIN_BYTES, note
from onecopy.auto.hooks import replace
from onecopy.auto.mapped import File, mapping_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import BinaryIO

LOAD = "numpy.load"
_ZIP = b"PK\x03\x04"


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
        with Path(file).open("rb") as opened:
            return _array_in(opened, File(file), **limits)
    name = getattr(file, "name", None)
    if not isinstance(name, str) or not hasattr(file, "fileno") or "b" not in getattr(file, "mode", ""):
        return None
    before, found = file.tell(), None
    try:
        if os.path.samestat(os.fstat(file.fileno()), os.stat(name)):  # noqa: PTH116
            found = _array_in(file, File(name), **limits)
    finally:
        if found is None:
            file.seek(before)
    return found


def _array_in(opened: BinaryIO, file: File, **limits: int) -> Any:
    """Return the array that begins at the position of a file, which is then behind it; None if it is not mapped."""
    import numpy as np
    from numpy.lib import format as npy

    begin = opened.tell()
    first = opened.read(len(_ZIP))
    reason = file.reason or ("an npz file: its arrays are not aligned" if first == _ZIP else "")
    if reason:
        note(LOAD, file.path, copied=file.nbytes, reason=reason)
        return None
    opened.seek(begin)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(npy.read_magic(opened))
    if read is None:
        return None
    shape, fortran, dtype = read(opened, **limits)
    offset = opened.tell()
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < MIN_BYTES:
        return None
    if dtype.hasobject or offset % dtype.alignment:
        reason = "Python objects, which are pickled" if dtype.hasobject else "not aligned in the file"
        note(LOAD, file.path, copied=file.nbytes, reason=reason)
        return None
    with mapping_of(file.path) as mapping:
        if offset + nbytes > mapping.nbytes:
            return None  # numpy raises its error for a truncated file
        array = np.ndarray(shape, dtype, mapping.view(offset, nbytes), order="F" if fortran else "C")
    opened.seek(offset + nbytes)
    note(LOAD, file.path, shared=nbytes)
    return array
