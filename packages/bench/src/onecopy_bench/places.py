"""Locations of measured files: their own disk, a loop disk with a given readahead, and a high-latency file system.

A *loop disk* is an ext4 file system on a loop device. Its image is unlinked as soon as it is mounted, and the kernel
detaches the device after its last use, so a killed benchmark leaves one mount but no file. Reads bypass the page cache
of the underlying disk (``direct-io``). Every number includes the overhead of the loop device, so compare only rows that
were measured in the same location. If a location cannot be created, `Unavailable` states the reason, and the benchmark
continues without it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from onecopy_bench import system

CHUNK = 16 << 20
"""Files are written in chunks of this size, so that the page cache contains large folios, as after `onecopy.save`."""
FUSE_SERVER = Path(__file__).parents[4] / "build/tests/fuse_disk"
FUSE_DELAY_S, FUSE_REQUEST = 0.5e-3, 128 << 10
FUSE_LIFETIME_S = 7200
PLACES = ("disk", "128K", "fuse")
READ_AHEAD = 128 << 10
"""The readahead of loop disks: the kernel's default, which most disks use."""
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, not a file name that another user could have created


class Unavailable(Exception):
    """A location cannot be created on this machine or by this user; the message states the reason."""


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Defer SIGINT and SIGTERM to the end of the block, so that nothing incomplete is left behind."""
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


class Spot(NamedTuple):
    """A file in the location where it is measured."""

    name: str
    path: Path
    read_ahead_bytes: int | None


def spot_of(name: str, source: Path, stack: contextlib.ExitStack) -> Spot:
    """Return the file in a location that the stack removes later. Raise Unavailable if it cannot be created.

    "disk": the file itself. "128K": a copy on a loop disk with 128 KiB of readahead. "fuse": a copy behind a FUSE
    server that delays each answer.
    """
    if name == "disk":
        return Spot(name, source, system.read_ahead(source.stat().st_dev))
    if name == "fuse":
        return _spot_behind_fuse(source, stack)
    copied = stack.enter_context(loop_disk(source.parent, source.stat().st_size)) / source.name
    copy(source, copied)
    return Spot(name, copied, system.read_ahead(copied.stat().st_dev))


def _spot_behind_fuse(source: Path, stack: contextlib.ExitStack) -> Spot:
    size = source.stat().st_size
    if not FUSE_SERVER.exists():
        raise Unavailable("the FUSE server is missing: `make stories` in a checkout builds it (needs libfuse3-dev)")
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < size:
        raise Unavailable(f"a copy that FUSE serves needs {size / 1e6:.0f} MB of free space in {MEMORY}")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onecopy-bench-", dir=MEMORY)))
    shutil.copyfile(source, folder / source.name)
    mount = stack.enter_context(high_latency(folder, FUSE_DELAY_S))
    return spot_of("disk", mount / source.name, stack)._replace(name="fuse")


@contextlib.contextmanager
def high_latency(folder: Path, seconds: float) -> Iterator[Path]:
    """Mount a folder's files with FUSE, with a delay in seconds before each answer. Raise Unavailable on failure."""
    mount = Path(tempfile.mkdtemp(prefix="onecopy-bench-"))
    everything, shared = 2**64 - 1, os.memfd_create("onecopy-bench")
    os.write(shared, struct.pack("dQQqQQ5Q", seconds, 0, 0, 0, everything, everything, *[0] * 5))
    words = map(str, (FUSE_SERVER, folder, mount, shared, FUSE_REQUEST, 2, 1, 1, FUSE_LIFETIME_S))
    with subprocess.Popen([*words], pass_fds=[shared], stdout=-1, stderr=-1, process_group=0) as server:
        os.close(shared)
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            if server.stdout.readline() != b"mounted\n":
                server.kill()
                raise Unavailable(f"cannot mount a FUSE file system: {server.stderr.read().decode().strip()}")
            yield mount
        finally:
            with undisturbed():
                _unmount(mount)  # before the server ends: afterwards, all accesses would fail
                server.kill()


@contextlib.contextmanager
def loop_disk(folder: Path, size: int, read_ahead: int = READ_AHEAD) -> Iterator[Path]:
    """Mount an empty file system with space for `size` bytes, and yield its folder. Raise Unavailable on failure.

    The image is in a folder on the measured disk. `read_ahead` is a multiple of 1024 bytes.
    """
    if os.geteuid() != 0:
        raise Unavailable("a loop device needs root")
    room, free = size + size // 16 + (64 << 20), shutil.disk_usage(folder).free
    if free < room:
        raise Unavailable(f"a loop device needs {room / 1e6:.0f} MB in {folder}, but {free / 1e6:.0f} MB are free")
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
        ready = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"  # no initialisation is left for later
        call("mkfs.ext4", "-q", "-b", "4096", "-m", "0", "-E", ready, device)
        Path("/sys/block", Path(device).name, "queue/read_ahead_kb").write_text(str(read_ahead // 1024))
        call("mount", device, str(mount))
    finally:
        if device:
            call("losetup", "--detach", device)  # takes effect after the last use
        image.unlink(missing_ok=True)
        folder.rmdir()


def _unmount(mount: Path) -> None:
    """Unmount a folder if it is mounted, lazily if a file in it is still open (for example in a traceback)."""
    if mount.is_mount():
        try:
            call("umount", str(mount))
        except Unavailable:
            call("umount", "--lazy", str(mount))
    mount.rmdir()


def call(*command: str) -> str:
    """Return the output of a command. If it fails, raise Unavailable with its error output."""
    try:
        # In its own process group, so that Ctrl-C does not interrupt it: it only reaches this process.
        done = subprocess.run(command, capture_output=True, text=True, check=False, process_group=0)
    except OSError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise Unavailable(f"{command[0]}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout.strip()


def copy(source: Path, target: Path) -> None:
    """Copy a file, and flush the copy to the disk."""
    with source.open("rb") as read, target.open("wb", buffering=0) as write:
        while chunk := read.read(CHUNK):
            write.write(chunk)
        os.fsync(write.fileno())
