"""A process of a job, as torchrun starts one per device, with its workers: what `bench share` measures.

"Demystify RAM usage in multi-process data loaders" reads each row and pickles it, which touches the reference count of
every object in it, as handing it on would. Beside that each row is judged by its checksum, at the same cost for all.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import multiprocessing
import os
import pickle
import time
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Literal, NamedTuple

from onecopy_bench.engine.child import Steps, die_with
from onecopy_bench.engine.ways import missing, named
from onecopy_bench.workers.rows import Source, checksum

Start = Literal["fork", "spawn", "forkserver", "forkserver+preload"]

STRETCH = 256
"""Rows between two readings of the clock."""


class Pass(NamedTuple):
    """What one pass over the rows came to.

    `first_ns` is when the first row had been read, by the clock that all processes share; `rows` the rows read, in
    order from the first, before time was up; `total` the sum of their checksums.
    """

    first_ns: int
    rows: int
    total: int
    seconds: float


def read(rows: Any, index: int) -> int:
    """Read one row, pickle it as the article does, and return its checksum."""
    row = rows[index]
    pickle.dumps(row)
    return checksum(index, row)


def go_over(rows: Any, limit_s: float) -> Pass:
    """Read all rows in their order, or as many as there is time for."""
    first_ns = total = done = 0
    start = time.monotonic_ns()
    for begin in range(0, len(rows), STRETCH):
        for index in range(begin, min(begin + STRETCH, len(rows))):
            total += read(rows, index)
            done += 1
            first_ns = first_ns or time.monotonic_ns()
        if time.monotonic_ns() - start > limit_s * 1e9:
            break
    return Pass(first_ns, done, total, (time.monotonic_ns() - start) / 1e9)


def run_worker(rows: Any, limit_s: float, pipe: Connection, *modules: str) -> None:
    """Be a worker that has imported some modules: one pass, then hold everything until the pipe says so or ends."""
    die_with(os.getppid())
    for name in modules:
        importlib.import_module(name)
    pipe.send(go_over(rows, limit_s))
    with contextlib.suppress(EOFError):
        pipe.recv()


def _context_of(start: Start, modules: tuple[str, ...]) -> BaseContext:
    """Return how workers are started; a preloading fork server imports what they need, once for all."""
    context = multiprocessing.get_context(start.partition("+")[0])
    if start == "forkserver+preload":
        context.set_forkserver_preload([__name__, *modules])
    return context


def _import_all(needs: tuple[str, ...], torch_too: bool) -> tuple[str, ...]:
    """Import what the rival and a training program need, and return it."""
    torch = ("torch",) if torch_too and not missing(("torch",)) else ()
    modules = tuple(dict.fromkeys(("numpy", *torch, *needs)))
    for name in modules:
        importlib.import_module(name)
    if "torch" in modules:
        importlib.import_module("torch.multiprocessing")  # tensors travel through shared memory
    return modules


def play(
    rival: str,
    source: Source,
    folder: str,
    start: Start = "fork",
    workers: int = 0,
    torch: bool = True,
    limit_s: float = 60.0,
    allocator: str = "glibc",
) -> Steps:
    """Make the rows ready in a folder; then start workers that go over them for some seconds. 0 workers: that is all.

    `torch`: import it in every process where it is installed, because a training program has it. `allocator`:
    "malloc_trim" is called when the rows are ready; others are chosen by who starts the process.
    """
    from onecopy_bench.workers.rivals import SHARED, nbytes_of

    chosen = named(SHARED, rival)
    modules = _import_all(chosen.needs, torch)
    program = [name for name in modules if name == "torch"]
    context: Any = _context_of(start, modules)
    gc.collect()
    yield "ready", {}
    begin = time.monotonic_ns()
    rows = chosen.ready(source, Path(folder))
    taken = time.monotonic_ns() - begin
    gc.collect()
    if allocator == "malloc_trim":
        ctypes.CDLL(None).malloc_trim(0)
    yield "loaded", {"ready_ns": taken, "nbytes": nbytes_of(rows)}
    begin, pipes = time.monotonic_ns(), []
    for _ in range(workers):
        mine, its = context.Pipe()
        context.Process(target=run_worker, args=(rows, limit_s, its, *program), daemon=True).start()
        its.close()
        pipes.append(mine)
    yield "started", {"workers": [child.pid for child in multiprocessing.active_children()]}
    passes = [Pass(*pipe.recv()) for pipe in pipes]
    last_first = max(each.first_ns for each in passes) - begin
    found = [[each.rows, each.total, each.seconds] for each in passes]
    try:
        yield "passed", {"last_first_ns": last_first, "passes": found}
    finally:
        for pipe in pipes:
            with contextlib.suppress(OSError):
                pipe.send("exit")
        for child in multiprocessing.active_children():
            child.join()
