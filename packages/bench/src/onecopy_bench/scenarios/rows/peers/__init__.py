"""What holds rows: a list, a list of bytes, a database, a table, onecopy; one entry each, in the file of its family.

A `Peer` makes rows ready: it loads them from a source and packs them, or opens what a former process has left in the
folder. What it returns has a length, gives the row of an index exactly as it went in, and can be handed to a worker by
the start method in question. Packages are imported by name in the processes that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecopy_bench.scenarios.rows.data import Source


@dataclass(frozen=True, slots=True)
class Peer:
    """One way to hold rows.

    Attributes
    ----------
    name, detail
        The word for it, and what it does in a few more.
    ready
        Called with the source and a folder; returns the rows.
    needs
        Modules, imported before the clock starts; a peer whose modules are not installed is a row that says so.
    keeps
        Whether a later process finds what this one has put into the folder.
    alone
        Whether one rank of a job builds for all, though nothing is kept.
    builds, leaks, copied
        Memory and files while rows are made ready; private memory of a forked worker, and of one that is started anew,
        as multiples of the pickled rows: so that no sample exhausts the machine.
    names
        Returns what statements call by name, given the rows.
    """

    name: str
    detail: str
    ready: Callable[[Source, Path], Any]
    needs: tuple[str, ...] = ()
    keeps: bool = False
    alone: bool = False
    builds: float = 6.0
    leaks: float = 0.0
    copied: float = 0.0
    names: Callable[[Any], dict[str, Any]] = lambda rows: {"rows": rows}


def nbytes_of(rows: Any) -> int | None:
    """Return the bytes of packed rows as they know them, or None for objects."""
    found = rows.estimated_size() if hasattr(rows, "estimated_size") else getattr(rows, "nbytes", None)
    if found is None or getattr(getattr(rows, "dtype", None), "kind", "") == "T":
        return None  # numpy counts the slots of its strings, not their characters
    return int(found)
