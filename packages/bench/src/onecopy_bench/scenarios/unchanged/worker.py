"""The child of a sample of `bench unchanged`: a process of a program that loads a file, and answers requests.

Processes answer one after the other, while the others hold what they loaded: a lock on the file decides whose turn it
is, so that times of requests are not those of a wait for a CPU.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
from dataclasses import dataclass
from time import perf_counter_ns

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.unchanged.programs import PROGRAMS

AUTO = "onecopy.auto"
EDITED = "one line edited"
WARM_UP = 3
"""Requests before those that are measured."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What the processes have to do.

    Attributes
    ----------
    way
        `AUTO`, `EDITED`, or anything else: as the program is.
    program, path
        Which program, with which file.
    requests
        How many are measured.
    """

    way: str
    program: str
    path: str
    requests: int


def play(errand: Errand) -> Steps:
    """Load, answer, and hold."""
    if errand.way == AUTO:
        importlib.import_module(AUTO)
    program = named(PROGRAMS, errand.program)
    load = program.edited.load if errand.way == EDITED and program.edited else program.load
    for module in program.needs:
        importlib.import_module(module)
    program.prepare()
    gc.collect()
    yield "ready", {}
    start = perf_counter_ns()
    state = load(errand.path)
    loaded = perf_counter_ns()
    checksum = sum(program.answer(state, number) for number in range(WARM_UP))
    gc.collect()
    yield "loaded", {"load_ns": loaded - start, "first_ns": perf_counter_ns() - start, "checksum": checksum}
    times = []
    lock = os.open(os.path.dirname(errand.path), os.O_RDONLY)  # noqa: PTH120
    fcntl.flock(lock, fcntl.LOCK_EX)
    for number in range(errand.requests):
        begin = perf_counter_ns()
        checksum += program.answer(state, number)
        times.append(perf_counter_ns() - begin)
    os.close(lock)
    yield "answered", {"times_ns": times, "checksum": checksum}
    del state
