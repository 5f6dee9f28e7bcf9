"""Who is looked at: numbers of processes, their descendants, names, control groups, files."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy.memory import cgroup, proc
from onecopy.memory.sampling.mapped import files_of
from onecopy.memory.sampling.processes import children_of, everyone, kernel_lists_children

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

__all__ = ["Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """A group of processes: those that fit all that is asked for, and their descendants. Nothing asked for: all.

    Parameters
    ----------
    pids
        Their numbers.
    match
        A regular expression, searched for in the command line, or in the name where there is none; who asks is never
        meant: the expression is in its own command line.
    group
        A control group, "/system.slice/x.service": processes in it or below.
    mapping
        A file that they map; by what it is, not by its name.
    children
        Descendants too; whoever was one stays in the group when its parent ends.
    """

    pids: tuple[int, ...] | None = None
    match: re.Pattern[str] | None = None
    group: str | None = None
    mapping: str | None = None
    children: bool = False

    @property
    def grows(self) -> bool:
        """Whether processes may join that descend from nobody in it."""
        return self.pids is None

    def find(self) -> list[int]:
        """Return the numbers of who fits now, without descendants."""
        found: Iterable[int] = everyone() if self.pids is None else self.pids
        if self.match is not None:
            found = [pid for pid in found if pid != os.getpid() and self.match.search(words_of(pid))]
        if self.group is not None:
            found = [pid for pid in found if _is_in(pid, self.group)]
        if self.mapping is not None:
            stat = os.stat(self.mapping)  # noqa: PTH116 - text
            key = stat.st_dev, stat.st_ino
            found = [pid for pid in found if _maps(pid, key)]
        return list(found)

    def with_descendants(self, members: Iterable[int]) -> list[int]:
        """Return members with their children, and theirs."""
        found = dict.fromkeys(members)
        if not self.children:
            return list(found)
        below = children_of if kernel_lists_children() else _families().__getitem__
        waiting = list(found)
        while waiting:
            new = [child for child in below(waiting.pop()) if child not in found]
            found |= dict.fromkeys(new)
            waiting += new
        return list(found)


def words_of(pid: int) -> str:
    """Return the command line of a process with spaces between its words; its name where it has none, or has ended.

    >>> "python" in words_of(os.getpid()) or "pytest" in words_of(os.getpid())
    True
    """
    with suppress(OSError):
        words = proc.process_text(pid, "cmdline").rstrip("\0").replace("\0", " ")
        return words or proc.process_text(pid, "comm").removesuffix("\n")
    return ""


def _is_in(pid: int, group: str) -> bool:
    with suppress(OSError, ValueError):
        paths = cgroup.parse_membership(proc.process_text(pid, "cgroup")).values()
        wanted = "/" + group.strip("/")
        return any(path == wanted or path.startswith(wanted.rstrip("/") + "/") for path in paths)
    return False


def _maps(pid: int, key: tuple[int, int]) -> bool:
    with suppress(OSError):
        return key in files_of(pid, least=0)
    return False


def _families() -> dict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for pid in everyone():
        with suppress(OSError):
            found[proc.stat(pid).ppid].append(pid)
    return found
