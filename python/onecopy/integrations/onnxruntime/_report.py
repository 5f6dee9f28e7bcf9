"""`Report`: how a session was made, with numbers from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.memory import proc
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN = 5  # copied weights in the printed report; all of them are in `copied`


@dataclass(frozen=True, slots=True)
class Mapped:
    """A file of the model that this process has mapped, from ``/proc/self/maps``."""

    path: str
    bytes: int
    """Mapped bytes (address space); `onecopy.residency` returns how many of them are in memory."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A weight of the file that is not used in place."""

    name: str
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """How a session was made. `str` gives a few lines of text."""

    path: str
    requested: str
    """The requested mode."""
    mode: str
    """The mode that was used: "read", "map", "direct" or "prepacked"."""
    reason: str
    """A sentence on why this mode was used."""
    seconds: float
    """Time to make the session, in seconds."""
    weights: int | None
    """Bytes of all initializers; None if the file was not parsed."""
    private: int | None
    """Growth of the anonymous memory of the process, in bytes. None if unknown: the kernel does not report it, or the
    growth is less than what was copied, because the heap had free memory."""
    mapped: tuple[Mapped, ...]
    """Files of the model that are mapped; empty if none is."""
    copied: tuple[Copied, ...] = ()
    """In mode "direct": weights that are not used in place, with reasons."""

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.mode} ({self.reason})"]
        lines.append(f"  made in {self.seconds * 1e3:.0f} ms; {self._private_words}")
        lines += [f"  {size(file.bytes)} of {file.path} are mapped" for file in self.mapped]
        if not self.mapped:
            lines.append("  no file of the model is mapped")
        if self.copied:
            lines.append(f"  {size(sum(weight.bytes for weight in self.copied))} of weights are copied:")
            lines += [f"    {weight.name}, {size(weight.bytes)}: {weight.reason}" for weight in self.copied[:_SHOWN]]
            if len(self.copied) > _SHOWN:
                lines.append(f"    and {len(self.copied) - _SHOWN} more")
        return "\n".join(lines)

    @property
    def _private_words(self) -> str:
        if self.private is not None:
            return f"the process grew by {size(self.private)} of private memory"
        return "growth of private memory unknown: the heap had free memory"


def private_of(grown: int | None, certain: int) -> int | None:
    """Return the growth of a process if it measures the memory of a session; else None.

    A heap with free memory grows by less than what is copied: a growth below `certain` bytes is no measurement.

    >>> private_of(9 << 20, 512), private_of(256, 512), private_of(0, 0), private_of(None, 0)
    (9437184, None, None, None)
    """
    return grown if grown is not None and grown > 0 and grown >= certain else None


def mapped_files(paths: Iterable[str]) -> tuple[Mapped, ...]:
    """Return the files among `paths` that this process has mapped, with the mapped bytes."""
    files = {(facts.st_dev, facts.st_ino): path for path in paths if (facts := _facts(path)) is not None}
    names = {
        os.path.realpath(path): path for path in files.values()
    }  # on overlayfs, maps and stat differ in the device
    found: dict[str, int] = {}
    for region in proc.maps(os.getpid()):
        path = files.get((region.dev, region.inode)) or (None if region.deleted else names.get(region.path))
        if path is not None:
            found[path] = found.get(path, 0) + region.end - region.start
    return tuple(Mapped(path, total) for path, total in found.items())


def anonymous_memory() -> int | None:
    """Return the resident anonymous memory of this process in bytes; None without /proc."""
    try:
        return proc.status(os.getpid()).rss_anon
    except OSError:  # no /proc
        return None


def _facts(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None
