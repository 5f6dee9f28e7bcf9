"""The child of a sample: a fresh interpreter that loads one file once and holds it until it may go.

    python -m onecopy_bench.child CONFIGURATION FILE

The table of the file comes as the first line on stdin, then one word per step; one line of JSON goes out per
phase, and nothing else:

    -> {"kind": ..., "size": ..., "pieces": [[name, offset, nbytes], ...]}
    <- {"phase": "ready"}          imports are done; the parent takes the memory of the empty interpreter
    -> load
    <- {"phase": "resident", "open_ns": ..., "resident_ns": ..., "checksum": ..., ...}
    -> exit                        until then everything is held, so that the parent can measure it

No time is taken across the start of a process: both clocks start after "load". The child dies with its
parent, by signal and, should that be missed, by the end of its stdin.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import sys
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from onecopy_bench.configurations import Configuration, Job

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; leave at once if it is dead already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent died first")


def open_channel() -> TextIO:
    """Keep stdout for the protocol: what frameworks print goes to stderr from here on."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return channel


def say(channel: TextIO, message: dict[str, Any]) -> None:
    """Send one phase to the parent."""
    channel.write(json.dumps(message) + "\n")
    channel.flush()


def wait_for(word: str) -> None:
    """Wait until the parent says `word`; leave where it says anything else or nothing any more."""
    heard = sys.stdin.readline().strip()
    if heard != word:
        sys.exit(f"expected the word {word!r}, heard {heard!r}")


def load(configuration: Configuration, job: Job) -> tuple[dict[str, Any], object]:
    """Run both clocks and return what they and the kernel counted, and what has to stay alive."""
    from onecopy_bench import touch

    before = resource.getrusage(resource.RUSAGE_SELF)
    start = perf_counter_ns()
    opened = configuration.open(job)
    at_open = perf_counter_ns()
    notes = opened.warm() if opened.warm is not None else {}
    at_warm = perf_counter_ns()
    checksum = touch.of_arrays(opened.arrays()) if opened.arrays is not None else None
    at_resident = perf_counter_ns()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "phase": "resident",
        "open_ns": at_open - start,
        "warm_ns": at_warm - start if opened.warm is not None else None,
        "resident_ns": at_resident - start,
        "checksum": checksum,
        "minor_faults": after.ru_minflt - before.ru_minflt,
        "major_faults": after.ru_majflt - before.ru_majflt,
        "cpu_ms": round((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3, 3),
        "notes": notes,
    }, opened


def configuration_named(name: str) -> Configuration:
    """Return the configuration of that name; raises ValueError that lists the names."""
    from onecopy_bench.ceilings import CEILINGS, CONTROLS
    from onecopy_bench.peers import KEYS, ROWS

    every = {entry.name: entry for entry in (*ROWS, *KEYS, *CEILINGS, *CONTROLS)}
    if name not in every:
        raise ValueError(f"no configuration {name!r}; there are {', '.join(every)}")
    return every[name]


def prepare(name: str, path: str, table: dict[str, Any]) -> tuple[Configuration, Job]:
    """Import what the configuration needs and run the touching code once on a small array."""
    import numpy as np

    from onecopy_bench import touch
    from onecopy_bench.configurations import Job
    from onecopy_bench.layout import Piece

    configuration = configuration_named(name)
    for module in configuration.modules:
        importlib.import_module(module)
    for module in configuration.optional:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    touch.of_arrays([("", np.zeros(2 * touch.STRIDE, np.uint8))])
    pieces = tuple(Piece(*piece) for piece in table["pieces"])
    return configuration, Job(path, table["kind"], table["size"], pieces)


def main(arguments: list[str]) -> None:
    """Play the part of one process of one sample."""
    name, path, parent = arguments
    die_with(int(parent))
    channel = open_channel()
    configuration, job = prepare(name, path, json.loads(sys.stdin.readline()))
    gc.collect()
    gc.freeze()
    say(channel, {"phase": "ready"})
    wait_for("load")
    message, held = load(configuration, job)
    say(channel, message)
    wait_for("exit")
    del held


if __name__ == "__main__":
    main(sys.argv[1:])
