"""Reports calls to `hnswlib.Index.load_index`, whose data cannot be shared, and gives advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecopy.run.call_log import note_read
from onecopy.run.hooks import call_before

if TYPE_CHECKING:
    from types import ModuleType

LOAD = "hnswlib.Index.load_index"
REASON = "hnswlib cannot map an index: load it before the workers fork, or save the index with faiss or usearch"


def apply(module: ModuleType) -> None:
    """Report each call to `load_index`."""
    for name in ("Index", "BFIndex"):
        call_before(getattr(module, name), "load_index", _note)


def _note(_: Any, path_to_index: Any = None, *__: Any, **___: Any) -> None:
    note_read(LOAD, path_to_index, REASON)
