"""Control groups that a benchmark makes around its children: a memory limit, a slower disk.

A group is a folder below our own group of cgroup v1, or below the nearest group of v2 that hands the controller down.
Children join it by themselves; it is removed at the end, when they are gone. Where that is not possible (no root, no
controller, a container that mounts its groups read-only) `Unavailable` says why, and the benchmark goes on without.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onecopy.memory import cgroup
from onecopy_bench.engine.crew import SampleError

OUT_OF_MEMORY = "killed by the kernel: out of memory"
"""How the reason of a sample begins that went over the limit of its group."""


class Unavailable(Exception):
    """Such a place cannot be made on this machine, or by this user; the message says why."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A controller by its name in v1 and v2, and the lines to write into files of its groups."""

    controller: dict[int, str]
    lines: dict[int, tuple[tuple[str, str], ...]]


def memory(nbytes: int) -> Limit:
    """Limit what processes and the page cache they fill may take; nothing is swapped out."""
    v1, v2 = (("memory.limit_in_bytes", str(nbytes)),), (("memory.swap.max", "0"), ("memory.max", str(nbytes)))
    return Limit({1: "memory", 2: "memory"}, {1: v1, 2: v2})


def reading(device: int, bytes_per_s: int, requests_per_s: int) -> Limit:
    """Limit how fast a disk (an ``st_dev``) is read: what a network volume does to a virtual machine."""
    disk = f"{os.major(device)}:{os.minor(device)}"
    v1 = {"bps": bytes_per_s, "iops": requests_per_s}
    lines = tuple((f"blkio.throttle.read_{name}_device", f"{disk} {number}") for name, number in v1.items())
    return Limit(
        {1: "blkio", 2: "io"}, {1: lines, 2: (("io.max", f"{disk} rbps={bytes_per_s} riops={requests_per_s}"),)}
    )


@contextlib.contextmanager
def group(limit: Limit) -> Iterator[Path]:
    """Make a group with a limit and remove it at the end; yields its folder, raises Unavailable."""
    version, above = parent_of(limit.controller)
    folder = above / f"onecopy-bench-{os.getpid()}-{limit.controller[version]}"
    try:
        with undisturbed():
            _make(folder, limit.lines[version])
        yield folder
    finally:
        with undisturbed():
            _remove(folder)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back to the end of the block: what is half made cannot be found again."""
    held: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, _: held.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def _make(folder: Path, lines: tuple[tuple[str, str], ...]) -> None:
    try:
        folder.mkdir()
    except OSError as error:
        raise Unavailable(f"no control group below {folder.parent}: {error.strerror}") from error
    for name, text in lines:
        if name == "memory.swap.max" and not Path(folder, name).exists():
            continue  # a kernel without swap accounting
        try:
            Path(folder, name).write_text(text)
        except OSError as error:
            raise Unavailable(f"{name} does not take {text!r}: {error.strerror}") from error


def _remove(folder: Path) -> None:
    for _ in range(50):  # a child that was just reaped may still be on its way out of the group
        with contextlib.suppress(OSError):
            folder.rmdir()
        if not folder.exists():
            return
        time.sleep(0.05)


def parent_of(controller: dict[int, str], *, root: Path = Path("/")) -> tuple[int, Path]:
    """Return the version of the controller and the folder in which a group with it can be made."""
    proc = root / "proc"
    mounts = cgroup.parse_mountinfo((proc / "self/mountinfo").read_text("utf-8", "surrogateescape"))
    membership = cgroup.parse_membership((proc / "self/cgroup").read_text())
    for version, kind, own in ((1, "cgroup", membership.get(controller[1])), (2, "cgroup2", membership.get(""))):
        for mount in mounts:
            mine = mount.fs_type == kind and (version == 2 or controller[1] in mount.options)
            if own is None or not mine or not Path(own).is_relative_to(mount.root):
                continue
            top = Path(root, mount.mount_point.lstrip("/"))
            place = top / Path(own).relative_to(mount.root)
            if version == 1:
                return 1, place
            for level in (place, *place.parents):
                handed = level / "cgroup.subtree_control"
                if level.is_relative_to(top) and handed.exists() and controller[2] in handed.read_text().split():
                    return 2, level
    raise Unavailable(f"no control group here hands down the controller {controller[2]!r}")


@contextlib.contextmanager
def kills_explained(groups: Iterable[Path], nbytes: int | None) -> Iterator[None]:
    """Say of a crash in the block that the kernel killed the process for memory, where one of the groups says so."""
    known = {group: out_of_memory_kills(group) for group in groups}
    try:
        yield
    except SampleError as failure:
        if failure.state == "crashed" and any(out_of_memory_kills(g) > kills for g, kills in known.items()):
            reason = f"{OUT_OF_MEMORY} at the limit of {(nbytes or 0) / 1e6:.1f} MB"
            raise SampleError("crashed", reason) from failure
        raise


def out_of_memory_kills(folder: Path) -> int:
    """Return how many processes of a group the kernel has killed for memory; 0 where it does not count."""
    return cgroup.kills(folder) or 0
