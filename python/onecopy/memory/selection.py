"""Find processes by name, parent or control group."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from onecopy.memory import cgroup, proc
from onecopy.memory.proc import children_of, command_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def all_pids() -> list[int]:
    """Return the ids of all processes on this machine or in this container.

    >>> os.getpid() in all_pids()
    True
    """
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def named(name: str) -> list[int]:
    """Return the processes that run the executable, script or module called `name`.

    A process that has replaced its command line with a title, such as "gunicorn: worker [app]", is found by the title's
    first word. The calling process is never returned.

    >>> named("no such program")
    []
    """
    return [pid for pid in all_pids() if pid != os.getpid() and name in _names(pid)]


def _names(pid: int) -> set[str]:
    words = command_of(pid)
    if not words:
        return set()
    option, script = proc.script_of(words)
    title = words[0].partition(" ")[0].rstrip(":") if len(words) == 1 else words[0]
    paths = [title, *([script] if option != "-c" else ())]
    names = {os.path.basename(path) for path in paths} | {script if option == "-m" else ""}  # noqa: PTH119 - text
    with suppress(OSError):
        names.add(proc.process_text(pid, "comm").removesuffix("\n"))
    return (names | {name.removesuffix(".py") for name in names}) - {""}


def in_group(pid: int, group: str) -> bool:
    """Return whether a process is in a control group such as "/a/b", or in one below it.

    >>> in_group(os.getpid(), "/no such group")
    False
    """
    with suppress(OSError, ValueError):
        paths = cgroup.parse_membership(proc.process_text(pid, "cgroup")).values()
        wanted = "/" + group.strip("/")
        return any(path == wanted or path.startswith(wanted.rstrip("/") + "/") for path in paths)
    return False


def with_descendants(members: Iterable[int]) -> list[int]:
    """Return processes and all their descendants.

    >>> os.getpid() in with_descendants([os.getppid()])
    True
    """
    found = dict.fromkeys(members)
    below = children_of if kernel_lists_children() else _families().__getitem__
    waiting = list(found)
    while waiting:
        new = [child for child in below(waiting.pop()) if child not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)


def _families() -> dict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for pid in all_pids():
        with suppress(OSError):
            found[proc.stat(pid).ppid].append(pid)
    return found


@cache
def kernel_lists_children() -> bool:
    """Return whether `children_of` works with this kernel, which requires CONFIG_PROC_CHILDREN.

    >>> kernel_lists_children() in (True, False)
    True
    """
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110
