"""The processes of each copy of a program, and what they hold together.

A copy is a process and everything that comes of it: its descendants, whatever shares its session, and whatever
carries its mark in the environment, so that a daemon that forked twice into a session of its own is still found.
What belongs to a copy once belongs to it until it ends. Found by looking through /proc; reading is all it does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onecopy.memory import proc

MARK = "ONECOPY_BENCH_COPY"
"""The variable in the environment of each copy; its value names the run and the copy."""


def totals_of(pids: Iterable[int]) -> dict[str, Any]:
    """Return what some processes hold together, in bytes, and their faults; None where the kernel is silent.

    `pss` splits into `anonymous_pss`, `file` and `shmem`: each page divided by the number of its mappers, so copies
    add up. `private` is what only one process maps now: a lone mapper's clean file pages are in it. `anonymous` is
    memory without a file. Faults and `read_bytes` (from a disk) are those of the processes that live.
    """
    names = ("processes", "pss", "anonymous", "private", "swap", "page_tables", "minor_faults", "major_faults")
    sums: dict[str, Any] = dict.fromkeys((*names, "anonymous_pss", "file", "shmem", "read_bytes"), 0)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended, and counts nothing
            one = _one(pid)
            sums = {name: None if None in (each, one[name]) else each + one[name] for name, each in sums.items()}
    return sums


def _one(pid: int) -> dict[str, int | None]:
    memory, status, stat = proc.rollup(pid), proc.status(pid), proc.stat(pid)
    read = None
    with contextlib.suppress(PermissionError, FileNotFoundError):
        read = proc.io(pid).read_bytes
    return {
        "processes": 1,
        "pss": memory.pss,
        "anonymous": memory.anonymous,
        "private": memory.uss,
        "swap": memory.swap if memory.swap_pss is None else memory.swap_pss,
        "page_tables": status.vm_pte or 0,
        "minor_faults": stat.minflt,
        "major_faults": stat.majflt,
        "anonymous_pss": memory.pss_anon,
        "file": memory.pss_file,
        "shmem": memory.pss_shmem,
        "read_bytes": read,
    }


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
        self._owner: dict[tuple[int, float], int | None] = {}  # a later process with its number starts later

    def members(self) -> list[list[int]]:
        """Look through /proc and return the living processes of each copy; zombies are not living."""
        stats = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal():
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                    stats[int(entry.name)] = proc.stat(int(entry.name))
        now = {}
        members: list[list[int]] = [[] for _ in self._roots]
        for pid, stat in stats.items():
            index = self._owner.get((pid, stat.starttime))
            now[pid, stat.starttime] = index = self._find(pid, stats) if index is None else index
            if index is not None and stat.state not in "ZX":
                members[index].append(pid)
        self._owner = now
        return members

    def _find(self, pid: int, stats: dict[int, proc.Stat]) -> int | None:
        """Return the copy of a process that was in none when it was last seen."""
        ancestor: int | None = pid
        while ancestor is not None and ancestor not in self._roots:
            ancestor = stats[ancestor].ppid if ancestor in stats else None
        if ancestor is not None:
            return self._roots[ancestor]
        with contextlib.suppress(OSError):
            if (session := os.getsid(pid)) in self._roots:
                return self._roots[session]
            variables = set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
            return next((index for mark, index in self._marks.items() if mark in variables), None)
        return None
