"""Which place a new artefact fits into: the disk of the cache folder, or the machine's file system in memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Literal, TypeAlias

from onecopy import _core

Place: TypeAlias = Literal["disk", "memory"]

_SPARE = 64 << 20  # bytes of memory that stay for others


def choose_place(nbytes: int, wanted: Literal["auto", "disk", "memory"] = "auto") -> tuple[Place, str]:
    """Return the place for an artefact of `nbytes`, and why: a sentence.

    "auto" is the disk: its pages are shared and in memory just the same, and the kernel can take them back; memory only
    where the disk has no room and memory has. "memory" is kept to where the artefact fits: into what ``/dev/shm`` has
    left (containers give it 64 MB), and into what the machine and the limit of our control group leave; else it is the
    disk.

    Raises
    ------
    OSError
        ENOSPC: there is room in neither.

    Examples
    --------
    >>> import onecopy as oc
    >>> from onecopy import store
    >>> store.choose_place(1000)[0]
    'disk'
    """
    if wanted not in ("auto", "disk", "memory"):
        raise ValueError(f"place must be 'auto', 'disk' or 'memory', not {wanted!r}")
    if nbytes < 0:
        raise ValueError(f"nbytes must not be negative, but is {nbytes}")
    first, second = _obstacle("memory", nbytes), _obstacle("disk", nbytes)
    obstacles: dict[Place, str] = {"memory": first, "disk": second}
    order: tuple[Place, Place] = ("memory", "disk") if wanted == "memory" else ("disk", "memory")
    if not obstacles[order[0]]:
        return order[0], _usual(wanted)
    if wanted == "disk" or obstacles[order[1]]:
        told = "; ".join(obstacles[place] for place in order[: 1 if wanted == "disk" else 2])
        raise OSError(errno.ENOSPC, f"there is no room for {nbytes} bytes: {told}", _folder(order[0]))
    preposition = "in" if order[1] == "memory" else "on"
    return order[1], f"{preposition} {order[1]}, because {obstacles[order[0]]}"


def _usual(wanted: str) -> str:
    if wanted == "auto":
        return "on disk, where the kernel can take the pages back when memory is short"
    return "in memory, as asked for" if wanted == "memory" else "on disk, as asked for"


def _folder(place: Place) -> str:
    return _core.default_folder(place == "memory")[0]


def _obstacle(place: Place, nbytes: int) -> str:
    """Return why an artefact does not fit; empty if it does."""
    folder = _folder(place)
    free = free_on(Path(folder))
    if free is None:
        return f"{folder} cannot be made here"
    if free < nbytes:
        return f"the file system of {folder} has {free} bytes left"
    if place == "memory" and (left := _core.available_memory()) is not None and left[0] < nbytes + _SPARE:
        return f"{left[1]} leaves {left[0]} bytes"
    return ""


def free_on(folder: Path) -> int | None:
    """Return the bytes that are free on the file system of a folder, or of the nearest one above it."""
    for at in (folder, *folder.parents):
        if at == Path("/dev"):
            return None  # there is no /dev/shm
        try:
            facts = os.statvfs(at)
        except OSError:
            continue
        return facts.f_bavail * facts.f_frsize
    return None
