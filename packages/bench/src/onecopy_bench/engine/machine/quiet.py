"""Waiting for an idle machine: a time that was taken beside other work says nothing.

One job on the machine, and more than 93 % of its CPU time idle before each sample, is the rule. A run has a
budget of seconds for all its waiting; when that is spent the samples are taken anyway and the record says how
busy the machine was. Idle includes waiting for a disk; time stolen by a hypervisor does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ENOUGH = 0.93
"""Share of idle CPU time from which on the machine counts as idle."""

_WINDOW_S = 0.2


def parse_cpu_times(text: str) -> tuple[int, int]:
    r"""Return (idle, all) clock ticks since boot from the text of /proc/stat.

    Examples
    --------
    >>> parse_cpu_times("cpu  10 0 5 80 5 0 0 0 7 0\ncpu0 ...")
    (85, 100)
    """
    # user nice system idle iowait irq softirq steal; guest time is part of user time
    ticks = [int(word) for word in text.split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def doubt(samples: Iterable[Any]) -> str | None:
    """Return the sentence about samples that were not known to be taken on an idle machine, if there are any."""
    taken = [sample for sample in samples if sample.started]
    busy = sum(sample.idle_share is None or sample.idle_share <= ENOUGH for sample in taken)
    words = f"{busy} of {len(taken)} samples were not known to be taken on an idle machine: read the times as rough."
    return words if busy else None


class Patience:
    """Waits for an idle machine, at most `seconds` in all calls together."""

    def __init__(self, seconds: float) -> None:
        self._windows = round(seconds / _WINDOW_S)

    def wait(self) -> float | None:
        """Wait until the machine is idle or the budget is spent; return the idle share that was seen last.

        None means that the budget was spent before this call, so nothing was watched.
        """
        share = None
        while self._windows > 0:
            share = _idle_share(_WINDOW_S)
            if share > ENOUGH:
                break
            self._windows -= 1
        return share


def _idle_share(seconds: float) -> float:
    idle, total = parse_cpu_times(Path("/proc/stat").read_text())
    time.sleep(seconds)
    idle_after, total_after = parse_cpu_times(Path("/proc/stat").read_text())
    return (idle_after - idle) / max(total_after - total, 1)
