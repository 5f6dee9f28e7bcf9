"""What the kernel, or the policy of this sandbox, allows; each probe uses nothing of onecopy."""

import ctypes
import mmap
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def has_populate_read() -> bool:
    """Report whether madvise(MADV_POPULATE_READ) is allowed: reading and mapping in one call."""
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(mmap.PAGESIZE), 22) == 0


def has_cachestat() -> bool:
    """Report whether cachestat is allowed, which alone counts dirty pages."""
    answer, whole = (ctypes.c_uint64 * 5)(), (ctypes.c_uint64 * 2)(0, 0)
    with tempfile.TemporaryFile() as file:
        return ctypes.CDLL(None).syscall(451, file.fileno(), whole, answer, 0) == 0


def opens(call: Callable[[], int]) -> bool:
    """Report whether a call opens a descriptor, which is closed."""
    try:
        os.close(call())
    except OSError:
        return False
    return True


def has_memory_files() -> bool:
    return opens(lambda: os.memfd_create("probe"))


def has_direct_io(folder: Path) -> bool:
    """Report whether files in this folder can be written past the page cache (O_DIRECT)."""
    found = opens(lambda: os.open(folder / "probe", os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    (folder / "probe").unlink(missing_ok=True)
    return found


needs_memory_files = pytest.mark.skipif(not has_memory_files(), reason="memfd_create is refused here")


@pytest.fixture
def populates() -> bool:
    """Report whether warming can read and map pages in one call."""
    return has_populate_read()


@pytest.fixture
def tells_dirty(tmp_path: Path) -> bool:
    """Report whether dirty pages can be counted: not where pages belong to a file of another file system."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True).stdout
    return has_cachestat() and kind.strip() != "overlayfs"


@pytest.fixture
def unnamed_files(tmp_path: Path) -> bool:
    """Report whether files can be created without a name (O_TMPFILE) in `tmp_path`."""
    return opens(lambda: os.open(tmp_path, os.O_TMPFILE | os.O_RDWR))


@pytest.fixture
def needs_unnamed_files(unnamed_files: bool) -> None:
    """Skip where files have names while they are written: the tests of the writer cover what a kill leaves there."""
    if not unnamed_files:
        pytest.skip("there are no unnamed files here")


@pytest.fixture
def needs_cachestat(tells_dirty: bool) -> None:
    """Skip where the kernel does not tell what is cached, and what of it is dirty."""
    if not tells_dirty:
        pytest.skip("this kernel does not tell what is cached")


@pytest.fixture
def reserving(tmp_path: Path) -> Path:
    """Give a folder whose file system can reserve space for scratch arrays; skip otherwise."""
    import onecopy as oc

    try:
        oc.scratch(1, "u1", tmp_path, anywhere=True).close()
    except OSError as error:
        pytest.skip(f"no space can be reserved here: {error}")
    return tmp_path


@pytest.fixture
def memfd() -> Iterator[int]:
    """Give the descriptor of an unnamed file in memory."""
    try:
        fd = os.memfd_create("scratch")
    except OSError as error:
        pytest.skip(f"memfd_create: {error.strerror}")
    yield fd
    os.close(fd)


def is_root() -> bool:
    """Report whether this process is root of the machine, and not of a user namespace that has few users."""
    return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Give another user's id; the working folder becomes `tmp_path`, since only root may walk the way to it."""
    if not is_root():
        pytest.skip("only root can become another user")
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return 65534


@pytest.fixture(params=["populate", "read"])
def mechanism(request: pytest.FixtureRequest, populates: bool) -> str:
    """Give each of the two ways in which warming reads; skip the one that is not allowed."""
    if request.param == "populate" and not populates:
        pytest.skip("madvise(MADV_POPULATE_READ) is refused")
    return str(request.param)
