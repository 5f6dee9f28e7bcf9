"""What changed between looks: faults a second, processor time, and how the share of a process went."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onecopy.memory.snapshots import ProcessReading, Snapshot

__all__ = ["History", "Rates", "trend"]

_BARS = "▁▂▃▄▅▆▇█"
_KEPT = 32


@dataclass(frozen=True, slots=True)
class Rates:
    """Of a process, per second since the look before; None at the first."""

    minor_faults: float
    major_faults: float
    cpu: float
    """Of one processor: 1.0 is one that does nothing else."""
    anonymous: float
    """Bytes that it grew by."""


class History:
    """Remembers the last looks at each process of a group; for one thread at a time."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, float], tuple[float, ProcessReading]] = {}
        self._rates: dict[tuple[int, float], Rates] = {}
        self._shares: dict[tuple[int, float], deque[int]] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Take a look in; of processes that are not in it nothing is kept."""
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
        """Return what a process did since the look before."""
        return self._rates.get(process.key)

    def shares(self, process: ProcessReading) -> tuple[int, ...]:
        """Return the shares of a process at the last looks, the latest last."""
        return tuple(self._shares.get(process.key, ()))


def _rates(before: ProcessReading, now: ProcessReading, seconds: float) -> Rates:
    return Rates(
        minor_faults=max(now.minor_faults - before.minor_faults, 0) / seconds,
        major_faults=max(now.major_faults - before.major_faults, 0) / seconds,
        cpu=max(now.cpu_s - before.cpu_s, 0.0) / seconds,
        anonymous=(now.anonymous - before.anonymous) / seconds,
    )


def trend(values: tuple[int, ...], width: int = 8) -> str:
    """Draw values as small bars, from nothing to the largest of them.

    >>> trend((0, 10, 20, 40))
    '▁▃▅█'
    """
    values = values[-width:]
    top = max(values, default=0)
    return "".join(_BARS[0 if top == 0 else min(value * len(_BARS) // top, len(_BARS) - 1)] for value in values)
