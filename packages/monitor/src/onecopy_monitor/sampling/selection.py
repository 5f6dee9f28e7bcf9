"""`Selection`: selects processes by PID, name, control group or mapped file, and their descendants."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from onecopy.memory import cgroup, proc
from onecopy.memory.proc import children_of
from onecopy_monitor.sampling.mapped import files_of

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

__all__ = ["Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Processes that match all given conditions (or all processes, without conditions), and their descendants.

    Parameters
    ----------
    pids
        Process ids.
    match
        A regular expression to search for in the command line, or in the name of a process without a command line. The
        calling process never matches, because its own command line may contain the expression.
    group
        A control group such as "/system.slice/x.service", to select processes in it and in groups below.
    mapping
        A file that the processes map, compared by device and inode.
    children
        Whether to include descendants, which stay in the group when their parent ends.
    """

    pids: tuple[int, ...] | None = None
    match: re.Pattern[str] | None = None
    group: str | None = None
    mapping: str | None = None
    children: bool = False

    @property
    def grows(self) -> bool:
        """Whether processes that are not descendants of a member can join the group."""
        return self.pids is None

    def find(self) -> list[int]:
        """Return the ids of the processes that currently match, without descendants."""
        found: Iterable[int] = all_pids() if self.pids is None else self.pids
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
        """Return `members` and, with `children`, all their descendants."""
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
    """Return a process's command line as text, or its name if the command line is empty, or "" if it has ended.

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
    for pid in all_pids():
        with suppress(OSError):
            found[proc.stat(pid).ppid].append(pid)
    return found


@cache
def kernel_lists_children() -> bool:
    """Return whether `children_of` works here, which requires CONFIG_PROC_CHILDREN.

    >>> kernel_lists_children() in (True, False)
    True
    """
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110


def all_pids() -> list[int]:
    """Return the ids of all processes on this machine or container.

    >>> os.getpid() in all_pids()
    True
    """
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
