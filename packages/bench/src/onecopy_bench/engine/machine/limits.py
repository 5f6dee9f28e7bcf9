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
    return Limit(
        {1: "memory", 2: "memory"},
        {
            1: (("memory.limit_in_bytes", str(nbytes)),),
            2: (("memory.swap.max", "0"), ("memory.max", str(nbytes))),
        },
    )


def reading(device: int, bytes_per_s: int, requests_per_s: int) -> Limit:
    """Limit how fast a disk (an ``st_dev``) is read: what a network volume does to a virtual machine."""
    disk = f"{os.major(device)}:{os.minor(device)}"
    return Limit(
        {1: "blkio", 2: "io"},
        {
            1: (
                ("blkio.throttle.read_bps_device", f"{disk} {bytes_per_s}"),
                ("blkio.throttle.read_iops_device", f"{disk} {requests_per_s}"),
            ),
            2: (("io.max", f"{disk} rbps={bytes_per_s} riops={requests_per_s}"),),
        },
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
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
    with contextlib.suppress(OSError):
        folder.rmdir()


def parent_of(controller: dict[int, str], *, root: Path = Path("/")) -> tuple[int, Path]:
    """Return the version of the controller and the folder in which a group with it can be made."""
    proc = root / "proc"
    mounts = cgroup.parse_mountinfo((proc / "self/mountinfo").read_text("utf-8", "surrogateescape"))
    membership = cgroup.parse_membership((proc / "self/cgroup").read_text())
    for version, own in ((1, membership.get(controller[1])), (2, membership.get(""))):
        for mount in mounts:
            mine = mount.fs_type == "cgroup2" if version == 2 else controller[1] in mount.options
            if own is None or not mine or not mount.fs_type.startswith("cgroup"):
                continue
            if not Path(own).is_relative_to(mount.root):
                continue
            top = Path(root, mount.mount_point.lstrip("/"))
            place = top / Path(own).relative_to(mount.root)
            levels = [place] if version == 1 else [at for at in (place, *place.parents) if at.is_relative_to(top)]
            for level in levels:
                if version == 1 or _hands_down(level, controller[2]):
                    return version, level
    raise Unavailable(f"no control group here hands down the controller {controller[2]!r}")


def _hands_down(level: Path, controller: str) -> bool:
    with contextlib.suppress(OSError):
        return controller in Path(level, "cgroup.subtree_control").read_text().split()
    return False


@contextlib.contextmanager
def kills_explained(groups: Iterable[Path], nbytes: int | None) -> Iterator[None]:
    """Say of a crash in the block that the kernel killed the process for memory, where one of the groups says so."""
    known = {group: out_of_memory_kills(group) or 0 for group in groups}
    try:
        yield
    except SampleError as failure:
        if failure.state == "crashed" and any((out_of_memory_kills(g) or 0) > kills for g, kills in known.items()):
            reason = f"{OUT_OF_MEMORY} at the limit of {(nbytes or 0) / 1e6:.1f} MB"
            raise SampleError("crashed", reason) from failure
        raise


def out_of_memory_kills(folder: Path) -> int | None:
    """Return how many processes of a group the kernel has killed for memory; None where it does not count."""
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError):
            words = Path(folder, name).read_text().split()
            if "oom_kill" in words:
                return int(words[words.index("oom_kill") + 1])
    return None
