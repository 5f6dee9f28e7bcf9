"""Makes `usearch.index.Index.load`, which `Index.restore` calls, view a snapshot of the file.

**Not shared:** buffers, and indexes that already contain vectors. An index is read when the program calls a function
that is not in `_READS`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from onecopy.run.hooks import call_before, guarded, replace
from onecopy.run.mapped import source_of
from onecopy.run.native_views import View, defer, view_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

LOAD = "usearch.index.Index.load"
_READS = {"search", "contains", "count", "get", "size", "ndim", "dtype", "connectivity", "multi", "max_level"}
_READS |= {"nlevels", "hardware_acceleration", "specs", "expansion_add", "expansion_search"}
_READS |= {"__len__", "__getitem__", "__array__", "__repr__"}


def apply(module: ModuleType) -> None:
    """Replace `Index.load`."""
    defer(module.Index, "_compiled", _READS, module)
    replace(module.Index, "load", _load)
    call_before(module.Index, "reset", _forget)


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any, path_or_buffer: Any = None, progress: Any = None) -> Any:
        if progress is None and guarded(LOAD, _view, self, path_or_buffer):
            return None
        return original(self, path_or_buffer, progress)

    return load


def _view(index: Any, given: Any) -> bool:
    """Make an index view a snapshot of a file. Return False if usearch should read the file instead."""
    import numpy as np

    path = index.path if given is None else given
    if not isinstance(path, (str, os.PathLike)):
        return False
    native = index.__dict__.get("_compiled")
    is_ours = type(index).__getattr__ is sys.modules["usearch.index"].Index.__getattr__
    source = source_of(LOAD, os.fspath(path)) if native is not None and is_ours and not len(native) else None
    if source is None:
        return False
    with source:
        memory = source.array(0, (source.nbytes,), np.dtype(np.uint8), random=True)
        owning = native.copy()  # empty, with the same options
        native.view_index_from_buffer(memoryview(memory), None)

        def read() -> Any:
            owning.load_index_from_buffer(memoryview(memory), None)
            owning.expansion_add, owning.expansion_search = native.expansion_add, native.expansion_search
            return owning

        View(native, read, source).take_from(index, "_compiled")
    return True


def _forget(index: Any) -> None:
    view = view_of(index)
    if view is not None:
        view.keep()  # the index is empty from now on
