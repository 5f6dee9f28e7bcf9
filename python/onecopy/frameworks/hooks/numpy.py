"""Makes `numpy.fromfile`, which `numpy.load` calls, return arrays in a snapshot, even for members of ``.npz`` files.

**Not shared:** small arrays, Python objects and text (see `_mapped`); arrays that are not aligned in the file
(`_array_on`); compressed and damaged members (`_member`); files without a snapshot (`mapped.source_of`).

Most processes import NumPy, but few load big files. Therefore, the code that maps files is loaded on first use.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from onecopy import run
from onecopy.base.run_constants import MIN_BYTES
from onecopy.run.hooks import descriptor_of, replace_where_shared

if TYPE_CHECKING:
    from types import ModuleType

    from onecopy.run.mapped import Source

LOAD, FROMFILE = "numpy.load", "numpy.fromfile"
_member_of_thread = threading.local()
"""`source` is the snapshot of an archive while one of its members is read."""
_LOCAL_HEADER = 30
"""Number of bytes before the name in a zip member's header."""


def apply(_: ModuleType) -> None:
    """Replace `numpy.fromfile` and the access to arrays in an ``.npz`` file."""
    replace_where_shared(np, "fromfile", _mapped)
    replace_where_shared(np.lib.npyio.NpzFile, "__getitem__", _member)


def _mapped(file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0, *, like: Any = None) -> Any:
    """Return the array that a `numpy.fromfile` call requests, in a snapshot, or None if NumPy should read it."""
    is_path = isinstance(file, (str, os.PathLike))
    opened = os.fspath(file) if is_path else descriptor_of(file)
    dtype = np.dtype(dtype)
    if sep or like is not None or not isinstance(opened, (str, int)) or dtype.hasobject:
        return None
    begin = offset + (0 if is_path else file.tell())
    rest = (os.fstat(opened) if isinstance(opened, int) else os.stat(opened)).st_size - begin  # noqa: PTH116
    nbytes = (rest if count < 0 else count * dtype.itemsize) if dtype.itemsize else 0
    if nbytes < MIN_BYTES or nbytes > rest or nbytes % dtype.itemsize or begin < 0:
        return None
    member: Source | None = getattr(_member_of_thread, "source", None)
    if member is not None and member.descriptor == opened:
        return _array_on(member, begin, nbytes, dtype)

    by_load = sys._getframe(2).f_globals.get("__name__", "").startswith("numpy.lib.")
    source = run.source_of(LOAD if by_load else FROMFILE, opened)
    if source is None:
        return None
    with source:
        array = _array_on(source, begin, nbytes, dtype)
    if array is not None and not is_path:
        file.seek(begin + nbytes)
    return array


def _array_on(source: Source, begin: int, nbytes: int, dtype: Any) -> Any:
    if begin % dtype.alignment:
        run.note(source.function, source.path, copied=int(nbytes), reason="not aligned in the file")
        return None
    return source.array(begin, (nbytes // dtype.itemsize,), dtype) if begin + nbytes <= source.nbytes else None


# --- npz files --------------------------------------------------------------------------------------------------------


def _member(npz: Any, key: str) -> Any:
    """Return an array of an npz file, in a snapshot of the archive, or None if `numpy.load` should read it."""
    names = npz.zip.NameToInfo
    files = getattr(npz, "_files", None)  # NumPy 1 has a list here, and looks names up as below
    info = names[files[key]] if isinstance(files, dict) else names[key if key in names else f"{key}.npy"]
    descriptor = descriptor_of(npz.zip.fp)
    if info.file_size < MIN_BYTES or descriptor is None:
        return None

    with npz.zip.open(info) as member:  # raises for a damaged header
        if member.read(len(npy.MAGIC_PREFIX)) != npy.MAGIC_PREFIX:
            return None
    if info.compress_type:
        reason = "compressed: onecopy convert writes a file that can be mapped"
        run.note(LOAD, run.name_of(descriptor), copied=info.file_size, reason=reason)
        return None
    source = run.source_of(LOAD, descriptor)
    if source is None:
        return None
    with source:
        header = os.pread(source.descriptor, _LOCAL_HEADER, info.header_offset)
        names_and_extra = sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
        begin = info.header_offset + _LOCAL_HEADER + names_and_extra
        if not _is_intact(source, begin, info):
            return None
        # numpy's own code reads the header, and calls `numpy.fromfile`.
        with open(source.descriptor, "rb", closefd=False) as file:
            file.seek(begin)
            _member_of_thread.source = source
            try:
                return npy.read_array(
                    file,
                    allow_pickle=npz.allow_pickle,
                    pickle_kwargs=npz.pickle_kwargs,
                    max_header_size=npz.max_header_size,
                )
            finally:
                del _member_of_thread.source


def _is_intact(source: Source, begin: int, info: Any) -> bool:
    """Return whether a member matches the checksum in the archive, which NumPy would also verify."""
    from zlib import crc32

    checksum, at, end = 0, begin, begin + info.file_size
    while at < end and (piece := os.pread(source.descriptor, min(1 << 20, end - at), at)):
        checksum, at = crc32(piece, checksum), at + len(piece)
    return bool(at == end and checksum == info.CRC)
