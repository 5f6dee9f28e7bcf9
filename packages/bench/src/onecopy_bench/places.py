"""Places to measure in: a control group with a limit, a disk of our own, a file system with a high latency.

A *group* is a folder below our own group of cgroup v1, or below the nearest group of v2 that hands the controller down.
Workers join it by themselves; it is removed at the end, when they are gone. A *loop disk* is an ext4 file system on a
loop device with a given read-ahead. Its image is unlinked as soon as it is mounted and the device detaches itself with
the last user, so a benchmark that is killed leaves one mount and no file. Reads go past the page cache of the disk
below (``direct-io``); what the loop device costs is in every number, so rows of one place compare with each other and
not with those of another. Where a place cannot be made, `Unavailable` says why, and the benchmark goes on without it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from onecopy.base.text import parse_size
from onecopy.memory import cgroup
from onecopy_bench import system
from onecopy_bench.record import Absent
from onecopy_bench.worker import SampleError

OUT_OF_MEMORY = "killed by the kernel: out of memory"
"""How the reason of a sample begins that went over the limit of its group."""
CHUNK = 16 << 20
"""Files are written in chunks of this size, which leave large folios behind, as `onecopy.save` does."""
FUSE_SERVER = Path(__file__).parents[4] / "build/tests/fuse_disk"
FUSE_DELAY_S, FUSE_REQUEST = 0.5e-3, 128 << 10
FUSE_LIFETIME_S = 7200
SLOW_READ_AHEAD, SLOW_BYTES = 128 << 10, 256 << 20
"""The read-ahead of the slow disk, and the most that is copied to it."""
SLOW_BYTES_PER_S, SLOW_REQUESTS_PER_S = 250_000_000, 3000
"""Its limits."""
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, not a name that others could have taken


class Unavailable(Exception):
    """A place cannot be created on this machine or by this user; the message says why."""


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Defer SIGINT and SIGTERM to the end of the block, so that nothing half made is left behind."""
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


# --- control groups ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """A controller by its name in v1 and v2, and the lines to write into files of its groups."""

    controller: dict[int, str]
    lines: dict[int, tuple[tuple[str, str], ...]]


def memory_limit(nbytes: int) -> Limit:
    """Limit the memory of processes and of the page cache that they fill; nothing is swapped out."""
    v1, v2 = (("memory.limit_in_bytes", str(nbytes)),), (("memory.swap.max", "0"), ("memory.max", str(nbytes)))
    return Limit({1: "memory", 2: "memory"}, {1: v1, 2: v2})


def reading_limit(device: int, bytes_per_s: int, requests_per_s: int) -> Limit:
    """Limit the read rate of a disk (an ``st_dev``), as a network volume does."""
    disk = f"{os.major(device)}:{os.minor(device)}"
    v1 = {"bps": bytes_per_s, "iops": requests_per_s}
    lines = tuple((f"blkio.throttle.read_{name}_device", f"{disk} {number}") for name, number in v1.items())
    v2 = (("io.max", f"{disk} rbps={bytes_per_s} riops={requests_per_s}"),)
    return Limit({1: "blkio", 2: "io"}, {1: lines, 2: v2})


@contextlib.contextmanager
def group(limit: Limit) -> Iterator[Path]:
    """Create a group with a limit for the block; yields its folder, raises Unavailable."""
    version, above = parent_of(limit.controller)
    folder = above / f"onecopy-bench-{os.getpid()}-{limit.controller[version]}"
    try:
        with undisturbed():
            _make_group(folder, limit.lines[version])
        yield folder
    finally:
        with undisturbed():
            for _ in range(50):  # a worker that was just reaped may still be on its way out of the group
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.05)


def _make_group(folder: Path, lines: tuple[tuple[str, str], ...]) -> None:
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


def parent_of(controller: dict[int, str], *, root: Path = Path("/")) -> tuple[int, Path]:
    """Return the version of the controller and the folder in which a group with it can be made."""
    mounts = cgroup.parse_mountinfo((root / "proc/self/mountinfo").read_text("utf-8", "surrogateescape"))
    membership = cgroup.parse_membership((root / "proc/self/cgroup").read_text())
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
    """Add to a crash in the block that the kernel killed the process for memory, if a group counted a kill."""
    known = {group: cgroup.kills(group) or 0 for group in groups}
    try:
        yield
    except SampleError as failure:
        if failure.state == "crashed" and any((cgroup.kills(g) or 0) > kills for g, kills in known.items()):
            reason = f"{OUT_OF_MEMORY} at the limit of {(nbytes or 0) / 1e6:.1f} MB"
            raise SampleError("crashed", reason) from failure
        raise


# --- disks ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spot:
    """A file in the place where it is measured, its limits, and the control groups that processes join."""

    name: str
    detail: str
    path: Path
    size: int
    read_ahead_bytes: int | None
    device_bytes_per_s: int | None = None
    memory_bytes: int | None = None
    groups: tuple[Path, ...] = ()


def parse_read_ahead(text: str) -> int:
    """Return a read-ahead such as 128K in bytes; ValueError for other text."""
    nbytes = int(parse_size(text.removesuffix("K") + "KiB" if text.endswith("K") else text))
    if nbytes <= 0 or nbytes % 1024:
        raise ValueError(f"{text!r} is not a multiple of 1 KiB")
    return nbytes


def spots_of(names: Iterable[str], source: Path, stack: contextlib.ExitStack) -> tuple[list[Spot], list[Absent]]:
    """Return the file in each available place, and the unavailable places with the reason."""
    spots, absent = [], []
    for name in names:
        try:
            spots.append(spot_of(name, source, stack))
        except Unavailable as reason:
            absent.append(Absent(f"place {name}", str(reason)))
    return spots, absent


def spot_of(name: str, source: Path, stack: contextlib.ExitStack) -> Spot:
    """Return the file in a place that the stack removes; raises Unavailable.

    "disk": the file where it is. "tight": the same, in a control group that has half of its size for memory. "fuse": a
    copy behind a FUSE server that delays each answer. "slow": a copy of its beginning on a loop device whose reads are
    throttled, as those of a network volume are. A read-ahead such as 128K: a copy on a loop device that has it.
    """
    size = source.stat().st_size
    here = Spot(name, "where the file is", source, size, system.read_ahead(source.stat().st_dev))
    if name == "disk":
        return here
    if name == "tight":
        limited = stack.enter_context(group(memory_limit(size // 2)))
        detail = f"in a control group of {size // 2 / 1e6:.1f} MB"
        return replace(here, detail=detail, memory_bytes=size // 2, groups=(limited,))
    if name == "fuse":
        return _spot_behind_fuse(source, stack)
    size = min(size, SLOW_BYTES) if name == "slow" else size
    read_ahead = SLOW_READ_AHEAD if name == "slow" else parse_read_ahead(name)
    copied = stack.enter_context(loop_disk(source.parent, size, read_ahead)) / source.name
    copy(source, copied, size)
    device = copied.stat().st_dev
    actual = system.read_ahead(device)
    if actual != read_ahead:
        raise Unavailable(f"a read-ahead of {read_ahead} bytes was asked for, the kernel made it {actual}")
    if name != "slow":
        return Spot(f"{read_ahead >> 10}K", "a loop device", copied, size, actual)
    limited = stack.enter_context(group(reading_limit(device, SLOW_BYTES_PER_S, SLOW_REQUESTS_PER_S)))
    detail = f"a loop device, at most {SLOW_BYTES_PER_S / 1e6:.0f} MB/s and {SLOW_REQUESTS_PER_S} requests/s"
    return Spot("slow", detail, copied, size, actual, SLOW_BYTES_PER_S, groups=(limited,))


def _spot_behind_fuse(source: Path, stack: contextlib.ExitStack) -> Spot:
    size = source.stat().st_size
    if not FUSE_SERVER.exists():
        raise Unavailable("there is no FUSE server: `make stories` in a checkout builds it, with libfuse3-dev")
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < size:
        raise Unavailable(f"a copy behind FUSE needs {size / 1e6:.0f} MB in {MEMORY}")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onecopy-bench-", dir=MEMORY)))
    shutil.copyfile(source, folder / source.name)
    mount = stack.enter_context(high_latency(folder, FUSE_DELAY_S))
    detail = f"a FUSE file system, {FUSE_DELAY_S * 1e3:g} ms a request"
    return replace(spot_of("disk", mount / source.name, stack), name="fuse", detail=detail)


@contextlib.contextmanager
def high_latency(folder: Path, seconds: float) -> Iterator[Path]:
    """Mount the files of a folder by FUSE, each request answered after some seconds; raises Unavailable."""
    mount = Path(tempfile.mkdtemp(prefix="onecopy-bench-"))
    everything, shared = 2**64 - 1, os.memfd_create("onecopy-bench")
    os.write(shared, struct.pack("dQQqQQdQ4Q", seconds, 0, 0, 0, everything, everything, 0.0, *[0] * 5))
    words = map(str, (FUSE_SERVER, folder, mount, shared, FUSE_REQUEST, 0, 2, 1, 1, FUSE_LIFETIME_S))
    with subprocess.Popen([*words], pass_fds=[shared], stdout=-1, stderr=-1, process_group=0) as server:
        os.close(shared)
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            if server.stdout.readline() != b"mounted\n":
                server.kill()
                raise Unavailable(f"no FUSE file system: {server.stderr.read().decode().strip()}")
            yield mount
        finally:
            with undisturbed():
                _unmount(mount)  # first: without its server, the kernel answers nothing there
                server.kill()


@contextlib.contextmanager
def loop_disk(folder: Path, size: int, read_ahead: int) -> Iterator[Path]:
    """Mount an empty file system with space for `size` bytes; yields the folder, raises Unavailable.

    The image lies in a folder of the disk that is to be measured; `read_ahead` is a multiple of 1024 bytes.
    """
    if os.geteuid() != 0:
        raise Unavailable("a loop device needs root")
    room, free = size + size // 16 + (64 << 20), shutil.disk_usage(folder).free
    if free < room:
        raise Unavailable(f"a loop device needs {room / 1e6:.0f} MB in {folder}, {free / 1e6:.0f} MB are free")
    mount = Path(tempfile.mkdtemp(prefix="onecopy-bench-"))
    try:
        with undisturbed():
            _make_disk(Path(tempfile.mkdtemp(prefix=".onecopy-bench-", dir=folder)), mount, room, read_ahead)
        yield mount
    finally:
        with undisturbed():
            _unmount(mount)


def _make_disk(folder: Path, mount: Path, size: int, read_ahead: int) -> None:
    image, device = folder / "disk.img", ""
    try:
        with image.open("wb") as file:
            file.truncate(size)
        device = call("losetup", "--find", "--show", "--direct-io=on", str(image))
        ready = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"  # nothing is left to be done later
        call("mkfs.ext4", "-q", "-b", "4096", "-m", "0", "-E", ready, device)
        Path("/sys/block", Path(device).name, "queue/read_ahead_kb").write_text(str(read_ahead // 1024))
        call("mount", device, str(mount))
    finally:
        if device:
            call("losetup", "--detach", device)  # the kernel does it with the last user
        image.unlink(missing_ok=True)
        folder.rmdir()


def _unmount(mount: Path) -> None:
    """Unmount if it is mounted; lazily while a traceback or the like still holds a file."""
    if mount.is_mount():
        try:
            call("umount", str(mount))
        except Unavailable:
            call("umount", "--lazy", str(mount))
    mount.rmdir()


def call(*command: str) -> str:
    """Return the output of a command; raises Unavailable with its error output if it fails."""
    try:
        # In a group of its own: Ctrl-C is for us, and comes when the command has done its work.
        done = subprocess.run(command, capture_output=True, text=True, check=False, process_group=0)
    except OSError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise Unavailable(f"{command[0]}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout.strip()


def copy(source: Path, target: Path, nbytes: int) -> None:
    """Copy the first `nbytes` bytes of a file, and flush the copy to the disk."""
    with source.open("rb") as read, target.open("wb", buffering=0) as write:
        for offset in range(0, nbytes, CHUNK):
            write.write(read.read(min(CHUNK, nbytes - offset)))
        os.fsync(write.fileno())
