"""`watch`: sample the memory of processes in a thread while a block of code runs, and report its peaks."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from onecopy.base.text import byte_count, escape, size
from onecopy.files.mapping import Closeable
from onecopy_monitor.samples import sample_of
from onecopy_monitor.sampling.sampler import Sampler
from onecopy_monitor.series import Series
from onecopy_monitor.snapshots import WatchCost

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from onecopy_monitor.series import Height, Holder, Peaks
    from onecopy_monitor.snapshots import Snapshot

__all__ = ["Watch", "watch"]

_MIN_INTERVAL_S = 0.001
"""Minimum seconds between two samples."""
_WORDS = {
    "anonymous": "anonymous memory",
    "file_dirty": "mapped files not yet written back",
    "shmem": "shared memory",
    "page_tables": "page tables",
    "real": "the deduplicated total",
}


class Watch(Closeable):
    """Samples the memory of processes in a thread while a block runs; created by `watch`.

    The thread does not exist in a forked child, so the child's watch contains only the samples before the fork.
    """

    def __init__(
        self,
        pids: Sequence[int] | None = None,
        *,
        children: bool = True,
        files: bool = True,
        interval: float = 0.1,
        exact: bool = False,
        budget: float = 0.01,
    ) -> None:
        if not _MIN_INTERVAL_S <= interval < float("inf"):
            raise ValueError(f"interval must be at least {_MIN_INTERVAL_S} s, not {interval}")
        self._sampler = Sampler(
            [os.getpid()] if pids is None else pids, children=children, files=files, exact=exact, budget=budget
        )
        self._interval = interval
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
            raise RuntimeError("a watch can be entered only once: create another one")
        self._sample()
        if self._last is None:
            self._sampler.close()
            raise OSError(f"cannot sample the processes: {self._reason}")
        self._thread = threading.Thread(target=self._run, name="onecopy watch", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Take a last sample and stop the thread; further calls do nothing."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._sample(refresh=True)
        self._sampler.close()

    @property
    def series(self) -> Series:
        """All samples over time. While the watch runs, the lengths of two columns may differ by one."""
        return self._series

    @property
    def last(self) -> Snapshot:
        """The last snapshot. Raise ValueError if there is none."""
        if self._last is None:
            raise ValueError("no sample has been taken yet")
        return self._last

    @property
    def peak(self) -> Peaks:
        """The maximum of each kind of memory so far, with its holders and its growth since the first sample."""
        with self._unchanging():
            return self._series.peak

    @property
    def cost(self) -> WatchCost:
        """The cost of watching so far."""
        return WatchCost(self._series.samples, self._series.seconds, self._cpu_s, self._failed, self._reason)

    def table(self) -> str:
        """Return the peaks of the group, of each process and of the big files, as text."""
        from onecopy_monitor.text_tables import watch_table

        with self._unchanging():
            return watch_table(self._series, self.cost)

    def plot(self, path: str | os.PathLike[str], *, title: str = "", theme: str = "auto") -> None:
        """Draw the series in a file with the suffix .svg, .html or .png; see `onecopy_monitor.pictures.draw`."""
        from onecopy_monitor.pictures import draw

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
        """Raise AssertionError if a peak is above its limit.

        Parameters
        ----------
        anonymous, file_dirty, shmem, page_tables, real
            Limits in bytes, or as text such as "200 MiB". RSS cannot be limited, because mapping a file increases it.
        grown
            True: compare the growth since the first sample. False: compare the total, including the interpreter.

        Raises
        ------
        AssertionError
            A limit was exceeded. For each such limit, the message states the peak, time, processes and files.
        ValueError
            A limit is not a size, or no limit was given.
        """
        limits = {
            "anonymous": anonymous,
            "file_dirty": file_dirty,
            "shmem": shmem,
            "page_tables": page_tables,
            "real": real,
        }
        given = {name: _bytes_of(name, limit) for name, limit in limits.items() if limit is not None}
        if not given:
            raise ValueError(f"assert_peak requires at least one of the limits {', '.join(limits)}")
        peak = self.peak
        exceeded = []
        for name, limit in given.items():
            height: Height = getattr(peak, name)
            if (height.grown if grown else height.bytes) > limit:
                exceeded.append(_excess(name, height, limit, grown=grown))
        if exceeded:
            raise AssertionError("\n".join(exceeded))

    def _unchanging(self) -> threading.Lock:
        """Return the lock shared with the sampling thread; in a forked child, where it may stay locked, a new lock."""
        return self._lock if os.getpid() == self._owner else threading.Lock()

    def _run(self) -> None:
        while not self._stop.wait(max(self._interval, self._sampler.pause)):
            self._sample()

    def _sample(self, *, refresh: bool = False) -> None:
        start = time.thread_time()
        with self._lock:
            try:
                self._last = self._sampler.sample(refresh=refresh)
                self._series.add(sample_of(self._last))
            except Exception as error:  # reported in `cost`: an error must not stop the watched block
                self._failed += 1
                self._reason = self._reason or f"{type(error).__name__}: {error}"
            self._cpu_s += time.thread_time() - start


def watch(
    pids: Sequence[int] | None = None,
    *,
    children: bool = True,
    files: bool = True,
    interval: float = 0.1,
    exact: bool = False,
    budget: float = 0.01,
) -> Watch:
    """Watch the memory of processes while a ``with`` block runs.

    A thread samples every `interval` seconds, or less often if that would exceed `budget`. A peak between two samples
    is missed, except a peak of RSS (`Peaks.high_water`, `Peaks.unseen`). Memory that was freed but kept by the
    allocator can be reused without growth. The samples take at most 10 MB, however long the block runs; see `Series`.

    Parameters
    ----------
    pids
        Ids of the processes; None: this process.
    children
        Whether to include their descendants.
    files
        Whether to query the page cache for big mapped files; False: all files are counted by page-table walks.
    interval
        Seconds between two samples, at least 0.001.
    exact
        Whether to walk the page tables of all processes in every sample (PSS), regardless of the budget.
    budget
        Maximum cost of sampling, as a share of one CPU.

    Raises
    ------
    ProcessLookupError
        None of `pids` exists.
    ValueError
        `interval` or `budget` is out of range.

    Examples
    --------
    >>> import onecopy_monitor
    >>> with onecopy_monitor.watch(interval=0.02) as watched:
    ...     block = bytearray(50_000_000)
    >>> 45_000_000 < watched.peak.anonymous.grown < 100_000_000
    True
    >>> watched.assert_peak(anonymous="200 MiB")
    """
    return Watch(pids, children=children, files=files, interval=interval, exact=exact, budget=budget)


def _bytes_of(name: str, limit: str | int) -> int:
    try:
        return byte_count(name, limit)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _excess(name: str, height: Height, limit: int, *, grown: bool) -> str:
    found = f"grew by {size(height.grown)}, to {size(height.bytes)}" if grown else f"reached {size(height.bytes)}"
    words = [f"{_WORDS[name]} {found}, but the limit is {size(limit)}: the peak was {height.at:.2f} s after the start"]
    words += [f"most of it in {_holders(height.processes)}"] if height.processes else []
    words += [f"files: {_holders(height.files)}"] if height.files else []
    return "; ".join(words)


def _holders(holders: tuple[Holder, ...]) -> str:
    return ", ".join(f"{escape(one.name)}{f' ({one.pid})' if one.pid else ''} {size(one.bytes)}" for one in holders)
