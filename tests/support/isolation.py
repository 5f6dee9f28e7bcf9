"""Folders of this session alone (home, temporary files, /dev/shm): no test uses caches of the user or leaves files."""

import ctypes
import fcntl
import itertools
import multiprocessing.util
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from tests.support.places import ROOT, TEMPORARY

NEW_MOUNTS = 0x20000  # CLONE_NEWNS
PRIVATE = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC
MOUNTS_ARE_OURS = False
"""Whether this session has a mount namespace of its own, set by `pytest_configure`."""
OF_THE_USER = ("XDG_CACHE_HOME", "ONECOPY_CACHE", "ONECOPY_SCRATCH")


def enter_own_mounts() -> None:
    """Give this process a mount namespace of its own; OSError where only root can, or a sandbox refuses it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS) != 0 or libc.mount(None, b"/", None, PRIVATE, None) != 0:
        raise OSError(ctypes.get_errno(), "no mounts of our own")


def have_own_shared_memory() -> bool:
    """Mount an empty /dev/shm for this process and its children, where that is possible."""
    if not Path("/dev/shm").is_dir():
        return False
    try:
        enter_own_mounts()
    except OSError:
        return False
    return ctypes.CDLL(None).mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777") == 0


def own_slot() -> Path:
    """Return the folder for the files of this session, the first that no other session uses.

    pytest's default has a folder above it that all sessions of a user share, and that each closes to other users when
    it starts: tests that become another user fail then. The files stay until a later session uses the folder.
    """
    for number in itertools.count():
        slot = Path(TEMPORARY, f"onecopy-tests-{os.getuid()}-{number}")
        lock = os.open(slot.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process and its forks have ended
        except BlockingIOError:
            os.close(lock)
        else:
            return slot
    raise AssertionError


def pytest_configure(config: pytest.Config) -> None:
    """Replace what belongs to the user, before any module of the tests is imported."""
    if config.option.basetemp is None:
        config.option.basetemp = str(own_slot())
    # The folders of sessions that tests start stay outside of those of this one.
    os.environ["PYTEST_DEBUG_TEMPROOT"] = TEMPORARY
    own = Path(tempfile.mkdtemp(prefix="onecopy-", dir=TEMPORARY))  # a short name: there are sockets below it
    own.chmod(0o711)  # some tests become other users
    (own / "home").mkdir(0o700)
    (own / "tmp").mkdir()
    (own / "tmp").chmod(0o1777)
    for name in OF_THE_USER:
        os.environ.pop(name, None)
    os.environ["HOME"] = str(own / "home")
    tempfile.tempdir = os.environ["TMPDIR"] = str(own / "tmp")
    os.environ.setdefault("MPLCONFIGDIR", str(ROOT / "build/matplotlib"))  # its list of fonts takes seconds to make
    global MOUNTS_ARE_OURS  # noqa: PLW0603 - once a session, before any test is imported
    MOUNTS_ARE_OURS = have_own_shared_memory()
    # A shell starts what runs in the background with both ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    # After multiprocessing has removed its own folder, which lies there; not in forked processes.
    multiprocessing.util.Finalize(None, shutil.rmtree, (own, True), exitpriority=-200)
