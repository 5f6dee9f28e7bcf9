"""A control group with a limit on memory, of version 2 or 1, whichever this machine lets us make."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.waiting import until

ROOT = Path("/sys/fs/cgroup")


class NoMemoryGroupError(OSError):
    """This machine lets us make none; the message says why."""


def place() -> tuple[Path, str]:
    """Find where a group can be made, and the name of the file that limits it."""
    controllers = ROOT / "cgroup.controllers"
    if controllers.exists():
        # Below our own group none may have both processes and controllers, so the new one stands beside all.
        if "memory" not in (ROOT / "cgroup.subtree_control").read_text().split():
            raise NoMemoryGroupError("the memory controller is not handed down by the root control group")
        return ROOT, "memory.max"
    if (ROOT / "memory/memory.limit_in_bytes").exists():
        return ROOT / "memory", "memory.limit_in_bytes"
    raise NoMemoryGroupError(f"no memory controller under {ROOT}")


def remove(group: Path) -> None:
    """Remove a group when the last of its processes has left it: what was killed takes its time."""

    def removed() -> bool:
        with contextlib.suppress(OSError):
            group.rmdir()
        return not group.exists()

    until(removed, f"{group} to be empty")


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[Callable[[], None]]:
    """Make a group of `limit` bytes; give a function that moves the calling process into it; remove the group."""
    with limited(limit) as group:
        yield lambda: enter(group)


@contextlib.contextmanager
def memory_groups(limit: int, *names: str) -> Iterator[dict[str, Callable[[], None]]]:
    """Make groups of these names under one of `limit` bytes; give functions that move the calling process into them."""
    with limited(limit) as group, contextlib.ExitStack() as made:
        if (group / "cgroup.subtree_control").exists():
            (group / "cgroup.subtree_control").write_text("+memory")
        for name in names:
            (group / name).mkdir()
            made.callback(remove, group / name)
        yield {name: lambda name=name: enter(group / name) for name in names}


@contextlib.contextmanager
def limited(limit: int) -> Iterator[Path]:
    root, limit_file = place()
    group = root / f"onecopy-tests-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit_file).write_text(str(limit))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise NoMemoryGroupError(f"{group}: {error.strerror}") from error
    try:
        yield group
    finally:
        remove(group)


def enter(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))
