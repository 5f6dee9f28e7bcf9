"""Makes `faiss.read_index` and `read_index_binary` return indexes whose vectors, codes and links are in a snapshot.

**Not shared:** calls with flags or readers, and faiss before 1.11. An index is read as soon as the program uses a
function that is not in `_READS`, or an attribute that is not in `_ATTRIBUTES`.
"""

from __future__ import annotations

import io
import operator
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from onecopy.run.hooks import replace, replace_where_shared
from onecopy.run.mapped import source_of
from onecopy.run.native_views import View, defer, view_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from onecopy.run.mapped import Source

_READS = {"search", "search_ex", "range_search", "range_search_ex", "assign", "search_and_reconstruct", "_swig_repr"}
_READS |= {"reconstruct", "reconstruct_n", "reconstruct_batch", "sa_encode", "sa_decode", "sa_code_size"}
_READS |= {"write_index", "write_index_binary"}
_ATTRIBUTES = {"d", "ntotal", "is_trained", "metric_type", "metric_arg", "verbose", "code_size", "nlist", "max_level"}
_SETTINGS = {"nprobe", "efSearch"}
"""Attributes that can be set in a view, and are set again in the index that replaces it."""
_PARTS = {"hnsw"}
"""Attributes that are parts of an index. A part also has some of the attributes above."""


class _Part(View):
    """The view of an index, or of a part of it. `path` returns the corresponding part of any index."""

    def __init__(self, native: Any, read: Callable[[], Any], source: Source | None = None) -> None:
        super().__init__(native, read, source)
        self.root, self.path = self, _itself
        self.index: Any = None
        """The index that replaces the view, if it has been read."""
        self.settings: dict[str, Callable[[Any], Any]] = {}
        """Functions that repeat the program's attribute changes in an index, by attribute."""

    def reading(self) -> Any:
        return self.own("") if self.root.read is None else self.native

    def part(self, path: Callable[[Any], Any], part: Any) -> Any:
        """Associate a part of the index with this view, and return the part."""

        def read() -> Any:
            self.root.own("changed")
            return whole(self.root.index).this

        def whole(index: Any) -> Any:
            return path(self.path(index))

        view = _Part(part.this, read)
        view.root, view.path = self.root, whole
        view.take_from(part, "this")
        return part

    def set(self, name: str, step: Callable[[Any], Any]) -> None:
        """Record an attribute change, and repeat it in the index that replaces the view."""
        self.root.settings.pop(name, None)
        self.root.settings[name] = lambda index: step(self.path(index))


def _itself(index: Any) -> Any:
    return index


def apply(faiss: ModuleType) -> None:
    """Replace functions that read indexes, and attributes of the index classes."""
    if not hasattr(faiss, "ZeroCopyIOReader"):  # before 1.11
        return
    swig = sys.modules[faiss.Index.__module__]
    for owner in (faiss.Index, faiss.IndexBinary, faiss.HNSW):
        defer(owner, "this", _READS, swig)
    for owner in list(vars(swig).values()):
        for name, value in list(vars(owner).items()) if isinstance(owner, type) else ():
            if isinstance(value, property) and name in _ATTRIBUTES | _SETTINGS | _PARTS:
                type.__setattr__(owner, name, _attribute(name, value))
    for name in ("read_index", "read_index_binary"):
        replace_where_shared(faiss, name, partial(_read, faiss, name))
    for name in ("extract_index_ivf", "try_extract_index_ivf", "downcast_index"):
        replace(faiss, name, _keeping_parts)
    for name in ("set_index_parameter", "set_index_parameters"):
        replace(faiss.ParameterSpace, name, _remembering_settings)


def _read(faiss: ModuleType, name: str, path: Any, flags: int = 0) -> Any:
    """Return an index that views a snapshot of its file, or None if faiss should read the file."""
    import numpy as np

    source = source_of(f"faiss.{name}", path) if type(path) is str and type(flags) is int and not flags else None
    if source is None:
        return None
    with source:
        memory = source.array(0, (source.nbytes,), np.dtype(np.uint8), random=True)
        read_index = getattr(faiss, name).__wrapped__
        index = read_index(faiss.ZeroCopyIOReader(faiss.swig_ptr(memory), len(memory)))

        def read() -> Any:
            view.index = read_index(faiss.PyCallbackIOReader(io.BytesIO(memory).read, 1 << 20))
            for step in view.settings.values():
                step(view.index)
            return view.index.this

        view = _Part(index.this, read, source)
        view.take_from(index, "this")
        _ = index.ntotal  # raises if faiss does not look up `this`; faiss then reads the file
    return index


def _attribute(name: str, value: property) -> property:
    """Return a property whose use does not cause a view to read its index."""
    get: Any = value.fget
    put: Any = value.fset

    def read(self: Any) -> Any:
        found, view = get(self), view_of(self)
        if name in _PARTS and isinstance(view, _Part):
            return view.part(operator.attrgetter(name), found)
        return found

    def write(self: Any, value: Any) -> None:
        put(self, value)
        view = view_of(self)
        if isinstance(view, _Part):
            view.set(name, lambda owner: put(owner, value))

    return property(read, write if name in _SETTINGS else put, value.fdel, value.__doc__)


def _keeping_parts(original: Callable[..., Any]) -> Callable[..., Any]:
    def function(index: Any) -> Any:
        view = view_of(index)
        if not isinstance(view, _Part):
            return original(index)
        found = original(view.reading())
        return found if found is None else view.part(original, found)

    return function


def _remembering_settings(original: Callable[..., Any]) -> Callable[..., Any]:
    def function(self: Any, index: Any, *args: Any) -> None:
        view = view_of(index)
        if not isinstance(view, _Part):
            original(self, index, *args)
        else:
            original(self, view.reading(), *args)
            view.set(f"{args}"[:200], lambda whole: original(self, whole, *args))

    return function
