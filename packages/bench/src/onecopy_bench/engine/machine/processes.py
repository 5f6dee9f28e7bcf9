"""The processes of each copy of a program, and what they hold together.

A copy is a process and everything that comes of it: its descendants, whatever shares its session, and whatever
carries its mark in the environment, so that a daemon that forked twice into a session of its own is still found.
What belongs to a copy once belongs to it until it ends. Found by looking through /proc; reading is all it does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from onecopy.memory import proc

MARK = "ONECOPY_BENCH_COPY"
"""The variable in the environment of each copy; its value names the run and the copy."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What the processes of one copy hold together, in bytes, and their faults; None where the kernel is silent.

    `pss` splits into `anonymous_pss`, `file` and `shmem`: each page divided by the number of its mappers, so copies
    add up. `private` is what only one process maps now: a lone mapper's clean file pages are in it. `anonymous` is
    memory without a file. Faults and `read_bytes` (from a disk) are those of the processes that live.
    """

    processes: int = 0
    pss: int = 0
    anonymous: int = 0
    private: int = 0
    swap: int = 0
    page_tables: int = 0
    minor_faults: int = 0
    major_faults: int = 0
    anonymous_pss: int | None = 0
    file: int | None = 0
    shmem: int | None = 0
    read_bytes: int | None = 0


def total(parts: Iterable[Totals]) -> Totals:
    """Return the sum; what is unknown of one part is unknown of the sum."""
    every = list(parts)
    sums: dict[str, Any] = {}
    for field in fields(Totals):
        values = [getattr(part, field.name) for part in every]
        sums[field.name] = None if None in values else sum(values)
    return Totals(**sums)


def totals_of(pids: Iterable[int]) -> Totals:
    """Return what some processes hold together; one that ends meanwhile counts nothing."""
    parts = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            parts.append(_one(pid))
    return total(parts)


def _one(pid: int) -> Totals:
    memory, status, stat = proc.rollup(pid), proc.status(pid), proc.stat(pid)
    read = None
    with contextlib.suppress(PermissionError, FileNotFoundError):
        read = proc.io(pid).read_bytes
    return Totals(
        processes=1,
        pss=memory.pss,
        anonymous=memory.anonymous,
        private=memory.uss,
        swap=memory.swap if memory.swap_pss is None else memory.swap_pss,
        page_tables=status.vm_pte or 0,
        minor_faults=stat.minflt,
        major_faults=stat.majflt,
        anonymous_pss=memory.pss_anon,
        file=memory.pss_file,
        shmem=memory.pss_shmem,
        read_bytes=read,
    )


class _Process(NamedTuple):
    """A process that cannot be mistaken for a later one with its number."""

    pid: int
    starttime: float


class Trees:
    """Who belongs to which copy.

    Parameters
    ----------
    roots
        The first process of each copy, which leads a session of its own.
    marks
        The value of `MARK` in the environment of each copy.
    """

    def __init__(self, roots: Sequence[int], marks: Sequence[str]) -> None:
        self._roots = {pid: index for index, pid in enumerate(roots)}
        self._marks = {f"{MARK}={mark}".encode(): index for index, mark in enumerate(marks)}
        self._owner: dict[_Process, int | None] = {}

    def members(self) -> list[list[int]]:
        """Look through /proc and return the living processes of each copy; zombies are not living."""
        stats = {}
        for pid in _pids():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                stats[pid] = proc.stat(pid)
        now: dict[_Process, int | None] = {}
        for pid, stat in stats.items():
            process = _Process(pid, stat.starttime)
            found = self._owner.get(process)
            now[process] = self._find(pid, stats) if found is None else found
        self._owner = now
        members: list[list[int]] = [[] for _ in self._roots]
        for process, index in now.items():
            if index is not None and stats[process.pid].state not in "ZX":
                members[index].append(process.pid)
        return members

    def _find(self, pid: int, stats: dict[int, proc.Stat]) -> int | None:
        """Return the copy of a process that was in none when it was last seen."""
        ancestor: int | None = pid
        while ancestor is not None and ancestor not in self._roots:
            ancestor = stats[ancestor].ppid if ancestor in stats else None
        if ancestor is not None:
            return self._roots[ancestor]
        with contextlib.suppress(OSError):
            session = os.getsid(pid)
            if session in self._roots:
                return self._roots[session]
            variables = set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
            return next((index for mark, index in self._marks.items() if mark in variables), None)
        return None


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]
