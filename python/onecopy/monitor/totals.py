"""What a group of processes really holds: everything once.

Counters say what is anonymous in each process, and the page cache what is in memory of each big file: added up, files
once, that is the answer in most cases, for a fortieth of the price of PSS or less. Two things counters cannot say:
how many small libraries are shared, and how much anonymous memory is still shared after a fork. A walk through the page
tables (PSS) says both. Here what walks found is kept as a difference, per process, and added to what counters say now:

    real = sum of anonymous - what walks found to be shared by forks
         + each big file once + what else of files PSS found, per process
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from onecopy.monitor.readings import FileReading, Key, Totals, Walk, largest_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onecopy.monitor.mapped import CachedFile, MappedFile
    from onecopy.monitor.processes import Counters

__all__ = ["Difference", "Part", "Shares", "difference", "file_readings", "shares_of", "totals_of"]

_WORTH_IT = 1 << 20
"""Bytes of anonymous memory that must be shared before a process counts as forked."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of one process at a look."""

    pid: int
    name: str
    counters: Counters
    files: Mapping[Key, MappedFile]
    walk: Walk | None
    difference: Difference | None
    """Of that walk."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What a walk found beyond what counters say of a process, in bytes; negative where counters say too much."""

    forked: int
    """Anonymous memory that others of its tree have too, as far as its share of it goes: RSS less PSS."""
    file: int
    """Its share of files, less its shares of the big ones."""
    shmem: int
    seen: int
    """What of files and shared memory it had mapped in."""

    def at(self, counters: Counters) -> Difference:
        """Return it for what counters say now.

        Counters say too much of a file that was cached and not mapped in; what was mapped in since is there.
        """
        more = max(counters.file + counters.shmem - self.seen, 0)
        file, shmem = (min(part + more, 0) if part < 0 else part for part in (self.file, self.shmem))
        return replace(self, file=file, shmem=shmem)


@dataclass(frozen=True, slots=True)
class Shares:
    """What of the group's total is one process's."""

    anonymous: int
    file: int
    shmem: int

    @property
    def all(self) -> int:
        """Together."""
        return self.anonymous + self.file + self.shmem


def file_readings(
    parts: Iterable[Part], cached: Mapping[Key, tuple[MappedFile, str, CachedFile]]
) -> tuple[FileReading, ...]:
    """Return the big files of a group, each with what the total counts of it.

    Parameters
    ----------
    parts
        The processes.
    cached
        Of each file the bytes that anybody maps, its kind, and what the page cache holds of them.
    """
    sharers: defaultdict[Key, list[Part]] = defaultdict(list)
    for part in parts:
        for key in part.files:
            sharers[key].append(part)
    found = []
    for key, (file, kind, told) in cached.items():
        inside = told.cached or 0
        here = [min(inside, _resident(part, kind), part.files[key].mapped) for part in sharers[key]]
        found.append(
            FileReading(
                key=key,
                path=file.path,
                deleted=file.deleted,
                kind="shmem" if kind == "shmem" else "file",
                size=told.size,
                mapped=file.mapped,
                cached=told.cached,
                dirty=told.dirty,
                recently_evicted=told.recently_evicted,
                huge=None,
                pids=tuple(part.pid for part in sharers[key]),
                once=min(inside, sum(here)),
                rss=sum(here),
                unknown=told.unknown,
            )
        )
    return largest_first(found)


def _resident(part: Part, kind: str) -> int:
    return part.counters.shmem if kind == "shmem" else part.counters.file


def big_shares(part: Part, files: Iterable[FileReading]) -> tuple[int, int]:
    """Return the bytes of big files, and of shared memory, that are a process's share: of n that map it, 1/n."""
    mine = [one for one in files if part.pid in one.pids]
    file = sum(one.once // len(one.pids) for one in mine if one.kind == "file")
    return file, sum(one.once // len(one.pids) for one in mine if one.kind == "shmem")


def difference(walk: Walk, counters: Counters, file: int, shmem: int) -> Difference:
    """Return what a walk found beyond counters of the same moment; `file`, `shmem`: shares of the big ones."""
    seen = counters.file + counters.shmem
    if walk.pss_anonymous is None or walk.pss_file is None or walk.pss_shmem is None:  # before Linux 5.9: only a sum
        return Difference(0, walk.pss - counters.anonymous - file - shmem, 0, seen)
    forked = max(counters.anonymous - walk.pss_anonymous, 0)
    return Difference(forked if forked >= _WORTH_IT else 0, walk.pss_file - file, walk.pss_shmem - shmem, seen)


def shares_of(parts: Iterable[Part], files: tuple[FileReading, ...]) -> dict[int, Shares]:
    """Return the shares of processes; they add up to what the group holds."""
    parts = tuple(parts)
    alike: defaultdict[str, list[Part]] = defaultdict(list)
    for part in parts:
        if part.difference is not None:
            alike[part.name].append(part)
    found: dict[int, Shares] = {}
    guessed: set[str] = set()
    for part in parts:
        file, shmem = big_shares(part, files)
        now = None if part.difference is None else part.difference.at(part.counters)
        if now is None and alike[part.name]:
            now = _like(part, alike[part.name])
        elif now is None:  # its small files once, for the first of its name
            first = part.name not in guessed
            guessed.add(part.name)
            rest = max(part.counters.file - file, 0), max(part.counters.shmem - shmem, 0)
            now = Difference(0, *(rest if first else (0, 0)), 0)
        counters = part.counters
        found[part.pid] = Shares(
            anonymous=counters.anonymous - min(now.forked, counters.anonymous),
            file=min(max(file + now.file, 0), counters.file),
            shmem=min(max(shmem + now.shmem, 0), counters.shmem),
        )
    return found


def _like(part: Part, others: list[Part]) -> Difference:
    """Guess what a walk would find from what walks of the same program found: the same libraries, the same fork."""
    found = [one.difference for one in others if one.difference is not None]
    anonymous = sum(one.counters.anonymous for one in others)
    forked = sum(one.forked for one in found) * part.counters.anonymous // max(anonymous, 1)
    file, shmem = (sum(getattr(one, kind) for one in found) // len(found) for kind in ("file", "shmem"))
    return Difference(forked, file, shmem, 0)


def totals_of(
    parts: Iterable[Part], files: tuple[FileReading, ...], shares: Mapping[int, Shares], now: float, *, exact: bool
) -> Totals:
    """Add a group up."""
    parts = tuple(parts)
    anonymous, file, shmem = (
        sum(getattr(one, kind) for one in shares.values()) for kind in ("anonymous", "file", "shmem")
    )
    dirty = min(file, sum(min(one.dirty or 0, one.once) for one in files if one.kind == "file"))
    forked = sum(part.difference.forked for part in parts if part.difference is not None)
    walks = [part.walk.at for part in parts if part.walk is not None]
    walked = [part for part in parts if part.walk is not None]
    basis: Literal["files", "walks", "exact"] = "walks" if forked else "files"
    if exact and len(walked) == len(parts):
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


def _notes(parts: tuple[Part, ...], files: tuple[FileReading, ...]) -> tuple[str, ...]:
    notes = []
    missing = sum(part.walk is None and part.counters.rss > 0 for part in parts)
    if missing:
        notes.append(
            f"{missing} of {len(parts)} processes were not walked: what they share with others of their program is "
            "estimated"
        )
    unknown = [one for one in files if one.cached is None]
    if unknown:
        notes.append(f"{len(unknown)} big files count by walks only: what is cached of them is unknown")
    return tuple(notes)
