"""The page cache seen without onecopy: which pages of a file are in memory, and files that are not."""

import ctypes
import mmap
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = mmap.PAGESIZE
PIECE = 8 << 20  # bytes written at once
SERVER = "ONECOPY_TESTS_CACHESTAT"
"""The variable with the address of the process that `serve_cachestat` started."""
CACHESTAT = 451  # the number of the system call on every architecture, from Linux 6.5


def pages_in_cache(path: Path) -> bytes:
    """Ask mincore of a private mapping: 1 or 0 for each page. Only the file's owner gets the true answer."""
    size = path.stat().st_size
    with path.open("rb") as file:
        flags = mmap.MAP_PRIVATE | 0x4000  # MAP_NORESERVE: the file may be larger than the memory
        memory = mmap.mmap(file.fileno(), size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    pages = (ctypes.c_ubyte * -(-size // PAGE))()
    first = ctypes.c_char.from_buffer(memory)
    failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages)
    del first
    memory.close()
    assert failed == 0
    return bytes(pages)


def pages_reclaimed(path: Path) -> int:
    """Count the pages of a file that were in the page cache until the kernel reclaimed them; 0 where it does not tell.

    Pages that were evicted on request do not count: the kernel remembers only what it took by itself.
    """
    with path.open("rb") as file:
        if (server := os.environ.get(SERVER)) is None:
            return evicted_by_kernel(file.fileno())
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"\0{server}")
            socket.send_fds(connection, [b"?"], [file.fileno()])
            return int(connection.recv(32))


def evicted_by_kernel(fd: int) -> int:
    """Ask cachestat for the evicted pages of a file; 0 where the kernel refuses."""
    counts = (ctypes.c_uint64 * 5)()  # cached, dirty, under writeback, evicted, recently evicted
    whole_file = (ctypes.c_uint64 * 2)(0, 0)
    failed = ctypes.CDLL(None).syscall(CACHESTAT, fd, whole_file, counts, 0)
    return 0 if failed else counts[3]


def serve_cachestat() -> None:
    """Start a process that answers `pages_reclaimed` until this process ends; for tests without the call themselves."""
    listener = socket.socket(socket.AF_UNIX)
    name = f"onecopy-tests-{os.getpid()}"
    listener.bind(f"\0{name}")  # without a file
    listener.listen()
    parent = os.getpid()
    if os.fork() != 0:
        os.environ[SERVER] = name
        listener.close()
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    os.closerange(0, 3)  # who reads the output of the tests waits for its end
    while os.getppid() == parent:
        with listener.accept()[0] as connection:
            _, fds, _, _ = socket.recv_fds(connection, 1, 1)
            for fd in fds:
                connection.send(str(evicted_by_kernel(fd)).encode())
                os.close(fd)
    os._exit(0)


def nearly(nbytes: int) -> Any:
    """Return what compares equal to some bytes, or a little less: the kernel may take idle pages back at any moment.

    Some kernels look for them (DAMON); a busy machine needs them. What may not be reclaimed is locked first.
    """
    less = min(1 << 18, nbytes // 4)
    return pytest.approx(nbytes - less / 2, abs=less / 2)


@pytest.fixture
def cached() -> Callable[[Path], int]:
    """Give a function that counts the bytes of a file that came into the page cache, in whole pages.

    What the kernel has reclaimed since then counts too: on a busy machine that may be milliseconds ago.
    """
    return lambda path: PAGE * (pages_in_cache(path).count(1) + pages_reclaimed(path))


@pytest.fixture
def cached_now() -> Callable[[Path], int]:
    return lambda path: PAGE * pages_in_cache(path).count(1)


@pytest.fixture
def cached_pages() -> Callable[[Path], set[int]]:
    return lambda path: {page for page, flag in enumerate(pages_in_cache(path)) if flag}


def forget(path: Path) -> None:
    """Write a file back and drop it from the page cache, except for pages that a process maps."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        for pause in (0, 0, 0.01, 0.1, 0.3):  # pages that the kernel's own scanners hold for an instant stay
            time.sleep(pause)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if 1 not in pages_in_cache(path):
                break
    finally:
        os.close(fd)


@pytest.fixture
def cold_file(tmp_path: Path) -> Callable[..., Path]:
    """Give a function (size, name="cold.bin") that makes a file of random bytes that is not in the page cache."""

    def make(size: int, name: str = "cold.bin") -> Path:
        path = tmp_path / name
        block = os.urandom(min(size, PIECE))
        with path.open("wb") as file:
            for at in range(0, size, PIECE):
                file.write(block[: size - at])
        forget(path)
        if 1 in pages_in_cache(path):
            pytest.skip(f"the file system of {tmp_path} keeps its files in memory")
        return path

    return make


@pytest.fixture
def slow_file(tmp_path: Path) -> Iterator[Path]:
    """Give a file of holes, 4 GiB that occupy no disk, which one thread needs a second or more to read."""
    path = tmp_path / "slow.bin"
    with path.open("wb") as file:
        file.truncate(4 << 30)
    yield path
    path.unlink(missing_ok=True)  # and its pages with it
