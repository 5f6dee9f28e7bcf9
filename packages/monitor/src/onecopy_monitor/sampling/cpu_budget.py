"""`CpuBudget`: limits the CPU time of sampling to a share of one CPU, 1 % by default.

Counters are read in every sample. A page-table walk is thousands of times as expensive (22 ms per GiB of anonymous
memory, 6 ms per GiB of mapped files, during which the observed process may wait), so walks are made only when the
budget allows them. Unused budget accumulates for up to 30 seconds, or 0.3 s at 1 %. A more expensive walk, for
example of 14 GB of anonymous memory, would stall the observed process for longer, and is made only if exact numbers are
requested. If reading the counters alone exceeds the share, samples are taken less often.
"""

from __future__ import annotations

from collections import deque
from time import monotonic, thread_time

__all__ = ["CpuBudget"]

_WINDOW_S = 30.0
"""Seconds over which the budget accumulates, and over which the share is computed."""
_ANONYMOUS_S, _FILE_S = 0.022 / 2**30, 0.006 / 2**30
"""Estimated CPU seconds per walk, for each byte of anonymous memory and for each byte of files."""
_MIN_WALK_S = 0.0001


class CpuBudget:
    """A budget of CPU time that grows with the elapsed time. Only one thread may use it at a time.

    Parameters
    ----------
    share
        Share of one CPU: 0.01 is 1 %.
    at_first
        Extra CPU seconds that may be spent once.
    """

    def __init__(self, share: float, at_first: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"budget, a share of one CPU, must be above 0 and at most 1, not {share}")
        self._allowed = share
        self._start = self._last = monotonic()
        self._credit = at_first
        self._samples: deque[tuple[float, float]] = deque()
        self._spent = 0.0
        self._began = 0.0

    def begin(self) -> None:
        """Begin a sample, and add the time since the last one to the budget."""
        now = monotonic()
        saved = self._allowed * _WINDOW_S
        if self._credit < saved:
            self._credit = min(self._credit + self._allowed * (now - self._last), saved)
        self._last, self._began = now, thread_time()

    def end(self) -> float:
        """End a sample and return its CPU seconds."""
        spent = thread_time() - self._began
        self._credit -= spent
        self._samples.append((self._last, spent))
        self._spent += spent
        while self._samples[0][0] < self._last - _WINDOW_S:
            self._spent -= self._samples.popleft()[1]
        return spent

    @property
    def left(self) -> float:
        """CPU seconds that may be spent now; negative if the budget was exceeded."""
        return self._credit - (thread_time() - self._began)

    def may(self, seconds: float) -> bool:
        """Return whether this number of CPU seconds may be spent now."""
        return self.left >= seconds

    @property
    def share(self) -> float:
        """Share of one CPU that samples used during the last 30 seconds, or since the start (at least one second)."""
        since = self._samples[0][0] if self._samples and self._last - self._start > _WINDOW_S else self._start
        return max(self._spent, 0.0) / max(monotonic() - since, 1.0)

    @property
    def pause(self) -> float:
        """Seconds to wait before the next sample to stay within the share."""
        if self._credit >= 0 or not self._samples:
            return 0.0
        lately = [self._samples[at][1] for at in range(-min(5, len(self._samples)), 0)]
        return sorted(lately)[len(lately) // 2] / self._allowed


def price_of_walk(anonymous: int, file: int, last: float | None) -> float:
    """Estimate the CPU seconds of a walk from the duration of the last one and the number of resident bytes.

    >>> round(price_of_walk(1 << 30, 0, None), 3)
    0.022
    """
    return max(anonymous * _ANONYMOUS_S + file * _FILE_S, last or 0.0, _MIN_WALK_S)
