"""Choose the place of a new artefact: the disk of the cache folder, or the file system in memory (``/dev/shm``)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Literal, TypeAlias

from onecopy import _core

Place: TypeAlias = Literal["disk", "memory"]

_SPARE = 64 << 20  # bytes of memory that are left for other processes


def choose_place(nbytes: int, wanted: Literal["auto", "disk", "memory"] = "auto") -> tuple[Place, str]:
    """Return the place for an artefact of `nbytes` bytes, and the reason as a sentence.

    "auto" is the disk, whose pages are shared and cached in memory as well, and can be reclaimed by the kernel; it is
    memory only if the artefact does not fit on the disk. "memory" is memory if the artefact fits into the free space of
    ``/dev/shm`` (64 MB in most containers) and into the available memory of the machine and of the control group; else
    it is the disk. "disk" is always the disk.

    Raises
    ------
    OSError
        ENOSPC: the artefact does not fit, with the free bytes of each place.

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
        return order[0], _default_reason(wanted)
    if wanted == "disk" or obstacles[order[1]]:
        reasons = "; ".join(obstacles[place] for place in order[: 1 if wanted == "disk" else 2])
        raise OSError(errno.ENOSPC, f"not enough space for {nbytes} bytes: {reasons}", _folder(order[0]))
    preposition = "in" if order[1] == "memory" else "on"
    return order[1], f"{preposition} {order[1]}, because {obstacles[order[0]]}"


def _default_reason(wanted: str) -> str:
    if wanted == "auto":
        return "on disk, where the kernel can reclaim the pages when memory is short"
    return "in memory, as requested" if wanted == "memory" else "on disk, as requested"


def _folder(place: Place) -> str:
    return _core.default_folder(memory=place == "memory")[0]


def _obstacle(place: Place, nbytes: int) -> str:
    """Return the reason why an artefact does not fit into a place; empty if it fits."""
    folder = _folder(place)
    free = free_on(Path(folder))
    if free is None:
        return f"{folder} cannot be created on this system"
    if free < nbytes:
        return f"the file system of {folder} has {free} bytes free"
    if place == "memory" and (left := _core.available_memory()) is not None and left[0] < nbytes + _SPARE:
        return f"{left[1]} leaves {left[0]} bytes"
    return ""


def free_on(folder: Path) -> int | None:
    """Return the free bytes of the file system of a folder, which need not exist; None if ``/dev/shm`` is missing."""
    for at in (folder, *folder.parents):
        if at == Path("/dev"):
            return None  # the system has no /dev/shm
        try:
            facts = os.statvfs(at)
        except OSError:
            continue
        return facts.f_bavail * facts.f_frsize
    return None
