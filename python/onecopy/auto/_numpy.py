"""`numpy.load` returns arrays of ``.npy`` files, and aligned ones of ``.npz`` files, on a copy-on-write mapping."""

from __future__ import annotations

import math
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.auto.hooks import replace
from onecopy.auto.mapped import File, mapping_of
from onecopy.files import Mapping
from onecopy.runs.call_log import MIN_BYTES, note

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import BinaryIO
    from zipfile import ZipInfo

LOAD = "numpy.load"
_ZIP = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<26xHH")
"""What precedes a member of a zip archive: bytes of its name and of the extra field, which follow."""


def apply(numpy: ModuleType) -> None:
    """Replace `numpy.load`, and the access to the arrays of an ``.npz`` file."""
    replace(numpy, "load", _load)
    replace(numpy.lib.npyio.NpzFile, "__getitem__", _getitem)
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
    begin = opened.tell()
    if opened.read(len(_ZIP)) == _ZIP:  # its arrays are mapped one by one
        return None
    if file.reason:
        note(LOAD, file.path, copied=file.nbytes, reason=file.reason)
        return None
    opened.seek(begin)
    array = _npy(opened, file, file.nbytes, limits)
    if array is not None:
        note(LOAD, file.path, shared=array.nbytes)
    return array


def _npy(opened: BinaryIO, file: File, end: int, limits: dict[str, int]) -> Any:
    """Return the array of the npy format from the position of a file up to `end`; None if it is not mapped."""
    import numpy as np
    from numpy.lib import format as npy

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
        note(LOAD, file.path, copied=nbytes, reason=reason)
        return None
    with mapping_of(file.path) as mapping:
        if offset + nbytes > min(end, mapping.nbytes):
            return None  # numpy raises its error for a truncated file
        array = np.ndarray(shape, dtype, mapping.view(offset, nbytes), order="F" if fortran else "C")
    opened.seek(offset + nbytes)
    return array


# --- npz files --------------------------------------------------------------------------------------------------------


def _getitem(original: Callable[..., Any]) -> Callable[..., Any]:
    def __getitem__(self: Any, key: Any) -> Any:  # noqa: N807
        try:
            found = _member(self, key)
        except Exception:  # any: numpy reads the array, or raises its own error
            found = None
        return original(self, key) if found is None else found

    return __getitem__


def _member(npz: Any, key: str) -> Any:
    """Return an array of an npz file on a mapping of the file; None if it is not mapped."""
    info = npz.zip.NameToInfo.get(key) or npz.zip.getinfo(f"{key}.npy")
    npz.zip.open(info).close()  # raises an error for a damaged header
    with Path(npz.zip.fp.name).open("rb") as opened:
        if info.file_size < MIN_BYTES or not _is_same(npz.zip.fp, opened):
            return None
        file = File(npz.zip.fp.name)
        reason = file.reason or ("compressed" if info.compress_type else "")
        if reason:
            note(LOAD, file.path, copied=info.file_size, reason=reason)
            return None
        opened.seek(info.header_offset)
        begin = info.header_offset + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(opened.read(_LOCAL_HEADER.size)))
        opened.seek(begin)
        array = _npy(opened, file, begin + info.file_size, {"max_header_size": npz.max_header_size})
        if array is None or not _is_intact(file.path, begin, info):
            return None
    shared = vars(npz).setdefault("shared_by_onecopy", {})
    shared[info.filename] = array.nbytes
    note(LOAD, file.path, shared=sum(shared.values()))
    return array


def _is_same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))


def _is_intact(path: str, begin: int, info: ZipInfo) -> bool:
    """Return whether a member has the checksum that its archive has for it; numpy compares it too."""
    with Mapping(path, begin, info.file_size) as mapping, mapping.view() as view:
        return zlib.crc32(view) == info.CRC
