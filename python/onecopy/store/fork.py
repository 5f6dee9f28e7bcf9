"""Calling a build function: here, or in a forked child whose memory goes back to the machine as a whole.

The child is killed when its parent ends, so that no orphan builds on beside whoever takes over. What the build raises
comes back as it is, with the child's traceback as a note.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import pickle  # between a process and its own forked child
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from onecopy import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_LONGEST = 1 << 20  # bytes of an exception and its traceback
_KEEP_DEVICES = ("torch", "tensorflow", "jax")
"""Frameworks whose threads and devices a forked child would miss, also where they have not started any yet."""


def can_fork() -> bool:
    """Return whether a forked child is as good as this process: it has one thread, and no framework with devices.

    Threads of libraries count: a lock that one of them holds at the fork is never released in the child.
    """
    try:
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - no paths are made
    except OSError:  # not Linux
        threads = threading.active_count()
    return threads == 1 and not any(name in sys.modules for name in _KEEP_DEVICES)


def builder(build: Callable[[Path], object], where: str) -> Callable[[Path], None]:
    """Return what calls `build` where that was asked for: "here", "child" or "auto"."""

    def here(path: Path) -> None:
        build(path)

    def here_and_tidy(path: Path) -> None:
        try:
            build(path)
        finally:
            give_back_memory()

    def in_child(path: Path) -> None:
        call_in_child(build, path)

    if where == "here":
        return here
    return in_child if where == "child" or can_fork() else here_and_tidy


def give_back_memory() -> None:
    """Collect garbage, and give what the C library holds free back to the machine, where it can."""
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Return the C library's free memory to the kernel, where it can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(ctypes.c_size_t(0))


def call_in_child(build: Callable[[Path], object], path: Path) -> None:
    """Call a build function in a forked child and wait for it; raise what it raises.

    Raises
    ------
    ChildProcessError
        The child was killed, or left by itself.
    """
    parent = os.getpid()
    _flush()  # else the child writes it too
    with mmap.mmap(-1, _LONGEST) as told:
        # A Ctrl-C between the fork and the wait would lose the child.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        pid = os.fork()
        if pid == 0:
            _run(build, path, parent, told, mask)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except BaseException:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise
        error = _heard(told, pid)
    if error is not None:
        raise error
    if status != 0:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"left with status {status}"
        raise ChildProcessError(f"process {pid}, which built {path}, {how}")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()


def _run(build: Callable[[Path], object], path: Path, parent: int, told: mmap.mmap, mask: Iterable[int]) -> None:
    """Build in the child, tell what was raised, and leave; never returns."""
    status = 1
    try:
        if _core.end_with_parent(parent):
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            build(path)
            status = 0
    except BaseException as error:  # it is raised in the parent
        _tell(error, told)
    finally:
        _flush()
        os._exit(status)


def _tell(error: BaseException, told: mmap.mmap) -> None:
    """Write an exception and its traceback for the parent; where it cannot travel, a RuntimeError that names it."""
    trace = "".join(traceback.format_exception(error))[-_LONGEST // 8 :]
    try:
        text = pickle.dumps((error, trace))
        pickle.loads(text)  # noqa: S301 - our own; some can be written and not read
        told.write(len(text).to_bytes(8, "little") + text)
    except Exception:  # of whoever wrote that exception
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        text = pickle.dumps((RuntimeError(f"{name}: {error}"[: _LONGEST // 8]), trace))
        told.seek(0)
        told.write(len(text).to_bytes(8, "little") + text)


def _heard(told: mmap.mmap, pid: int) -> BaseException | None:
    length = int.from_bytes(told[:8], "little")
    if length == 0:
        return None
    error, trace = pickle.loads(told[8 : 8 + length])  # noqa: S301 - of a child that is a copy of this process
    assert isinstance(error, BaseException)
    error.add_note(f"Raised in process {pid}, which built for this one:\n{trace}")
    return error
