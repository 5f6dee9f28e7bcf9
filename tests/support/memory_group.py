"""Control groups that limit memory or a disk, of version 2 or 1, whichever this machine lets us make."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
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
    """Make a group with a limit; give its folder, and remove the group."""
    root, limit_file = place()
    with group_with(root, limit_file, str(limit)) as group:
        yield group


@contextlib.contextmanager
def group_with(root: Path, file: str, text: str, name: str = "") -> Iterator[Path]:
    """Make a group below a folder, with a text in one of its files; give its folder, and remove the group."""
    group = root / f"onecopy-tests-{os.getpid()}{name}"
    try:
        group.mkdir()
        (group / file).write_text(text)
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise NoMemoryGroupError(f"{group}: {error.strerror}") from error
    try:
        yield group
    finally:
        remove(group)


@contextlib.contextmanager
def slow_writing(device: int, bytes_per_s: int) -> Iterator[Callable[[], None]]:
    """Make a group that writes this fast to a disk; give a function that moves the calling process into it."""
    disk = f"{os.major(device)}:{os.minor(device)}"
    root, file, text = ROOT, "io.max", f"{disk} wbps={bytes_per_s}"
    if (ROOT / "blkio").exists():
        root, file, text = ROOT / "blkio", "blkio.throttle.write_bps_device", f"{disk} {bytes_per_s}"
    with group_with(root, file, text, "-disk") as group:
        try:
            yield lambda: enter(group)
        finally:
            enter(root)  # a group with a process in it cannot be removed


def enter(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


@contextlib.contextmanager
def group_or_skip(limit: int) -> Iterator[Path]:
    """Make a group of `limit` bytes, and remove it at the end; skip the test where this machine lets us make none."""
    with contextlib.ExitStack() as made:
        try:
            group = made.enter_context(limited(limit))
        except NoMemoryGroupError as error:
            pytest.skip(str(error))
        yield group
