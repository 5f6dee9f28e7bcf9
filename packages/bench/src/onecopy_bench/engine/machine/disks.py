"""A disk of our own: an ext4 file system on a loop device, with a given read-ahead, gone at the end; or a FUSE server.

The image is unlinked as soon as it is mounted and the device detaches itself with the last user, so a benchmark that is
killed leaves one mount and no file. Reads go past the page cache of the disk below (``direct-io``); what the loop
device costs is in every number, so rows of one place compare with each other and not with those of another.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from onecopy_bench.engine import machine
from onecopy_bench.engine.machine.limits import Unavailable, undisturbed

CHUNK = 16 << 20
"""Files are written in chunks of this size, which leave large folios behind, as `onecopy.save` does."""

FUSE = "fuse"
"""The place of files behind a FUSE server that answers late, as a network file system does."""
FUSE_SERVER = Path(__file__).parents[6] / "build/tests/fuse_disk"
FUSE_DELAY_S, FUSE_REQUEST = 0.5e-3, 128 << 10
FUSE_LIFETIME_S = 7200
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, not a name that others could have taken


@dataclass(frozen=True, slots=True)
class Spot:
    """A file where it is measured, and what is special there: limits, and the control groups that processes join."""

    name: str
    detail: str
    path: Path
    size: int
    read_ahead_bytes: int | None
    device_bytes_per_s: int | None = None
    memory_bytes: int | None = None
    groups: tuple[Path, ...] = ()


def here(source: Path) -> Spot:
    """Return a file where it is."""
    status = source.stat()
    return Spot("disk", "where the file is", source, status.st_size, machine.read_ahead(status.st_dev))


def behind_fuse(source: Path, stack: contextlib.ExitStack) -> Spot:
    """Return a copy in memory behind a FUSE server that delays each answer, gone with the stack; raises Unavailable."""
    size = source.stat().st_size
    if not FUSE_SERVER.exists():
        raise Unavailable("there is no FUSE server: `make stories` in a checkout builds it, with libfuse3-dev")
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < size:
        raise Unavailable(f"a copy behind FUSE needs {size / 1e6:.0f} MB in {MEMORY}")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onecopy-bench-", dir=MEMORY)))
    shutil.copyfile(source, folder / source.name)
    mount = stack.enter_context(late_files(folder, FUSE_DELAY_S))
    detail = f"a FUSE file system, {FUSE_DELAY_S * 1e3:g} ms a request"
    return replace(here(mount / source.name), name=FUSE, detail=detail)


@contextlib.contextmanager
def late_files(folder: Path, seconds: float) -> Iterator[Path]:
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
                _end(mount)  # first: without its server, the kernel answers nothing there
                server.kill()


def spot_of(source: Path, read_ahead: int | None, stack: contextlib.ExitStack) -> Spot:
    """Return a file where it is, or a copy on a loop device that reads so far ahead; raises Unavailable.

    The device goes with the stack; None is the file where it is.
    """
    if read_ahead is None:
        return here(source)
    size = source.stat().st_size
    copied = stack.enter_context(loop_disk(source.parent, size, read_ahead)) / source.name
    copy(source, copied, size)
    actual = machine.read_ahead(copied.stat().st_dev)
    if actual != read_ahead:
        raise Unavailable(f"a read-ahead of {read_ahead} bytes was asked for, the kernel made it {actual}")
    return Spot(f"{read_ahead >> 10}K", "a loop device", copied, size, actual)


@contextlib.contextmanager
def loop_disk(folder: Path, size: int, read_ahead: int) -> Iterator[Path]:
    """Make an empty file system with space for `size` bytes; yields where it is mounted, raises Unavailable.

    The image lies in a folder of the disk that is to be measured; `read_ahead` is a multiple of 1024 bytes.
    """
    if os.geteuid() != 0:
        raise Unavailable("a loop device needs root")
    room = size + size // 16 + (64 << 20)
    free = shutil.disk_usage(folder).free
    if free < room:
        raise Unavailable(f"a loop device needs {room / 1e6:.0f} MB in {folder}, {free / 1e6:.0f} MB are free")
    mount = Path(tempfile.mkdtemp(prefix="onecopy-bench-"))
    try:
        with undisturbed():
            _make(Path(tempfile.mkdtemp(prefix=".onecopy-bench-", dir=folder)), mount, room, read_ahead)
        yield mount
    finally:
        with undisturbed():
            _end(mount)


def _make(folder: Path, mount: Path, size: int, read_ahead: int) -> None:
    image, device = folder / "disk.img", ""
    try:
        with image.open("wb") as file:
            file.truncate(size)
        device = _run("losetup", "--find", "--show", "--direct-io=on", str(image)).strip()
        ready = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"  # nothing is left to be done later
        _run("mkfs.ext4", "-q", "-b", "4096", "-m", "0", "-E", ready, device)
        Path("/sys/block", Path(device).name, "queue/read_ahead_kb").write_text(str(read_ahead // 1024))
        _run("mount", device, str(mount))
    finally:
        if device:
            _run("losetup", "--detach", device)  # the kernel does it with the last user
        image.unlink(missing_ok=True)
        folder.rmdir()


def _end(mount: Path) -> None:
    """Unmount, if it came to that; what still holds a file there, such as a traceback, is closed later."""
    if mount.is_mount():
        try:
            _run("umount", str(mount))
        except Unavailable:
            _run("umount", "--lazy", str(mount))
    mount.rmdir()


def _run(*command: str) -> str:
    try:
        # In a group of its own: Ctrl-C is for us, and comes when the command has done its work.
        done = subprocess.run(command, capture_output=True, text=True, check=False, process_group=0)
    except OSError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise Unavailable(f"{command[0]}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout


def copy(source: Path, target: Path, nbytes: int) -> None:
    """Write the first `nbytes` bytes of a file to another, down to the disk."""
    with source.open("rb") as read, target.open("wb", buffering=0) as write:
        for offset in range(0, nbytes, CHUNK):
            write.write(read.read(min(CHUNK, nbytes - offset)))
        os.fsync(write.fileno())
