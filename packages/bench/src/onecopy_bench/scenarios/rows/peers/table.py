"""The tables that a new peer is added to."""

from __future__ import annotations

from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.rows.peers import Peer, files, handles, heap, imports, onecopy, samplers

SHARED = (
    onecopy.SHARED,
    onecopy.NAMELESS,
    heap.LIST,
    heap.FROZEN,
    heap.NUMPY,
    heap.TORCH,
    handles.TORCH_HANDLE,
    files.LMDB,
    files.ARROW,
    files.HUGGING,
    heap.EMPTY,
)
"""What `bench share` compares; the last is subtracted from the others."""

_EVERY = (
    *SHARED,
    heap.PICKLED,
    heap.MSGSPEC,
    heap.ORJSON,
    heap.NUMPY_S,
    heap.NUMPY_STRINGS,
    heap.DICT,
    onecopy.KEYED,
    onecopy.TABLE,
    files.SQLITE,
    files.POLARS,
    files.LARGE_STRINGS,
    *imports.PEERS,
    *samplers.PEERS,
)


def peer_named(name: str) -> Peer:
    """Return the peer of that name; raises ValueError that lists the names."""
    return named(_EVERY, name)
