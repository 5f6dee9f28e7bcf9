"""Makes `joblib.load` map the arrays of uncompressed files from a snapshot.

**Not shared:** compressed files (see `_load`); arrays that contain objects, have a different byte order or are not
aligned in the file (`_mapped`); arrays that the loaded object copies (`mapped.Source.close`).
"""

from __future__ import annotations

import functools
import io
import math
import os
import threading
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np

from onecopy.run.call_log import note, note_read
from onecopy.run.hooks import descriptor_of, guarded, replace, replace_where_shared
from onecopy.run.mapped import MIN_ARRAY, Source, source_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

LOAD = "joblib.load"
_of_thread = threading.local()
"""`sources` maps descriptors to the snapshots of the files that `joblib.load` is reading."""


def apply(_: ModuleType) -> None:
    """Replace `joblib.load` and the function with which it reads arrays."""
    replace_where_shared(joblib.numpy_pickle.NumpyArrayWrapper, "read_array", _mapped)
    replace(joblib.numpy_pickle, "load", _load)
    setattr(joblib, "load", joblib.numpy_pickle.load)  # noqa: B010 - a module has no type


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(*args: Any, **kwargs: Any) -> Any:
        before = getattr(_of_thread, "sources", None)  # those of an outer load
        _of_thread.sources = sources = dict[int, Source | None]()
        try:
            loaded = original(*args, **kwargs)
            file = args[0] if args else kwargs.get("filename")
            if not sources and isinstance(file, (str, os.PathLike)):
                note_read(LOAD, file, "the file is compressed, or contains no large arrays")
            return loaded
        finally:
            _of_thread.sources = before
            for source in sources.values():
                if source is not None:
                    guarded(LOAD, source.close)

    return load


def _mapped(wrapper: Any, unpickler: Any, *_: Any, **__: Any) -> Any:
    """Return the array at a file's current position and advance the position, or None if joblib should read it."""
    handle = unpickler.file_handle
    shape, dtype = wrapper.shape, wrapper.dtype
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    source = None if nbytes < MIN_ARRAY or dtype.hasobject else _source(descriptor_of(handle))
    if source is None:
        return None
    begin: int = handle.tell()
    if wrapper.safe_get_numpy_array_alignment_bytes() is not None:
        begin += 1 + os.pread(source.descriptor, 1, begin)[0]
    if not dtype.isnative or begin % dtype.alignment:  # joblib swaps the bytes of arrays that it reads
        reason = "not aligned in the file: saved by joblib before 1.2" if dtype.isnative else "in another byte order"
        note(LOAD, source.path, copied=nbytes, reason=reason)
        return None
    if begin + nbytes > source.nbytes:
        return None
    array = source.array(begin, (count,), dtype)
    handle.seek(begin + nbytes)
    if wrapper.order == "F":
        return array.reshape(shape[::-1]).transpose()
    if not _returns_views():
        array.shape = shape
    return array.reshape(shape) if _returns_views() else array


def _source(descriptor: int | None) -> Source | None:
    """Return the snapshot of a file that `joblib.load` is reading, or None for other files."""
    sources: dict[int, Source | None] | None = getattr(_of_thread, "sources", None)
    if sources is None or descriptor is None:
        return None
    source = sources.get(descriptor)
    if source is None or not source.is_of(descriptor):
        if source is not None:
            source.close()
        sources[descriptor] = source = source_of(LOAD, descriptor)
    return source


@functools.cache
def _returns_views() -> bool:
    """Return whether joblib returns arrays that do not own their memory, as joblib 1.6 and later do."""
    file = io.BytesIO()
    joblib.dump(np.zeros(2), file)
    file.seek(0)
    return not joblib.load(file).flags.owndata
