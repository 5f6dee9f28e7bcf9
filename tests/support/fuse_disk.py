"""A read-only FUSE file system, served by a process of its own, that delays, fails or shortens reads on request.

It speaks the kernel's protocol on /dev/fuse (linux/fuse.h, version 7.31) and needs root, but no libfuse. A disk is
mounted for the calling process and its children: call it in a forked child (`call_in_child`). The kernel aborts every
request when the serving process ends, so nothing waits longer than that process lives.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import signal
import stat
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.waiting import PATIENCE

MTIME = 1_700_000_000
BLOCK = 4096
ROOT = 1  # the root folder's number; files follow in their order
UNLIMITED = (1 << 64) - 1
MAX_PAGES = 32  # of one READ: 128 KiB

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS = 1, 2, 3, 14, 15, 17
RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, INTERRUPT = 18, 25, 26, 27, 28, 29, 34, 36
DESTROY, BATCH_FORGET = 38, 42
CHANGES = {4, 6, 8, 9, 10, 11, 12, 13, 16, 21, 24, 35, 43, 45, 51}  # SETATTR, SYMLINK, ... TMPFILE
UNANSWERED = {FORGET, BATCH_FORGET, INTERRUPT}
ASYNC_READ, AUTO_INVAL_DATA, MAX_PAGES_SET = 1, 1 << 12, 1 << 22
DIRECT_IO, KEEP_CACHE = 1, 2  # FOPEN_*

IN_HEADER = struct.Struct("=IIQQIIIHH")
READ_IN = struct.Struct("=QQI")
ATTRIBUTES = struct.Struct("=6Q10I")


class Faults(ctypes.Structure):
    """What the server does to reads, and what it counts; shared memory, so that a change takes effect at once."""

    _fields_ = (
        ("seconds", ctypes.c_double),  # of delay before each READ is answered
        ("fail_from", ctypes.c_uint64),  # a READ that touches [fail_from, fail_to) gets `error`
        ("fail_to", ctypes.c_uint64),
        ("error", ctypes.c_int64),
        ("at_once", ctypes.c_uint64),  # bytes that one READ gives at most, although the file goes on
        ("size", ctypes.c_uint64),  # bytes that each file has, at most: the rest is cut off
        ("pid", ctypes.c_int64),  # of the server
        ("reads", ctypes.c_uint64),  # counted: READs that were answered
        ("bytes", ctypes.c_uint64),  # counted: their bytes
    )

    seconds: float
    fail_from: int
    fail_to: int
    error: int
    at_once: int
    size: int
    pid: int
    reads: int
    bytes: int

    def fail(self, begin: int, end: int, error: int = errno.EIO) -> None:
        """Refuse every READ that touches bytes [begin, end) of any file."""
        self.fail_from, self.fail_to, self.error = begin, end, error

    def kill_server(self) -> None:
        """Kill the server and wait until it is dead; the kernel then answers all requests with ENOTCONN."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)


def without_faults() -> Faults:
    """Make faults in memory that a forked process shares; all reads succeed at once."""
    faults = Faults.from_buffer(mmap.mmap(-1, ctypes.sizeof(Faults)))
    faults.at_once = faults.size = UNLIMITED
    return faults


class Server:
    """Answers the kernel's requests, one after another, until the file system is unmounted."""

    def __init__(self, fd: int, files: dict[str, bytes], faults: Faults, open_flags: int, seconds_valid: int) -> None:
        self._fd, self._faults = fd, faults
        self._names, self._contents = list(files), list(files.values())
        self._open_flags, self._seconds_valid = open_flags, seconds_valid
        self._answers: dict[int, Callable[[int, bytes], bytes]] = {
            INIT: self._init,
            LOOKUP: self._lookup,
            GETATTR: lambda node, _: struct.pack("=QII", self._seconds_valid, 0, 0) + self._attributes(node),
            OPEN: lambda _node, _: struct.pack("=QII", 0, self._open_flags, 0),
            OPENDIR: lambda _node, _: bytes(16),
            READ: self._read,
            READDIR: self._list,
            STATFS: lambda _node, _: struct.pack("=5Q10I", 1 << 20, 0, 0, 99, 0, BLOCK, 255, BLOCK, *[0] * 7),
            **dict.fromkeys((RELEASE, RELEASEDIR, FLUSH, ACCESS, DESTROY), lambda _node, _: b""),
        }

    def run(self) -> None:
        """Serve until there is no file system to serve."""
        while True:
            try:
                request = os.read(self._fd, 1 << 18)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):  # a request was withdrawn, or a signal came
                    continue
                return  # ENODEV: unmounted
            _, operation, number, node, *_ = IN_HEADER.unpack_from(request)
            if operation in UNANSWERED:
                continue
            failure, answer = 0, b""
            try:
                answer = self._answer(operation, node, request[IN_HEADER.size :])
            except OSError as error:
                failure = -(error.errno or errno.EIO)
            with contextlib.suppress(OSError):  # ENOENT: no process waits for the answer any more
                os.write(self._fd, struct.pack("=IiQ", 16 + len(answer), failure, number) + answer)

    def _answer(self, operation: int, node: int, body: bytes) -> bytes:
        if operation in CHANGES:
            raise OSError(errno.EROFS, "read-only")
        if operation not in self._answers:
            raise OSError(errno.ENOSYS, "not served")
        return self._answers[operation](node, body)

    def _init(self, _node: int, body: bytes) -> bytes:
        _, _, read_ahead, offered = struct.unpack_from("=4I", body)
        flags = (ASYNC_READ | AUTO_INVAL_DATA | MAX_PAGES_SET) & offered
        return struct.pack("=4IHHIIH", 7, 31, read_ahead, flags, 12, 9, BLOCK, 1, MAX_PAGES) + bytes(30)

    def _lookup(self, _node: int, body: bytes) -> bytes:
        name = body.rstrip(b"\0").decode()
        if name not in self._names:
            raise OSError(errno.ENOENT, name)
        node = ROOT + 1 + self._names.index(name)
        return struct.pack("=4QII", node, 0, 60, self._seconds_valid, 0, 0) + self._attributes(node)

    def _attributes(self, node: int) -> bytes:
        size, mode, links = 0, stat.S_IFDIR | 0o755, 2
        if node != ROOT:
            size, mode, links = min(len(self._content(node)), self._faults.size), stat.S_IFREG | 0o644, 1
        owner = os.getuid(), os.getgid()
        return ATTRIBUTES.pack(node, size, -(-size // 512), *[MTIME] * 3, 0, 0, 0, mode, links, *owner, 0, BLOCK, 0)

    def _content(self, node: int) -> bytes:
        return self._contents[node - ROOT - 1]

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, length = READ_IN.unpack_from(body)
        time.sleep(self._faults.seconds)
        if offset < self._faults.fail_to and self._faults.fail_from < offset + length:
            raise OSError(self._faults.error, "as requested")
        end = min(offset + min(length, self._faults.at_once), self._faults.size)
        answer = self._content(node)[offset : max(offset, end)]
        self._faults.reads += 1
        self._faults.bytes += len(answer)
        return answer

    def _list(self, _node: int, body: bytes) -> bytes:
        _, offset, length = READ_IN.unpack_from(body)
        entries = b""
        for i, name in enumerate(self._names[offset:], offset):
            text = name.encode()
            entry = struct.pack("=QQII", ROOT + 1 + i, i + 1, len(text), stat.S_IFREG >> 12) + text
            entry += bytes(-len(entry) % 8)
            if len(entries) + len(entry) > length:
                break
            entries += entry
        return entries


@contextlib.contextmanager
def fuse_disk(
    folder: Path,
    files: dict[str, bytes],
    *,
    direct_io: bool = False,
    keep_cache: bool = True,
    read_only: bool = False,
    seconds_valid: int = 0,
) -> Iterator[Faults]:
    """Serve files in a folder, for this process and its children alone; give the faults, which may be set any time.

    Parameters
    ----------
    folder
        Where to mount it; made if it is missing.
    files
        Contents by name.
    direct_io
        Every read goes to the server, past the page cache; the kernel then refuses shared mappings (ENODEV).
    keep_cache
        Pages that are cached survive the next opening of the file.
    read_only
        Mounted read-only: the kernel refuses changes. Otherwise the server does.
    seconds_valid
        How long the kernel may believe the attributes of a file.

    Raises
    ------
    OSError
        No /dev/fuse, or no right to mount.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, private, detach = 0x20000, 1 << 18 | 1 << 14, 2  # CLONE_NEWNS; MS_PRIVATE | MS_REC; MNT_DETACH
    set_death_signal = 1
    if libc.unshare(new_namespace) != 0 or libc.mount(None, b"/", None, private, None) != 0:
        raise OSError(ctypes.get_errno(), "no mounts of our own")
    folder.mkdir(exist_ok=True)
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    faults = without_faults()
    try:
        options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other".encode()
        if libc.mount(b"onecopy-test", bytes(folder), b"fuse", int(read_only), options) != 0:
            raise OSError(ctypes.get_errno(), f"mount a FUSE file system on {folder}")
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                libc.prctl(set_death_signal, signal.SIGKILL)
                signal.alarm(int(PATIENCE))  # a client that waits for an answer cannot be killed
                flags = DIRECT_IO * direct_io | KEEP_CACHE * keep_cache
                Server(fd, files, faults, flags, seconds_valid).run()
            os._exit(0)
        faults.pid = pid
    finally:
        os.close(fd)  # the server's is the last: the kernel aborts all requests when it is gone
    try:
        yield faults
    finally:
        faults.kill_server()
        os.waitpid(faults.pid, 0)
        libc.umount2(bytes(folder), detach)
