"""What a process holds over time, by the cheapest questions: two small files of /proc, some dozen times a second."""

from __future__ import annotations

import time

from onecopy.memory import proc
from onecopy_bench.engine.machine.kernel import memory_of_machine

EVERY_S = 0.02
"""Between two snapshots: at 15 us each, less than a thousandth of a CPU."""

SMALL = 16 << 20
"""Bytes above the first snapshot that no allocator can be blamed for."""


class Sampler:
    """Samples a process and the machine; the first snapshot is the base that all numbers are above.

    Attributes
    ----------
    points
        Lines of (seconds, anonymous, file, dirty, used, cached, committed): bytes above the first snapshot. The first
        two are the pages of the process; of the whole machine what is dirty, all that is not free, its page cache, and
        the private memory that programs have been promised.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start = self._last = time.monotonic()
        self._base = self._now()
        self.points: list[tuple[float, ...]] = []

    def _now(self) -> tuple[int, ...]:
        status, machine = proc.status(self._pid), memory_of_machine()
        files = (status.rss_file or 0) + (status.rss_shmem or 0)
        used = machine["MemTotal"] - machine["MemFree"]
        dirty = machine["Dirty"] + machine["Writeback"]
        return status.rss_anon or 0, files, dirty, used, machine["Cached"], machine.get("Committed_AS", 0)

    def poll(self) -> None:
        """Look, if it is time."""
        now = time.monotonic()
        if now - self._last >= EVERY_S:
            self._last = now
            self.look()

    def look(self) -> tuple[float, ...]:
        """Look now."""
        point = tuple(float(value - base) for value, base in zip(self._now(), self._base, strict=True))
        self.points.append((round(time.monotonic() - self._start, 3), *point))
        return self.points[-1]

    def peaks(self) -> dict[str, float]:
        """Return the highest of each kind so far."""
        names = ("peak_anonymous", "peak_file", "peak_dirty", "peak_used", "peak_cached", "peak_committed")
        return {name: max((point[at] for point in self.points), default=0.0) for at, name in enumerate(names, 1)}

    def until_back(self, share: float, seconds: float) -> float | None:
        """Return the seconds until the process holds no more than a share of its peak, or is small; None: never."""
        start = time.monotonic()
        peak = max((point[1] + point[2] for point in self.points), default=0.0)
        while time.monotonic() - start < seconds:
            point = self.look()
            if point[1] + point[2] <= max(share * peak, SMALL):
                return time.monotonic() - start
            time.sleep(EVERY_S)
        return None
