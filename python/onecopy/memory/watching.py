"""Memory of a block of code: a thread looks while it runs, and at its end the peaks are known."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from onecopy.arguments import byte_count
from onecopy.files import Closeable
from onecopy.memory.samples import sample_of
from onecopy.memory.sampling.sampler import Sampler
from onecopy.memory.series import Series
from onecopy.memory.snapshots import WatchCost
from onecopy.text import plain, size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from onecopy.memory.series import Height, Holder, Peaks
    from onecopy.memory.snapshots import Snapshot

__all__ = ["Watch", "watch"]

_FASTEST = 1_000.0
"""Looks a second."""
_WORDS = {
    "anonymous": "anonymous memory",
    "file_dirty": "mapped files not yet written back",
    "shmem": "shared memory",
    "page_tables": "page tables",
    "real": "memory, everything once,",
}


class Watch(Closeable):
    """Looks at processes from a thread while a block runs; made by `watch`, where the parameters are explained.

    A forked child has no such thread: there a watch shows what was seen until the fork, and does nothing.
    """

    def __init__(
        self,
        pids: Sequence[int] | None = None,
        *,
        children: bool = True,
        files: bool = True,
        hz: float = 10.0,
        exact: bool = False,
        budget: float = 0.01,
    ) -> None:
        if not 0 < hz <= _FASTEST:
            raise ValueError(f"hz must be above 0 and at most {_FASTEST:.0f}, not {hz}")
        self._sampler = Sampler(
            [os.getpid()] if pids is None else pids, children=children, files=files, exact=exact, budget=budget
        )
        self._period = 1 / hz
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._series = Series()
        self._last: Snapshot | None = None
        self._cpu_s = 0.0
        self._failed, self._reason = 0, ""
        self._closed = False

    def __enter__(self) -> Self:
        if self._thread is not None or self._closed:
            raise RuntimeError("a watch begins once: make another one")
        self._look()
        if self._last is None:
            self._sampler.close()
            raise OSError(f"cannot look: {self._reason}")
        self._thread = threading.Thread(target=self._run, name="onecopy watch", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Sample once more, and end."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._look(anew=True)
        self._sampler.close()

    @property
    def series(self) -> Series:
        """All that was seen, over time. It grows while the watch runs: then two columns may be one look apart."""
        return self._series

    @property
    def last(self) -> Snapshot:
        """The last look. ValueError: there was none."""
        if self._last is None:
            raise ValueError("nobody has looked yet")
        return self._last

    @property
    def peak(self) -> Peaks:
        """The highest of each kind of memory so far, who held it, and how much it was above the first look."""
        with self._unchanging():
            return self._series.peak

    @property
    def cost(self) -> WatchCost:
        """What watching has taken."""
        return WatchCost(self._series.looks, self._series.seconds, self._cpu_s, self._failed, self._reason)

    def table(self) -> str:
        """Return the peaks as text: of the group, of each process, and of the big files."""
        from onecopy.memory.table import watch_table

        with self._unchanging():
            return watch_table(self._series, self.cost)

    def plot(self, path: str | os.PathLike[str], *, title: str = "", theme: str = "auto") -> None:
        """Draw what was seen; the name tells the format: .svg, .html or .png. See `onecopy.memory.pictures.draw`."""
        from onecopy.memory.pictures import draw

        with self._unchanging():
            draw([(title, self._series)], path, theme=theme)

    def assert_peak(
        self,
        *,
        anonymous: str | int | None = None,
        file_dirty: str | int | None = None,
        shmem: str | int | None = None,
        page_tables: str | int | None = None,
        real: str | int | None = None,
        grown: bool = True,
    ) -> None:
        """Raise AssertionError with the facts where a peak is above its limit.

        Parameters
        ----------
        anonymous, file_dirty, shmem, page_tables, real
            Limits: bytes, or words such as "200 MiB". There is none on RSS, as it grows when a file is mapped.
        grown
            Compare what came since the first look; False: all there was, the interpreter too.

        Raises
        ------
        AssertionError
            Names limit, peak, moment, processes and files, for each limit that was passed.
        ValueError
            A limit that is no size; no limit at all.
        """
        limits = {
            "anonymous": anonymous,
            "file_dirty": file_dirty,
            "shmem": shmem,
            "page_tables": page_tables,
            "real": real,
        }
        asked = {name: _bytes_of(name, limit) for name, limit in limits.items() if limit is not None}
        if not asked:
            raise ValueError(f"assert_peak needs a limit on one of {', '.join(limits)}")
        peak = self.peak
        complaints = []
        for name, limit in asked.items():
            height: Height = getattr(peak, name)
            if (height.grown if grown else height.bytes) > limit:
                complaints.append(_complaint(name, height, limit, grown=grown))
        if complaints:
            raise AssertionError("\n".join(complaints))

    def _unchanging(self) -> threading.Lock:
        """Return what keeps the thread from adding a look; at a fork, it may have been held for ever."""
        return self._lock if os.getpid() == self._owner else threading.Lock()

    def _run(self) -> None:
        while not self._stop.wait(max(self._period, self._sampler.pause)):
            self._look()

    def _look(self, *, anew: bool = False) -> None:
        start = time.thread_time()
        with self._lock:
            try:
                self._last = self._sampler.sample(anew=anew)
                self._series.add(sample_of(self._last))
            except Exception as error:  # what is watched goes on: the report says that a look failed
                self._failed += 1
                self._reason = self._reason or f"{type(error).__name__}: {error}"
            self._cpu_s += time.thread_time() - start


def watch(
    pids: Sequence[int] | None = None,
    *,
    children: bool = True,
    files: bool = True,
    hz: float = 10.0,
    exact: bool = False,
    budget: float = 0.01,
) -> Watch:
    """Watch the memory of processes while a ``with`` block runs.

    A thread looks ten times a second, and less often where that would cost more than `budget`. A peak between two
    looks is not seen, but for RSS (`Peaks.high_water`, `Peaks.unseen`). Memory that was freed, and that the allocator
    still holds, can be used again without growing. What is kept is bounded, see `Series`: 10 MB at most, however long.

    Parameters
    ----------
    pids
        Numbers of processes; None: this one.
    children
        Their descendants too.
    files
        Sample at big mapped files; without, all that is of files counts by walks through page tables.
    hz
        Looks a second, at most 1000.
    exact
        Walk through the page tables of all processes at every look, whatever it costs: PSS.
    budget
        What looking may cost, as a share of one processor.

    Raises
    ------
    ProcessLookupError
        None of `pids` is there.
    ValueError
        `hz` or `budget` out of range.

    Examples
    --------
    >>> import onecopy as oc
    >>> with oc.watch(hz=50) as watched:
    ...     block = bytearray(50_000_000)
    >>> 45_000_000 < watched.peak.anonymous.grown < 100_000_000
    True
    >>> watched.assert_peak(anonymous="200 MiB")
    """
    return Watch(pids, children=children, files=files, hz=hz, exact=exact, budget=budget)


def _bytes_of(name: str, limit: str | int) -> int:
    try:
        return byte_count(name, limit)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _complaint(name: str, height: Height, limit: int, *, grown: bool) -> str:
    found = f"grew by {size(height.grown)}, to {size(height.bytes)}" if grown else f"reached {size(height.bytes)}"
    words = [f"{_WORDS[name]} {found}, and {size(limit)} are allowed: the peak was {height.at:.2f} s after the start"]
    words += [f"most of it in {_holders(height.processes)}"] if height.processes else []
    words += [f"files: {_holders(height.files)}"] if height.files else []
    return "; ".join(words)


def _holders(holders: tuple[Holder, ...]) -> str:
    return ", ".join(f"{plain(one.name)}{f' ({one.pid})' if one.pid else ''} {size(one.bytes)}" for one in holders)
