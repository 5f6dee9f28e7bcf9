"""The steps of a worker that starts one copy of a program, waits until it is ready, and then stops it.

The copy runs in a new session with an empty stdin, and its output goes to an unnamed file. Orphaned processes become
children of the worker, so daemons also count as part of their copy. If the worker's parent dies, the worker stops
its copy and exits.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from onecopy_bench.system import family_of
from onecopy_bench.worker import SampleError, Steps, die_with, end_of, last_lines, state_of

NUMBER, VARIABLE = "{i}", "BENCH_PROCESS"
"""In arguments, `NUMBER` is replaced with the number of the copy; other braces are left unchanged. The environment
variable `VARIABLE` passes this number to the worker."""
POLL_S, GRACE_S = 0.002, 5.0
LINES = 5
PR_SET_CHILD_SUBREAPER = 36


def numbered(command: Sequence[str], number: int) -> list[str]:
    """Return a command in which each `NUMBER` is replaced with the number of its copy."""
    return [word.replace(NUMBER, str(number)) for word in command]


def members_of(worker: int) -> list[int]:
    """Return the live processes of the program that a worker started."""
    command = _command_of(worker)  # before exec it is the command of the parent; a zombie has no command
    return [pid for pid in family_of([worker]) if _command_of(pid) not in (b"", command)]


def _command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def end_copy() -> int:
    """Send SIGTERM to this process's descendants, and SIGKILL after `GRACE_S` s. Return how many received SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        reached: set[int] = set()
        deadline = time.monotonic() + GRACE_S
        while (living := set(members_of(os.getpid()))) and time.monotonic() < deadline:
            for pid in living - reached:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            reached |= living
            time.sleep(POLL_S)
    return len(reached)


def steps(command: Sequence[str], ready: str | None, hold_s: float, limit_s: float) -> Steps:
    """Start a program, wait until it prints `ready` (None: until it exits with status 0), keep it running, and stop it.

    Raise SampleError if the program ends too early or is not ready in time.
    """
    name = f"copy {os.environ[VARIABLE]}"
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    parent = os.getppid()
    die_with(parent, 0)  # the copy is ended before this process
    words = numbered(command, int(os.environ[VARIABLE]))
    yield "ready", {}
    start = time.monotonic_ns()
    with tempfile.TemporaryFile() as output:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(words, **streams, start_new_session=True)
        try:
            while not _is_ready(process, output, ready, name):
                if time.monotonic_ns() - start > limit_s * 1e9:
                    said = _said(output) or "; it printed nothing (is its output buffered? try stdbuf -oL or python -u)"
                    raise SampleError("timeout", f"{name} was not ready within {limit_s:g} s{said}")
                _wait(parent)
            yield "running", {"ready_ns": time.monotonic_ns() - start}
            end = time.monotonic() + (hold_s if ready else 0)
            while time.monotonic() < end:
                _wait(parent)
                if (status := process.poll()) is not None:
                    reason = f"{name}: {end_of(status)} after it was ready{_said(output)}"
                    raise SampleError(state_of(status), reason)
            yield "held", {}
        finally:
            killed = end_copy()
            process.wait()
        yield "ended", {"killed": killed}


def _wait(parent: int) -> None:
    time.sleep(POLL_S)
    if os.getppid() != parent:
        sys.exit("the parent died")


def _is_ready(process: subprocess.Popen[bytes], output: IO[bytes], ready: str | None, name: str) -> bool:
    status = process.poll()  # before its output is read, so that nothing is missed
    printed = os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0)
    if (ready and ready.encode() in printed) or (status == 0 and not ready):
        return True
    if status is not None:
        raise SampleError(state_of(status), f"{name}: {end_of(status)} before it was ready{_said(output)}")
    return False


def _said(output: IO[bytes]) -> str:
    """Return the last lines of a program's output, to append to an error message."""
    lines = " | ".join(last_lines(output, LINES))
    return f"; last lines: {lines}" if lines else ""
