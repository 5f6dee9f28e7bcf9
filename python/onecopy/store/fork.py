"""Call a build function in a forked child, whose memory is freed when it ends, and return free memory to the kernel.

The child is killed when its parent ends, so that it does not compete with another process that takes over the build. An
exception in the build is raised in the parent, with the child's traceback as a note.
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
import traceback
import warnings
from typing import TYPE_CHECKING

from onecopy import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MAX_ERROR = 1 << 20  # bytes of a pickled exception and its traceback


def free_unused_memory() -> None:
    """Collect garbage, and then return the C library's free memory to the kernel. Only glibc supports the latter."""
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Return the C library's free memory to the kernel. Only glibc supports this."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def call_in_child(build: Callable[[], object], product: str) -> None:
    """Call a build function in a forked child, wait for it, and raise any exception of the build here.

    Raise ChildProcessError, which names the product, if the child was killed or exited without an exception.
    """
    parent = os.getpid()
    _flush()  # the child would write the buffered output again
    # Python warns of threads after the fork. If warnings are errors, Python 3.15 raises and loses the child's pid.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning, f"{__name__}$")
    with mmap.mmap(-1, _MAX_ERROR) as shared:
        # A Ctrl-C between the fork and the wait would lose the child.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            pid = os.fork()
        except BaseException:  # too many processes, or no memory
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise
        if pid == 0:
            _run(build, parent, shared, mask)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except BaseException:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise
        error = _received_error(shared, pid)
    if error is not None:
        raise error
    if status != 0:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
        raise ChildProcessError(f"process {pid}, which was building {product}, {how}")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None
            stream.flush()


def _run(build: Callable[[], object], parent: int, shared: mmap.mmap, mask: Iterable[int]) -> None:
    """Build in the child, send any exception to the parent, and exit without returning."""
    status = 1
    try:
        if _core.end_with_parent(parent):
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            build()
            status = 0
    except BaseException as error:  # the parent raises it
        _send_error(error, shared)
    finally:
        _flush()
        os._exit(status)


def _send_error(error: BaseException, shared: mmap.mmap) -> None:
    """Write an exception (or a RuntimeError if it cannot be pickled) and its traceback to the parent's memory."""
    trace = "".join(traceback.format_exception(error))[-_MAX_ERROR // 8 :]
    try:
        text = pickle.dumps((error, trace))
        pickle.loads(text)  # noqa: S301 - written above; some exceptions can be pickled but not unpickled
        shared.write(len(text).to_bytes(8, "little") + text)
    except Exception:  # any: the class of the exception defines how it is pickled
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        text = pickle.dumps((RuntimeError(f"{name}: {error}"[: _MAX_ERROR // 8]), trace))
        shared.seek(0)
        shared.write(len(text).to_bytes(8, "little") + text)


def _received_error(shared: mmap.mmap, pid: int) -> BaseException | None:
    """Return the exception that the child sent, with its traceback as a note, or None if it succeeded."""
    length = int.from_bytes(shared[:8], "little")
    if length == 0:
        return None
    error, trace = pickle.loads(shared[8 : 8 + length])  # noqa: S301 - from a forked child of this process
    assert isinstance(error, BaseException)
    error.add_note(f"Raised in process {pid}, which ran the build for this process:\n{trace}")
    return error
