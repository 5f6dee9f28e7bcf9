"""Computes the deduplicated memory total of a group of processes.

The counters of each process show its anonymous memory, and the page cache shows the resident bytes of each big file. In
most cases, their sum, with files counted once, is the total; for large files, this costs a fiftieth of computing PSS.
The counters do not show how many bytes of small libraries are shared, nor how much anonymous memory is still shared
after a fork. A page-table walk (PSS) shows both. For each process, the result of a walk is kept together with the
counters at that time, and combined with the current counters:

    real = sum of anonymous - anonymous memory shared by forks, from walks
         + each big file once + other files, from walks, per process
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onecopy.base.text import counted
from onecopy_monitor.snapshots import FileReading, Totals, largest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onecopy.memory.proc import Key
    from onecopy_monitor.sampling.mapped_files import CachedFile, MappedFile
    from onecopy_monitor.sampling.processes import Member
    from onecopy_monitor.snapshots import Walk

__all__ = ["Found", "Shares", "file_readings", "found_by", "shares_of", "totals_of"]

_KINDS = ("file", "shmem")
_WORTH_IT = 1 << 20
"""A process counts as forked if it shares at least this many bytes of anonymous memory."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The file pages or the shared memory of a process at one moment, in bytes."""

    rss: int
    """Resident bytes according to the process's counters."""
    big: int
    """The process's shares of big files: 1/n of a file that n processes map."""
    known: int
    """The part of `rss` that can be in big files."""

    @property
    def small(self) -> int:
        """The part of `rss` that is not in a known big file."""
        return max(self.rss - self.known, 0)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a page-table walk, with the process's counters at that moment."""

    forked: int
    """Anonymous memory shared with other processes of its tree: RSS minus PSS, in bytes."""
    file: int
    """PSS of file pages."""
    shmem: int
    """PSS of shared memory."""
    then: dict[str, Kind]
    """Counters at the time of the walk, for "file" and "shmem"."""

    def share(self, kind: str, now: Kind) -> int:
        """Return the process's current share in bytes.

        Small files are assumed to be shared as they were during the walk. If the walk's PSS is less than the shares of
        big files, the process had not mapped all cached pages; in that case, the PSS is scaled with the RSS.
        """
        pss, then = {"file": self.file, "shmem": self.shmem}[kind], self.then[kind]
        if pss >= then.big:
            return now.big + pss - then.big
        return min(now.big, pss * now.rss // max(then.rss, 1))


@dataclass(frozen=True, slots=True)
class Shares:
    """One process's share of the group total, in bytes."""

    anonymous: int
    file: int
    shmem: int

    @property
    def all(self) -> int:
        """The sum of anonymous, file and shared memory."""
        return self.anonymous + self.file + self.shmem


def file_readings(
    parts: Iterable[Member], cached: Mapping[Key, tuple[MappedFile, str, CachedFile]]
) -> tuple[FileReading, ...]:
    """Return a group's big files, each with its bytes in the total.

    Parameters
    ----------
    parts
        The processes.
    cached
        For each file, the ranges that any process maps, its kind, and how many of their bytes are cached.
    """
    sharers: defaultdict[Key, list[Member]] = defaultdict(list)
    for part in parts:
        for key in part.files:
            sharers[key].append(part)
    found = []
    for key, (file, kind, state) in cached.items():
        inside = state.cached or 0
        here = [min(inside, _resident(part, kind), part.files[key].mapped) for part in sharers[key]]
        found.append(
            FileReading(
                key=key,
                path=file.path,
                deleted=file.deleted,
                kind="shmem" if kind == "shmem" else "file",
                size=state.size,
                mapped=file.mapped,
                cached=state.cached,
                dirty=state.dirty,
                recently_evicted=state.recently_evicted,
                huge=None,
                pids=tuple(part.pid for part in sharers[key]),
                once=min(inside, sum(here)),
                rss=sum(here),
                unknown=state.unknown,
            )
        )
    return largest_first(found)


def _resident(part: Member, kind: str) -> int:
    return part.counters.shmem if kind == "shmem" else part.counters.file


def kind_now(part: Member, kind: str, files: Iterable[FileReading]) -> Kind:
    """Return a process's files ("file") or shared memory ("shmem"), as far as they are known without a walk."""
    rss = getattr(part.counters, kind)
    mine = [one for one in files if one.kind == kind and part.pid in one.pids]
    known = sum(min(one.once, part.files[one.key].mapped) for one in mine)
    return Kind(rss, sum(one.once // len(one.pids) for one in mine), min(known, rss))


def found_by(walk: Walk, part: Member, files: tuple[FileReading, ...]) -> Found:
    """Combine the result of a walk with the counters from the same moment."""
    then = {kind: kind_now(part, kind, files) for kind in _KINDS}
    counters = part.counters
    if walk.pss_anonymous is None or walk.pss_file is None or walk.pss_shmem is None:  # before Linux 5.9: only a sum
        return Found(0, max(walk.pss - counters.anonymous - then["shmem"].big, 0), then["shmem"].big, then)
    forked = max(counters.anonymous - walk.pss_anonymous, 0)
    return Found(forked if forked >= _WORTH_IT else 0, walk.pss_file, walk.pss_shmem, then)


def shares_of(parts: Iterable[Member], files: tuple[FileReading, ...]) -> dict[int, Shares]:
    """Return the shares of the processes, which add up to the group total."""
    programs: defaultdict[str, list[Member]] = defaultdict(list)
    for part in parts:
        programs[part.name].append(part)
    found: dict[int, Shares] = {}
    for program in programs.values():
        forked = _forked(program)
        file, shmem = (_shares_of_kind(program, kind, files) for kind in _KINDS)
        for part in program:
            anonymous = part.counters.anonymous
            found[part.pid] = Shares(anonymous - min(forked(part), anonymous), file[part.pid], shmem[part.pid])
    return found


def _forked(program: list[Member]) -> Callable[[Member], int]:
    """Return a function that returns a process's bytes shared since a fork (without a walk: its program's average)."""
    walked = [part for part in program if part.found is not None]
    shared = sum(part.found.forked for part in walked if part.found is not None)
    whole = max(sum(part.counters.anonymous for part in walked), 1)
    return lambda part: shared * part.counters.anonymous // whole if part.found is None else part.found.forked


def _shares_of_kind(program: list[Member], kind: str, files: tuple[FileReading, ...]) -> dict[int, int]:
    """Return the shares of processes that run the same program, and so use the same libraries and files."""
    now = {part.pid: kind_now(part, kind, files) for part in program}
    walked = {part.pid: part.found for part in program if part.found is not None}
    small = [found.share(kind, now[pid]) - now[pid].big for pid, found in walked.items()]
    usual = sum(small) // len(small) if small else None
    shares, new = {}, {}
    for number, (pid, known) in enumerate(now.items()):
        if pid in walked:
            shares[pid] = walked[pid].share(kind, known)
            new[pid] = max(known.small - walked[pid].then[kind].small, 0)
        elif usual is not None:
            shares[pid] = known.big + usual
        else:  # no process was walked: small files count once, for the first process
            shares[pid] = known.big + (known.small if number == 0 else 0)
    # Memory mapped since the walk in files that are not known yet: assumed to be the same for all workers.
    mapping = sum(more > 0 for more in new.values())
    return {
        pid: min(max(share, 0) + (new.get(pid, 0) // mapping if mapping else 0), now[pid].rss)
        for pid, share in shares.items()
    }


def totals_of(
    parts: Iterable[Member], files: tuple[FileReading, ...], shares: Mapping[int, Shares], now: float, *, exact: bool
) -> Totals:
    """Compute a group's totals."""
    parts = tuple(parts)
    anonymous, file, shmem = (
        sum(getattr(one, kind) for one in shares.values()) for kind in ("anonymous", "file", "shmem")
    )
    dirty = min(file, sum(min(one.dirty or 0, one.once) for one in files if one.kind == "file"))
    forked = sum(part.found.forked for part in parts if part.found is not None)
    walks = [part.walk.at for part in parts if part.walk is not None]
    basis: Literal["files", "walks", "exact"] = "walks" if forked else "files"
    if exact and all(part.walk is not None or part.counters.rss == 0 for part in parts):
        basis = "exact"
    return Totals(
        real=anonymous + file + shmem,
        anonymous=anonymous,
        file_clean=file - dirty,
        file_dirty=dirty,
        shmem=shmem,
        page_tables=sum(part.counters.page_tables or 0 for part in parts),
        swap=sum(part.counters.swap or 0 for part in parts),
        sum_of_rss=sum(part.counters.rss for part in parts),
        basis=basis,
        walked_s=max(now - min(walks), 0.0) if walks else None,
        notes=_notes(parts, files),
    )


def _notes(parts: tuple[Member, ...], files: tuple[FileReading, ...]) -> tuple[str, ...]:
    notes = []
    missing = sum(part.walk is None and part.counters.rss > 0 for part in parts)
    if missing:
        processes = counted(len(parts), "process", "processes")
        notes.append(f"the page tables of {missing} of {processes} were not walked: their shares are estimated")
    unknown = [one for one in files if one.cached is None]
    if unknown:
        notes.append(f"{len(unknown)} big files are counted by page-table walks only: their cached bytes are unknown")
    return tuple(notes)
