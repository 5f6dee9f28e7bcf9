"""A measured process, which runs a module's steps, one for each command from the parent.

    python -P -m onecopy_bench.worker MODULE PARENT

The first line of stdin contains the steps' arguments, pickled by the parent. `MODULE.steps(**arguments)` is a
generator. It yields the name of a phase and a message, which the worker writes as a line of JSON. It continues when
the parent writes "go":

    -> arguments
    <- {"phase": "ready"}          imports are done; the parent measures the memory of the empty process
    -> go
    <- {"phase": ..., ...}         one line per step; the process then keeps its data
    -> exit

Clocks start after a "go", so no time includes the start of a process. If the parent dies, the process is ended by a
signal, or else by the end of its stdin.
"""

from __future__ import annotations

import base64
import ctypes
import gc
import importlib
import json
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Generator, Iterable
from typing import IO, Any, Literal

Steps = Generator[tuple[str, dict[str, Any]], None, None]
State = Literal["ok", "timeout", "crashed", "failed", "odd output", "wrong data", "skipped"]
FAILED = "failed"
"""The phase in the last message of a worker whose steps raise SampleError."""
_PR_SET_PDEATHSIG = 1


class SampleError(Exception):
    """A sample failed. The arguments are its state and the reason."""

    def __init__(self, state: State, reason: str) -> None:
        super().__init__(f"{state}: {reason}")
        self.state = state
        self.reason = reason


def last_lines(output: IO[bytes], count: int) -> tuple[str, ...]:
    """Return the last non-empty lines of an output, each cut to 200 characters."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - 4096))
    lines = (line.strip() for line in output.read().decode("utf-8", "replace").splitlines())
    return tuple(line[:200] for line in lines if line)[-count:]


def state_of(status: int) -> State:
    """Return the state of a sample whose process ended too early with this exit status."""
    return "failed" if status >= 0 else "crashed"


def end_of(status: int) -> str:
    """Return how a process ended: its exit status, or the name of the signal."""
    names = {number.value: number.name for number in signal.Signals}
    return f"exit status {status}" if status >= 0 else names.get(-status, f"signal {-status}")


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when its parent dies (`number` 0: never). Exit if the parent is dead."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit("the parent died first")


def prepare(modules: Iterable[str] = ()) -> None:
    """Import some modules, and exclude their objects from garbage collection."""
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def used_since(before: resource.struct_rusage) -> dict[str, Any]:
    """Return the page faults and the CPU time of this process since `before`."""
    now = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "minor_faults": now.ru_minflt - before.ru_minflt,
        "major_faults": now.ru_majflt - before.ru_majflt,
        "cpu_ns": round((now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime) * 1e9),
    }


def steps(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Steps:
    """Call a function, and yield its result (of JSON types) as the message."""
    yield "ready", {}
    yield "returned", {"result": function(*arguments)}


def main(module: str, parent: str) -> None:
    """Run a module's steps until the parent writes "exit". The output of frameworks goes to stderr."""
    die_with(int(parent))
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    arguments = pickle.loads(base64.b64decode(sys.stdin.readline()))  # noqa: S301 - by the parent
    running: Steps = importlib.import_module(module).steps(**arguments)
    word = "go"
    while word == "go":
        try:
            phase, message = next(running)
        except SampleError as failure:
            phase, message = FAILED, {"state": failure.state, "reason": failure.reason}
        channel.write(json.dumps({"phase": phase, **message}) + "\n")
        channel.flush()
        word = sys.stdin.readline().strip()
    if word != "exit":
        sys.exit(f"expected the word 'go' or 'exit', got {word!r}")
    running.close()


if __name__ == "__main__":  # imported by name, so that it shares SampleError with the steps
    importlib.import_module("onecopy_bench.worker").main(*sys.argv[1:])
