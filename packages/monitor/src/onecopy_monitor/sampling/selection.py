"""`Selection`: selects processes by PID, name, control group or mapped file, and their descendants."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy.memory import proc
from onecopy.memory.selection import all_pids, in_group, with_descendants
from onecopy_monitor.sampling.mapped_files import files_of

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
            found = [pid for pid in found if in_group(pid, self.group)]
        if self.mapping is not None:
            stat = os.stat(self.mapping)  # noqa: PTH116 - text
            key = stat.st_dev, stat.st_ino
            found = [pid for pid in found if _maps(pid, key)]
        return list(found)

    def with_descendants(self, members: Iterable[int]) -> list[int]:
        """Return `members` and, with `children`, all their descendants."""
        return with_descendants(members) if self.children else list(dict.fromkeys(members))


def words_of(pid: int) -> str:
    """Return a process's command line as text, or its name if the command line is empty, or "" if it has ended.

    >>> "python" in words_of(os.getpid()) or "pytest" in words_of(os.getpid())
    True
    """
    with suppress(OSError):
        return " ".join(proc.command_of(pid)) or proc.process_text(pid, "comm").removesuffix("\n")
    return ""


def _maps(pid: int, key: tuple[int, int]) -> bool:
    with suppress(OSError):
        return key in files_of(pid, least=0)
    return False
