"""What was done to make a session, and the kernel's word for it."""

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
    """A file that this process had mapped when its session was there, from ``/proc/self/maps``."""

    path: str
    bytes: int
    """Of addresses; how much of that is in memory tells `onecopy.residency`."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A weight of the file that is not used in place."""

    name: str
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Latency:
    """What `run` took when the weights were prepacked on this host, one thread, in ms: medians of rounds.

    None where rounds contradicted each other: the machine was busy, and nothing was learnt.
    """

    batch: int
    prepacked: float | None
    direct: float | None
    spread: float | None = None
    """Half of the range of `cost` in most of the rounds: 0.02 is 2 % up or down."""

    @property
    def cost(self) -> float | None:
        """How much longer weights take that are not prepacked: 0.3 is 30 %; less than 0: shorter."""
        return None if self.direct is None or self.prepacked is None else self.direct / self.prepacked - 1


@dataclass(frozen=True, slots=True)
class Report:
    """How a session was made. Printed, it is a few lines."""

    path: str
    asked: str
    """The mode that was asked for."""
    mode: str
    """The rung that was taken: "read", "map", "direct" or "prepacked"."""
    reason: str
    """Why that one: a sentence."""
    seconds: float
    """Until the session was there."""
    weights: int | None
    """Bytes of the file's initialisers; None where the file was not looked into."""
    private: int | None
    """Bytes by which this process's anonymous memory grew meanwhile. None, not known: the kernel does not tell, or the
    growth says nothing, because the heap had room left (it is less than what was copied for sure, or there is none)."""
    mapped: tuple[Mapped, ...]
    """The model's files that are mapped; empty: nothing of it is."""
    copied: tuple[Copied, ...] = ()
    """Of "direct": what is not used in place, and why."""
    latency: tuple[Latency, ...] = ()
    """By batch size, where weights have been prepacked on this host."""

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.mode} ({self.reason})"]
        lines.append(f"  made in {self.seconds * 1e3:.0f} ms; {self._private_words}")
        lines += [f"  {size(file.bytes)} of {file.path} are mapped" for file in self.mapped]
        if not self.mapped:
            lines.append("  nothing of it is mapped")
        if self.copied:
            lines.append(f"  {size(sum(weight.bytes for weight in self.copied))} of weights are copied:")
            lines += [f"    {weight.name}, {size(weight.bytes)}: {weight.reason}" for weight in self.copied[:_SHOWN]]
            if len(self.copied) > _SHOWN:
                lines.append(f"    and {len(self.copied) - _SHOWN} more")
        if self.latency and costs(self.latency) not in self.reason:
            lines.append(f"  with weights that are not prepacked, {costs(self.latency)}")
        return "\n".join(lines)

    @property
    def _private_words(self) -> str:
        if self.private is not None:
            return f"the process grew by {size(self.private)} of private memory"
        return "how much private memory is not known: the heap had room"


def costs(latency: Iterable[Latency]) -> str:
    """Return what using weights that are not prepacked costs, as a sentence.

    >>> costs([Latency(1, 2.0, 1.8), Latency(64, 100.0, 131.0, 0.04)])
    'a run takes 10 % less (batch of 1), 31 % more, +- 4 (batch of 64), measured on this host'
    >>> costs([Latency(1, 2.0, 2.02), Latency(8, None, None)])
    'a run takes 1 % more (batch of 1), measured on this host; not measured for a batch of 8: the machine was busy'
    >>> costs([Latency(1, None, None)])
    'what a run takes was not measured: the machine was busy'
    """
    every = list(latency)
    words = [f"{_cost_words(one.cost, one.spread)} (batch of {one.batch})" for one in every if one.cost is not None]
    busy = [str(one.batch) for one in every if one.cost is None]
    if not words:
        return "what a run takes was not measured: the machine was busy"
    text = f"a run takes {', '.join(words)}, measured on this host"
    return text + (f"; not measured for a batch of {' and '.join(busy)}: the machine was busy" if busy else "")


def _cost_words(cost: float, spread: float | None) -> str:
    percent = round(cost * 100)
    text = f"{abs(percent)} % {'less' if percent < 0 else 'more'}"
    return text if spread is None else f"{text}, +- {spread * 100:.0f}"


def private_of(grown: int | None, certain: int) -> int | None:
    """Return by how many bytes a process grew, if that says anything of a session; None: it does not.

    A heap with room left does not grow for all that is copied: less than is copied for certain is no measurement.

    >>> private_of(9 << 20, 512), private_of(256, 512), private_of(0, 0), private_of(None, 0)
    (9437184, None, None, None)
    """
    return grown if grown is not None and grown > 0 and grown >= certain else None


def mapped_files(paths: Iterable[str]) -> tuple[Mapped, ...]:
    """Return those of some files that this process has mapped now, and how much of them."""
    files = {(facts.st_dev, facts.st_ino): path for path in paths if (facts := _facts(path)) is not None}
    names = {os.path.realpath(path): path for path in files.values()}  # overlayfs tells maps another device than stat
    found: dict[str, int] = {}
    for region in proc.maps(os.getpid()):
        path = files.get((region.dev, region.inode)) or (None if region.deleted else names.get(region.path))
        if path is not None:
            found[path] = found.get(path, 0) + region.end - region.start
    return tuple(Mapped(path, total) for path, total in found.items())


def anonymous_memory() -> int | None:
    """Return how much of this process's memory is in no file; None where the kernel does not tell."""
    try:
        return proc.status(os.getpid()).rss_anon
    except OSError:  # no /proc
        return None


def _facts(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None
