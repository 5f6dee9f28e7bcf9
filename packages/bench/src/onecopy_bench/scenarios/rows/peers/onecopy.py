"""onecopy itself: rows shared through a store, and through a nameless memory file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onecopy.workers import READERS
from onecopy_bench.files.configurations import module
from onecopy_bench.scenarios.rows.data import Source
from onecopy_bench.scenarios.rows.peers import Peer

MODULES = ("onecopy", "onecopy.store", *READERS)
"""With a preloading fork server: what `onecopy.workers.preload` adds to it, and the store."""
KEY = "the rows"


def by_key(source: Source, folder: Path) -> Any:
    """Build the rows once in the folder, or attach to those that are there."""
    return module("onecopy").share(source.rows, key=KEY, store=folder / "store")


def nameless(source: Source, _: Path) -> Any:
    """Build the rows in a nameless file that this process hands to its workers."""
    return module("onecopy").share(source.rows)


def names(rows: Any) -> dict[str, Any]:
    """Return what statements call by name."""
    return {"rows": rows, "lazy": rows.lazy}


SHARED = Peer("onecopy", "share(..., key)", by_key, MODULES, keeps=True, builds=2.0, names=names)
NAMELESS = Peer("onecopy, no key", "share(...)", nameless, MODULES, builds=2.0, names=names)


def dict_by_key(source: Source, folder: Path) -> Any:
    """Build a dict of the rows once in the folder, or attach to it."""
    return module("onecopy").share(lambda: dict(source.rows()), key=KEY, store=folder / "store")


KEYED = Peer("onecopy dict", "share(dict, key)", dict_by_key, (*MODULES, "onecopy.records"), keeps=True)
TABLE = Peer(
    "onecopy table", "share(..., key)", by_key, (*MODULES, "onecopy.records"), keeps=True, builds=2.0, names=names
)
