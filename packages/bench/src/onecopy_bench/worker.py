"""A measured process: it runs the steps of a module, one for each word of the parent.

    python -P -m onecopy_bench.worker MODULE PARENT

The arguments of the steps come as the first line of stdin, pickled by the parent. `MODULE.steps(**arguments)` is a
generator: it yields the name of a phase and a message, which go out as one line of JSON, and continues when the parent
says "go":

    -> arguments
    <- {"phase": "ready"}          imports are done; the parent measures the memory of the empty process
    -> go
    <- {"phase": ..., ...}         one line per step; the process then holds what it has
    -> exit

No time is taken across the start of a process: clocks start after a "go". The process dies with its parent, by signal
and, should that be missed, by the end of its stdin.
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
from collections.abc import Generator, Iterable
from typing import Any

Steps = Generator[tuple[str, dict[str, Any]], None, None]
_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; leave at once if it is dead already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent died first")


def prepare(modules: Iterable[str] = ()) -> None:
    """Import some modules, and leave nothing to the garbage collector."""
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def used_since(before: resource.struct_rusage) -> dict[str, Any]:
    """Return the faults and the CPU time of this process since then."""
    now = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "minor_faults": now.ru_minflt - before.ru_minflt,
        "major_faults": now.ru_majflt - before.ru_majflt,
        "cpu_ns": round((now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime) * 1e9),
    }


def main(module: str, parent: str) -> None:
    """Run the steps of a module until the parent says "exit"; what frameworks print goes to stderr."""
    die_with(int(parent))
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    arguments = pickle.loads(base64.b64decode(sys.stdin.readline()))  # noqa: S301 - by the parent
    steps: Steps = importlib.import_module(module).steps(**arguments)
    word = "go"
    while word == "go":
        phase, message = next(steps)
        channel.write(json.dumps({"phase": phase, **message}) + "\n")
        channel.flush()
        word = sys.stdin.readline().strip()
    if word != "exit":
        sys.exit(f"expected the word 'go' or 'exit', got {word!r}")
    steps.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
