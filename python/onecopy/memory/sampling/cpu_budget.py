"""How much looking may cost: a share of one processor, 1 % unless told otherwise.

Counters are read at every look. A walk through page tables costs thousands of times as much (22 ms per GiB of
anonymous memory, 6 ms per GiB of mapped files, and the observed process waits for it at times), so it is made when
enough time has passed to pay for it. Half a minute can be saved up, 0.3 s at 1 %: a walk that is dearer, that of
14 GB of anonymous memory, would stall the process for as long; it is not made unless somebody asks for exact numbers.
Where counters alone cost more than the share, looks are made more seldom.
"""

from __future__ import annotations

from collections import deque
from time import monotonic, thread_time

__all__ = ["CpuBudget"]

_REMEMBERED_S = 30.0
_ANONYMOUS_S, _FILE_S = 0.022 / 2**30, 0.006 / 2**30
_LEAST_S = 0.0001


class CpuBudget:
    """Pays for looks out of a share of the time that passes; for one thread at a time.

    Parameters
    ----------
    share
        Of one processor: 0.01 is 1 %.
    at_first
        Processor seconds that may be spent besides, once.
    """

    def __init__(self, share: float, at_first: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"the share of a processor must be above 0 and at most 1, not {share}")
        self._allowed = share
        self._start = self._last = monotonic()
        self._credit = at_first
        self._looks: deque[tuple[float, float]] = deque()
        self._spent = 0.0
        self._began = 0.0

    def begin(self) -> None:
        """Begin a sample; the time since the last one adds to the budget."""
        now = monotonic()
        saved = self._allowed * _REMEMBERED_S
        if self._credit < saved:
            self._credit = min(self._credit + self._allowed * (now - self._last), saved)
        self._last, self._began = now, thread_time()

    def end(self) -> float:
        """End a sample; return its CPU seconds."""
        spent = thread_time() - self._began
        self._credit -= spent
        self._looks.append((self._last, spent))
        self._spent += spent
        while self._looks[0][0] < self._last - _REMEMBERED_S:
            self._spent -= self._looks.popleft()[1]
        return spent

    @property
    def left(self) -> float:
        """Processor seconds that may be spent now; negative where too much was."""
        return self._credit - (thread_time() - self._began)

    def may(self, seconds: float) -> bool:
        """Return whether something of this price can be paid for now."""
        return self.left >= seconds

    @property
    def share(self) -> float:
        """Of one processor, what looks took: over the last half minute, or since the beginning; at least one second."""
        since = self._looks[0][0] if self._looks and self._last - self._start > _REMEMBERED_S else self._start
        return max(self._spent, 0.0) / max(monotonic() - since, 1.0)

    @property
    def pause(self) -> float:
        """Seconds to wait before the next look, so that looks cost no more than the share."""
        if self._credit >= 0 or not self._looks:
            return 0.0
        lately = [self._looks[at][1] for at in range(-min(5, len(self._looks)), 0)]
        return sorted(lately)[len(lately) // 2] / self._allowed


def price_of_walk(anonymous: int, file: int, last: float | None) -> float:
    """Estimate the processor seconds of a walk: what the last one took, or by the bytes that are mapped in.

    >>> round(price_of_walk(1 << 30, 0, None), 3)
    0.022
    """
    return max(anonymous * _ANONYMOUS_S + file * _FILE_S, last or 0.0, _LEAST_S)
