"""What all Python tests share: children, another user, and judges of the page cache that use nothing of onecopy."""

import contextlib
import ctypes
import faulthandler
import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the machine is shared. Fixtures that hold a folder serve all examples of a property.
settings.register_profile(
    "onecopy",
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("onecopy")

PAGE = mmap.PAGESIZE
PIECE = 8 << 20  # bytes


@pytest.fixture
def python() -> Callable[..., str]:
    """Run lines of Python in a fresh process, with warnings as errors; return what it printed."""

    def run(code: str, *arguments: object) -> str:
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def reserving(tmp_path: Path) -> Path:
    """Give a folder where scratch arrays find a place; skip where no space can be reserved."""
    import onecopy as oc

    try:
        oc.scratch(1, "u1", tmp_path, anywhere=True).close()
    except OSError as error:
        pytest.skip(f"no space can be reserved here: {error}")
    return tmp_path


class ChildKilledError(Exception):
    """A child died of the signal that is told."""


def call_in_child(function: Callable[..., Any], *arguments: Any, uid: int | None = None) -> Any:
    """Call a function in a forked child; return what it returns, raise what it raises, or ChildKilledError."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            signal.alarm(100)
            faulthandler.disable()  # some die as they should, and silently
            answer: tuple[bool, Any]
            try:
                if uid is not None:
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                answer = True, function(*arguments)
            except BaseException as error:  # it is raised in the parent
                answer = False, error
            os.write(write_end, pickle.dumps(answer))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not text:
        raise ChildKilledError(signal.Signals(-status).name)
    good, answer = pickle.loads(text)
    if not good:
        raise answer
    return answer


@pytest.fixture
def in_child() -> Callable[..., Any]:
    """Give `call_in_child`: (function, *arguments, uid=None)."""
    return call_in_child


def kernel_has(name: str) -> bool:
    """Ask the kernel, or the policy of this sandbox, for an interface: what it lacks is reported, and not done."""
    libc = ctypes.CDLL(None, use_errno=True)
    if name == "MADV_POPULATE_READ":
        with mmap.mmap(-1, PAGE) as memory:
            at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            return libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(PAGE), 22) == 0
    if name == "fallocate":
        with tempfile.TemporaryFile() as file:
            return libc.fallocate(file.fileno(), 0, ctypes.c_long(0), ctypes.c_long(1)) == 0
    if name == "cachestat":
        answer, whole = (ctypes.c_uint64 * 5)(), (ctypes.c_uint64 * 2)(0, 0)
        with tempfile.TemporaryFile() as file:
            return libc.syscall(451, file.fileno(), whole, answer, 0) == 0
    raise KeyError(name)


@pytest.fixture
def populates() -> bool:
    """Tell whether warming can read and map in at once, as opposed to reading only."""
    return kernel_has("MADV_POPULATE_READ")


@pytest.fixture
def tells_dirty() -> bool:
    """Tell whether the page cache is asked by cachestat, which alone knows of unsaved pages."""
    return kernel_has("cachestat")


@pytest.fixture
def unnamed_files(tmp_path: Path) -> bool:
    """Tell whether a file can be made without a name, and gets one when it is whole."""
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        return False
    return True


@pytest.fixture
def reserves_space() -> bool:
    """Tell whether space can be reserved for a file before it is written."""
    return kernel_has("fallocate")


@pytest.fixture
def memfd() -> Iterator[int]:
    """Make an unnamed file in memory."""
    try:
        fd = os.memfd_create("scratch")
    except OSError as error:
        pytest.skip(f"memfd_create: {error.strerror}")
    yield fd
    os.close(fd)


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Give another user's number; the current folder is `tmp_path`, as only root may walk the way to it."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return 65534


def pages_in_cache(path: Path) -> bytes:
    """Ask mincore of a mapping of our own: 1 or 0 for each page; honest for the owner of the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    flags = (ctypes.c_ubyte * -(-size // PAGE))()
    first = ctypes.c_char.from_buffer(memory)
    failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), flags)
    del first
    memory.close()
    assert failed == 0
    return bytes(flags)


@pytest.fixture
def cached() -> Callable[[Path], int]:
    """Count the bytes of a file that are in the page cache, in whole pages."""
    return lambda path: PAGE * pages_in_cache(path).count(1)


@pytest.fixture
def cached_pages() -> Callable[[Path], set[int]]:
    """List the pages of a file that are in the page cache, by number."""
    return lambda path: {page for page, flag in enumerate(pages_in_cache(path)) if flag}


def forget(path: Path) -> None:
    """Take a file out of the page cache, as far as nobody maps it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        for _ in range(3):  # the kernel's own scanners hold a page for an instant now and then, and it stays
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if 1 not in pages_in_cache(path):
                break
    finally:
        os.close(fd)


@pytest.fixture
def cold_file(tmp_path: Path) -> Callable[..., Path]:
    """Make a file of random bytes that is not in memory."""

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
    """Make a file of holes that takes one thread a second or more to read: 4 GiB that are on no disk."""
    path = tmp_path / "slow.bin"
    with path.open("wb") as file:
        file.truncate(4 << 30)
    yield path
    path.unlink(missing_ok=True)  # and its pages with it
