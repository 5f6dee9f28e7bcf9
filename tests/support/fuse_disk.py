"""A read-only FUSE file system, served by fuse_disk.cpp, that delays, fails or shortens reads on request.

It needs root, a compiler and libfuse3 with its headers (Debian: libfuse3-dev, pkg-config). A disk is mounted for the
calling process and its children: call it in a forked child (`call_in_child`). The kernel aborts every request when the
serving process ends, so nothing waits longer than that process lives.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.isolation import enter_own_mounts
from tests.support.places import ROOT
from tests.support.waiting import PATIENCE

MTIME = 1_700_000_000
UNLIMITED = (1 << 64) - 1
SOURCE = Path(__file__).with_suffix(".cpp")
PROGRAM = ROOT / "build/tests/fuse_disk"


class Faults(ctypes.Structure):
    """What the server does to reads, and what it counts; shared memory, so that a change takes effect at once."""

    # fuse_disk.cpp describes them.
    _fields_ = (
        ("seconds", ctypes.c_double),
        *((name, ctypes.c_uint64) for name in ("fail_from", "fail_to", "error", "at_once", "size", "hangs")),
        *((name, ctypes.c_uint64) for name in ("reads", "bytes", "in_flight", "most_in_flight")),
    )

    seconds: float
    at_once: int
    size: int
    hangs: int
    reads: int
    bytes: int
    in_flight: int
    most_in_flight: int
    server: "subprocess.Popen[bytes]"

    def fail(self, begin: int, end: int, error: int = errno.EIO) -> None:
        """Refuse every READ that touches bytes [begin, end) of any file."""
        self.fail_from, self.fail_to, self.error = begin, end, error

    def kill_server(self) -> None:
        """Kill the server and wait until it is dead; the kernel then answers all requests with ENOTCONN."""
        self.server.kill()
        self.server.wait()


def built_program() -> Path:
    """Build the server unless it is newer than its source. OSError where it cannot be built, with the reason."""
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > SOURCE.stat().st_mtime:
        return PROGRAM
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=False)
    if flags.returncode != 0:
        raise OSError(errno.ENOPKG, "libfuse3 with its headers is not installed (Debian: libfuse3-dev)")
    made = PROGRAM.with_name(f"fuse_disk.{os.getpid()}")
    command = ["c++", "-std=c++20", "-O2", SOURCE, *flags.stdout.split(), "-o", made]
    subprocess.run(command, check=True)
    made.replace(PROGRAM)
    return PROGRAM


@contextlib.contextmanager
def fuse_disk(
    folder: Path,
    files: Mapping[str, bytes] | Path,
    *,
    direct_io: bool = False,
    read_only: bool = False,
    seconds_valid: int = 0,
) -> Iterator[Faults]:
    """Serve files in a folder, for this process and its children alone; give the faults, which may be set any time.

    `files`: contents by name, or a folder that has the files. `direct_io`: every read goes to the server, past the page
    cache; the kernel then refuses shared mappings (ENODEV). `read_only`: the kernel refuses changes; otherwise the
    server does. `seconds_valid`: how long the kernel may believe the attributes of a file.

    OSError: the server cannot be built, no /dev/fuse, or no right to mount.
    """
    program = built_program()
    enter_own_mounts()
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        if not isinstance(files, Path):
            for name, content in files.items():
                Path(temporary, name).write_bytes(content)
                os.utime(Path(temporary, name), (MTIME, MTIME))
            files = Path(temporary)
        shared = os.memfd_create("faults")
        os.ftruncate(shared, ctypes.sizeof(Faults))
        faults = Faults.from_buffer(mmap.mmap(shared, ctypes.sizeof(Faults)))
        faults.at_once = faults.size = UNLIMITED
        flags = 1 * direct_io | 2  # pages that are cached survive the next opening of the file
        words = [files, folder, shared, 128 << 10, flags, seconds_valid, int(read_only), int(PATIENCE)]
        faults.server = subprocess.Popen(
            [program, *map(str, words)], pass_fds=[shared], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        os.close(shared)
        assert faults.server.stdout is not None
        assert faults.server.stderr is not None
        if faults.server.stdout.readline() != b"mounted\n":
            faults.kill_server()
            raise OSError(errno.EPERM, f"no FUSE file system: {faults.server.stderr.read().decode()}")
        try:
            yield faults
        finally:
            faults.kill_server()
            ctypes.CDLL(None).umount2(bytes(folder), 2)  # MNT_DETACH


if __name__ == "__main__":  # for `make stories`
    built_program()
