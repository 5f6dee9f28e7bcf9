"""`Member`: a process of a group, with its state between samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onecopy_monitor.sampling.totals import Part

if TYPE_CHECKING:
    from onecopy.memory.proc import Key
    from onecopy_monitor.sampling.mapped import MappedFile
    from onecopy_monitor.sampling.processes import Counters, Observed, Times
    from onecopy_monitor.sampling.totals import Found
    from onecopy_monitor.snapshots import Walk

__all__ = ["Member"]

_READING_S = 0.0004
"""Estimated CPU seconds of reading the mappings of a process for the first time."""
_STALE_S = 60.0
"""Seconds after which a page-table walk is repeated."""
_MOVED_S, _MOVED = 1.0, 8 << 20
"""Seconds after which a walk is repeated if the group has changed, if the process shares anonymous memory (only walks
detect copying), or if its resident files changed by an eighth or by this number of bytes, whichever is more."""


@dataclass
class Member:
    """A process of the group, with its state between samples."""

    observed: Observed
    counters: Counters
    times: Times
    files: dict[Key, MappedFile] = field(default_factory=dict)
    files_at: float = -1e9
    reading_s: float = _READING_S
    """CPU seconds of the last reading of its mappings."""
    files_of: tuple[int, int] = (-1, -1)
    """Resident bytes of files and of shared memory when its mappings were read."""
    times_at: float = 0.0
    walk: Walk | None = None
    found: Found | None = None
    outdated: bool = False
    """Whether the group has changed since the walk."""
    unknown: str = ""

    def part(self) -> Part:
        """Return the data from which totals are computed."""
        return Part(self.observed.pid, self.observed.name, self.counters, self.files, self.walk, self.found)

    def due(self, now: float) -> bool:
        """Return whether a page-table walk is due."""
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
