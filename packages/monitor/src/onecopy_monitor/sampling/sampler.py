"""`Sampler`: takes snapshots of the memory used by a group of processes, at a limited cost."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from onecopy import _core
from onecopy.base.text import path_text
from onecopy.files.mapping import Closeable
from onecopy.memory import proc
from onecopy.memory.cgroup import kind_of
from onecopy_monitor.sampling.cpu_budget import CpuBudget, price_of_walk
from onecopy_monitor.sampling.mapped_files import Cache, MappedFile, files_of, merged
from onecopy_monitor.sampling.processes import Member, Observed
from onecopy_monitor.sampling.selection import Selection
from onecopy_monitor.sampling.shares_and_totals import Shares, file_readings, found_by, shares_of, totals_of
from onecopy_monitor.snapshots import Cost, ProcessReading, Snapshot, Walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onecopy.memory.proc import Key
    from onecopy_monitor.sampling.mapped_files import CachedFile
    from onecopy_monitor.snapshots import FileReading

__all__ = ["Sampler"]

_CHILDREN_S, _EVERYONE_S, _TIMES_S = 0.2, 1.0, 1.0
"""Minimum seconds between searches for children and matching processes, and between readings of faults."""
_FILES_S, _SAME_FILES_S = 1.0, 5.0
"""Minimum seconds between two readings of a process's mappings, in general and if its resident files are unchanged."""
_HUGE_S = 5.0
"""Minimum seconds between two measurements of a file's huge pages."""
_SCAN_S = 0.0007 / 2**30
"""Estimated CPU seconds for each byte of address space that is scanned for huge pages."""
_SAME_S = 0.95
"""Seconds for which a snapshot is reused if no counter has changed. Then only the dirty bytes can be outdated."""
_LEAST_READING_S = 0.002
"""CPU seconds that every sample may spend on reading mappings, so that all processes are read eventually."""
_OF_ANOTHER_USER = "belongs to another user"


class Sampler(Closeable):
    """Takes snapshots of processes, using counters, the page cache, and page-table walks within a budget.

    Only one thread may use it at a time. It does not stop or change the observed processes, and needs no privileges:
    numbers that it may not read are reported as unknown.

    Parameters
    ----------
    pids
        Process ids; None: all processes on this machine, or those that match `regex`, `group` and `mapping`.
    children
        Whether to include descendants.
    regex
        A regular expression to search for in names and command lines.
    group
        A control group, to select the processes in it and in groups below.
    mapping
        Path of a file, to select the processes that map it.
    files
        Whether to query the page cache for big mapped files; False: all files are counted by page-table walks.
    huge
        Whether to measure the share of huge pages in mapped files (0.6 ms per GiB every 5 seconds, in the budget).
    exact
        Whether to walk the page tables of all processes for every sample (PSS), regardless of the budget.
    budget
        Maximum cost of sampling, as a share of one CPU.
    at_first
        Additional CPU seconds that may be spent once, to make the first snapshot more accurate.

    Raises
    ------
    ProcessLookupError
        None of `pids` exists.
    ValueError
        `budget` is out of range, or `regex` is not a regular expression.
    FileNotFoundError
        The file `mapping` does not exist.

    Examples
    --------
    >>> from onecopy_monitor import Sampler
    >>> with Sampler([os.getpid()]) as sampler:
    ...     totals = sampler.sample().totals
    >>> 0 < totals.anonymous < totals.real <= totals.sum_of_rss
    True
    """

    def __init__(
        self,
        pids: Sequence[int] | None = None,
        *,
        children: bool = False,
        regex: str | None = None,
        group: str | None = None,
        mapping: str | os.PathLike[str] | None = None,
        files: bool = True,
        huge: bool = False,
        exact: bool = False,
        budget: float = 0.01,
        at_first: float = 0.05,
    ) -> None:
        self._selection = Selection(
            None if pids is None else tuple(pids),
            _expression(regex),
            group,
            None if mapping is None else os.path.realpath(path_text(mapping)),
            children,
        )
        self._files, self._huge, self._exact = files, huge, exact
        self._huge_shares: dict[Key, tuple[float, float | None]] = {}
        self._cpu_budget = CpuBudget(budget, at_first)
        self._cache = Cache()
        self._cached_files: dict[Key, tuple[object, float, CachedFile]] = {}
        self._members: dict[int, Member] = {}
        self._ended: list[int] = []
        self._deferred = 0
        self._unseen = 0
        self._found_at = self._grown_at = -1e9
        self._start = time.monotonic()
        self._last: Snapshot | None = None
        self._last_at = -1e9
        self._join(self._selection.find())
        if pids is not None and not self._members and regex is group is mapping is None:
            raise ProcessLookupError(f"there is no process {', '.join(map(str, pids))}")

    def close(self) -> None:
        """Close all open files."""
        for member in self._members.values():
            member.observed.close()
        self._members.clear()
        self._cache.close()

    @property
    def pause(self) -> float:
        """Minimum number of seconds to wait before the next sample in order to stay within the budget."""
        return self._cpu_budget.pause

    def sample(self, *, refresh: bool = False) -> Snapshot:
        """Take a snapshot now.

        Parameters
        ----------
        refresh
            Whether to search for children and read mappings even if this was done less than a second ago.
        """
        self._cpu_budget.begin()
        now, clock = time.time(), time.monotonic()
        if refresh:
            self._found_at = self._grown_at = -1e9
            for member in self._members.values():
                member.files_at = -1e9
        self._ended, self._deferred = [], 0
        self._find(clock)
        moved = self._count(clock)
        if self._last is not None and not (moved or refresh or self._exact) and clock - self._last_at < _SAME_S:
            cost = Cost(self._cpu_budget.end(), self._cpu_budget.share, self._last.cost.deferred)
            return replace(self._last, time=now, elapsed=clock - self._start, ended=(), cost=cost)
        files = self._sample_files(clock)
        self._walk(now, files)
        parts = list(self._members.values())
        shares = shares_of(parts, files)
        totals = totals_of(parts, files, shares, now, exact=self._exact)
        if self._unseen:
            note = f"{self._unseen} processes are not counted: too many open files in this process (ulimit -n)"
            totals = replace(totals, notes=(*totals.notes, note))
        processes = tuple(_reading(self._members[pid], shares[pid]) for pid in sorted(self._members))
        spent = self._cpu_budget.end()
        cost = Cost(spent, self._cpu_budget.share, self._deferred)
        self._last = Snapshot(now, clock - self._start, processes, files, totals, tuple(self._ended), cost)
        self._last_at = clock
        return self._last

    # --- processes----------------------------------------------------------------------------------------------------

    def _find(self, clock: float) -> None:
        """Search for new processes. Processes that have ended are detected when their counters are read."""
        if self._selection.grows and clock - self._found_at >= _EVERYONE_S:
            self._found_at = clock
            self._join(self._selection.find())
        if self._selection.children and clock - self._grown_at >= _CHILDREN_S:
            self._grown_at = clock
            self._join(self._selection.with_descendants(self._members))

    def _join(self, pids: Iterable[int]) -> None:
        new = [pid for pid in pids if pid not in self._members]
        self._unseen = 0  # opening is retried each time
        for pid in new:
            try:
                observed = Observed(pid)
            except ProcessLookupError:
                continue
            except OSError:  # out of descriptors
                self._unseen += 1
                continue
            with suppress(OSError):
                self._members[pid] = Member(observed, observed.counters(), observed.times())
                continue
            observed.close()
        if new:
            self._outdate()

    def _outdate(self) -> None:
        for member in self._members.values():
            member.outdated = True

    def _count(self, clock: float) -> bool:
        """Read the counters of all processes, and return whether any have changed."""
        moved = False
        for pid, member in list(self._members.items()):
            try:
                now = member.observed.counters()
                moved |= now != member.counters or (self._files and member.files_at < 0)
                member.counters = now
                if clock - member.times_at >= _TIMES_S:
                    times, member.times_at = member.observed.times(), clock
                    moved |= times != member.times
                    member.times = times
            except OSError:
                member.observed.close()
                del self._members[pid]
                self._ended.append(pid)
        if self._ended:
            self._outdate()
        return moved or bool(self._ended)

    # --- files --------------------------------------------------------------------------------------------------------

    def _sample_files(self, clock: float) -> tuple[FileReading, ...]:
        if not self._files:
            return ()
        self._read_mappings(clock)
        everyones: dict[Key, tuple[MappedFile, list[int]]] = {}
        for pid, member in self._members.items():
            for key, file in member.files.items():
                known = everyones.get(key)
                if known is None:
                    everyones[key] = file, [pid]
                    continue
                known[1].append(pid)
                if known[0].ranges != file.ranges:
                    whole = known[0]._replace(ranges=merged((*known[0].ranges, *file.ranges)))
                    everyones[key] = whole, known[1]
        states: dict[Key, tuple[MappedFile, str, CachedFile]] = {
            key: (file, kind_of(key, file.path), self._cached(key, file, pids, clock))
            for key, (file, pids) in everyones.items()
        }
        self._cached_files = {key: found for key, found in self._cached_files.items() if key in everyones}
        self._cache.keep_only(everyones)
        self._huge_shares = {key: share for key, share in self._huge_shares.items() if key in everyones}
        found = file_readings(self._members.values(), states)
        return tuple(replace(one, huge=self._huge_of(one, clock)) for one in found) if self._huge else found

    def _cached(self, key: Key, file: MappedFile, pids: list[int], clock: float) -> CachedFile:
        """Return a file's cached bytes, reusing the last result if it is recent and the same processes map the file."""
        seen = [(self._members[pid].counters.file, self._members[pid].counters.shmem) for pid in pids]
        known = self._cached_files.get(key)
        if known is not None and known[0] == (file.ranges, seen) and clock - known[1] < _SAME_S:
            return known[2]
        found = self._cache.query(key, file, pids)
        self._cached_files[key] = (file.ranges, seen), clock, found
        return found

    def _huge_of(self, file: FileReading, clock: float) -> float | None:
        """Return a file's share of huge pages in the process that maps most of it. Measure it if due and affordable."""
        at, share = self._huge_shares.get(file.key, (-1e9, None))
        if clock - at < _HUGE_S or not self._cpu_budget.may(file.mapped * _SCAN_S):
            return share
        maps = {pid: self._members[pid].files[file.key] for pid in file.pids}
        pid = max(maps, key=lambda one: maps[one].mapped)
        share = None
        with suppress(OSError):
            found = [_core.mapped_in(pid, begin, end - begin) for begin, end in maps[pid].addresses]
            mapped = sum(one.mapped for one in found)
            share = sum(one.huge for one in found) / mapped if mapped else None
        self._huge_shares[file.key] = clock, share
        return share

    def _read_mappings(self, clock: float) -> None:
        """Read outdated mappings within half of the budget, starting with processes with the most resident files."""
        due = []
        for member in self._members.values():
            now = member.counters.file, member.counters.shmem
            if clock - member.files_at >= (_SAME_FILES_S if now == member.files_of else _FILES_S):
                due.append((sum(now), member))
        left = max(self._cpu_budget.left / 2, _LEAST_READING_S)
        for _, member in sorted(due, key=lambda pair: -pair[0]):
            if left < member.reading_s:
                self._deferred += 1
                continue
            start = time.thread_time()
            member.files_at, member.files_of = clock, (member.counters.file, member.counters.shmem)
            self._read_files(member)
            member.reading_s = time.thread_time() - start
            left -= member.reading_s

    def _read_files(self, member: Member) -> None:
        try:
            member.files, member.unknown = files_of(member.pid) if member.counters.rss else {}, ""
        except PermissionError:
            member.files, member.unknown = {}, _OF_ANOTHER_USER
        except OSError:  # the process is ending
            member.files = {}

    # --- walks --------------------------------------------------------------------------------------------------------

    def _walk(self, now: float, files: tuple[FileReading, ...]) -> None:
        waiting = [one for one in self._members.values() if one.counters.rss > 0 and (self._exact or one.due(now))]
        # One process per program first, because the others are assumed to be similar; then the oldest walks.
        seen = {one.name for one in self._members.values() if one.walk is not None}
        waiting.sort(key=lambda one: (one.name in seen, one.walk.at if one.walk else 0.0, -one.counters.rss))
        first: dict[str, Member] = {}
        for one in waiting:
            first.setdefault(one.name, one)
        waiting = [*first.values(), *(one for one in waiting if first[one.name] is not one)]
        for member in waiting:
            last = member.walk.seconds if member.walk else None
            price = price_of_walk(member.counters.anonymous, member.counters.file + member.counters.shmem, last)
            if self._exact or self._cpu_budget.may(price):
                self._walk_one(member, files)
            else:
                self._deferred += 1

    def _walk_one(self, member: Member, files: tuple[FileReading, ...]) -> None:
        start = time.thread_time()
        try:
            memory = proc.rollup(member.pid)
            member.counters = member.observed.counters()
        except PermissionError:
            member.unknown = _OF_ANOTHER_USER
            return
        except OSError:  # the process is ending, or this kernel has no rollup
            return
        member.outdated = False
        member.walk = Walk(
            at=time.time(),
            rss=memory.rss,
            pss=memory.pss,
            uss=memory.uss,
            shared=memory.rss - memory.uss,
            pss_anonymous=memory.pss_anon,
            pss_file=memory.pss_file,
            pss_shmem=memory.pss_shmem,
            seconds=time.thread_time() - start,
        )
        member.found = found_by(member.walk, member, files)


def _expression(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def _reading(member: Member, shares: Shares) -> ProcessReading:
    counters, times, observed = member.counters, member.times, member.observed
    return ProcessReading(
        pid=observed.pid,
        parent=counters.parent,
        name=observed.name,
        state=counters.state,
        started=observed.started,
        rss=counters.rss,
        anonymous=counters.anonymous,
        file=counters.file,
        shmem=counters.shmem,
        swap=counters.swap,
        page_tables=counters.page_tables,
        peak_rss=counters.peak_rss,
        minor_faults=times.minor_faults,
        major_faults=times.major_faults,
        cpu_s=times.cpu_s,
        share=shares.all,
        files=tuple(member.files),
        walk=member.walk,
        unknown=member.unknown,
    )
