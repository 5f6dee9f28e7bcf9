"""What holds rows: a list, a list of bytes, a database, a table, onecopy; one entry each, in the file of its family.

A `Peer` makes rows ready: it loads them from a source and packs them, or opens what a former process has left in the
folder. What it returns has a length, gives the row of an index exactly as it went in, and can be handed to a worker by
the start method in question. Packages are imported by name in the processes that use them.
"""

from __future__ import annotations

import importlib.util
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
    modules
        Imported before the clock starts; a peer whose modules are not installed is a row that says so. Of onecopy,
        "module:name" is there where the module has that name.
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
    modules: tuple[str, ...] = ()
    keeps: bool = False
    alone: bool = False
    builds: float = 6.0
    leaks: float = 0.0
    copied: float = 0.0
    names: Callable[[Any], dict[str, Any]] = lambda rows: {"rows": rows}

    def imports(self) -> tuple[str, ...]:
        """Return the names of its modules."""
        return tuple(dict.fromkeys(name.partition(":")[0] for name in self.modules))

    def missing(self) -> list[str]:
        """Return the packages it needs that are not installed; imports none of them."""
        return missing(self.modules)


def missing(modules: tuple[str, ...]) -> list[str]:
    """Return what is not installed of some modules: packages, whose modules are not looked for, and our own modules."""
    ours = [name for name in modules if name.startswith("onecopy")]
    packages = dict.fromkeys(name.partition(".")[0] for name in modules if name not in ours)
    lost = [package for package in packages if importlib.util.find_spec(package) is None]
    return lost + [name.replace(":", ".") for name in ours if not _is_ours(*name.partition(":")[::2])]


def _is_ours(module: str, name: str) -> bool:
    """Return whether a module of onecopy is there, and has a name."""
    there = importlib.util.find_spec(module) is not None
    return there and (not name or hasattr(importlib.import_module(module), name))


def nbytes_of(rows: Any) -> int | None:
    """Return the bytes of packed rows as they know them, or None for objects."""
    found = rows.estimated_size() if hasattr(rows, "estimated_size") else getattr(rows, "nbytes", None)
    if found is None or getattr(getattr(rows, "dtype", None), "kind", "") == "T":
        return None  # numpy counts the slots of its strings, not their characters
    return int(found)
