"""Changes between samples: faults per second, CPU use, and the recent shares of each process."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onecopy_monitor.snapshots import ProcessReading, Snapshot

__all__ = ["History", "Rates", "trend"]

_BARS = "▁▂▃▄▅▆▇█"
_KEPT = 8
"""Number of samples in a trend."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The activity of a process between two samples, per second."""

    minor_faults: float
    """Page faults per second that did not wait for a disk."""
    major_faults: float
    """Page faults per second that waited for a disk."""
    cpu: float
    """CPU seconds per second: 1.0 is one fully used CPU."""


class History:
    """The most recent samples of each process in a group. Only one thread may use it at a time."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, float], tuple[float, ProcessReading]] = {}
        self._rates: dict[tuple[int, float], Rates] = {}
        self._shares: dict[tuple[int, float], deque[int]] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Add a sample, and drop the history of processes that are not in it."""
        alive = {one.key for one in snapshot.processes}
        for kept in (self._before, self._rates, self._shares):
            for key in kept.keys() - alive:
                del kept[key]
        for one in snapshot.processes:
            before = self._before.get(one.key)
            if before is not None and snapshot.time > before[0]:
                self._rates[one.key] = _rates(before[1], one, snapshot.time - before[0])
            self._before[one.key] = snapshot.time, one
            self._shares.setdefault(one.key, deque(maxlen=_KEPT)).append(one.share)

    def rates(self, process: ProcessReading) -> Rates | None:
        """Return the rates of a process since the previous sample, or None after its first sample."""
        return self._rates.get(process.key)

    def shares(self, process: ProcessReading) -> tuple[int, ...]:
        """Return a process's shares, in bytes, in the last samples, oldest first."""
        return tuple(self._shares.get(process.key, ()))


def _rates(before: ProcessReading, now: ProcessReading, seconds: float) -> Rates:
    return Rates(
        minor_faults=max(now.minor_faults - before.minor_faults, 0) / seconds,
        major_faults=max(now.major_faults - before.major_faults, 0) / seconds,
        cpu=max(now.cpu_s - before.cpu_s, 0.0) / seconds,
    )


def trend(values: tuple[int, ...]) -> str:
    """Return values as a line of small bars, scaled to the largest value.

    >>> trend((0, 10, 20, 40))
    '▁▃▅█'
    """
    top = max(values, default=0)
    return "".join(_BARS[0 if top == 0 else min(value * len(_BARS) // top, len(_BARS) - 1)] for value in values)
