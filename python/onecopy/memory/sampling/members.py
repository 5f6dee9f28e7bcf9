"""A process of a group, with what is remembered of it from look to look."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onecopy.memory.sampling.totals import Part

if TYPE_CHECKING:
    from onecopy.memory.sampling.mapped import MappedFile
    from onecopy.memory.sampling.processes import Counters, Observed, Times
    from onecopy.memory.sampling.totals import Found
    from onecopy.memory.snapshots import Key, Walk

__all__ = ["Member"]

_READING_S = 0.0004
"""Processor seconds of reading the mappings of a process, until it is known better."""
_STALE_S = 60.0
"""When a walk is made again, if there is nothing special about a process."""
_MOVED_S, _MOVED = 1.0, 8 << 20
"""The same of a tree that shares anonymous memory, as only walks see it being copied; of a group that has changed; and
of a process that has mapped in, or let go, an eighth of its files, or so many bytes."""


@dataclass
class Member:
    """A process of the group, with what is remembered of it from look to look."""

    observed: Observed
    counters: Counters
    times: Times
    files: dict[Key, MappedFile] = field(default_factory=dict)
    files_at: float = -1e9
    reading_s: float = _READING_S
    """What it took to read its mappings."""
    files_of: tuple[int, int] = (-1, -1)
    """What of files and shared memory was mapped in when mappings were read."""
    times_at: float = 0.0
    walk: Walk | None = None
    found: Found | None = None
    outdated: bool = False
    """Whether the group has changed since the walk."""
    unknown: str = ""

    def part(self) -> Part:
        """Return what totals are made of."""
        return Part(self.observed.pid, self.observed.name, self.counters, self.files, self.walk, self.found)

    def due(self, now: float) -> bool:
        """Whether a walk would tell something new."""
        if self.unknown or self.counters.rss == 0:
            return False
        if self.walk is None:
            return True
        moved = self.found is not None and (
            self.found.forked > 0
            or any(
                abs(getattr(self.counters, kind) - then.rss) > max(then.rss // 8, _MOVED)
                for kind, then in self.found.then.items()
            )
        )
        age = now - self.walk.at
        return age > _STALE_S or (age > _MOVED_S and (moved or self.outdated))
