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
import sys
import time
from collections.abc import Generator
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Literal, NamedTuple

from onecopy_bench.engine.child import Steps, die_with
from onecopy_bench.engine.ways import missing, named
from onecopy_bench.workers.rows import Source, checksum

Start = Literal["fork", "spawn", "forkserver", "forkserver+preload"]
Loop = Literal["loop", "dataloader"]
Allocator = Literal["glibc", "malloc_trim", "jemalloc"]

STRETCH = 256
"""Rows between two readings of the clock; the batch of a DataLoader."""


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


class Judged:
    """The rows as a Dataset: an item is the checksum of a row that was read and pickled in the worker."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> int:
        return read(self.rows, index)


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


Passed = Generator[list[int], None, tuple[dict[str, Any], Any]]
"""What starts workers, yields their PIDs, and returns what their passes came to and what has to stay alive."""


def loop(rows: Any, workers: int, limit_s: float, context: Any) -> Passed:
    """Run the loop of the article in each worker; the workers then hold."""
    start = time.monotonic_ns()
    pipes, program = [], [name for name in ("torch",) if name in sys.modules]
    for _ in range(workers):
        mine, its = context.Pipe()
        context.Process(target=run_worker, args=(rows, limit_s, its, *program), daemon=True).start()
        its.close()
        pipes.append(mine)
    yield _pids_of_workers()
    passes = [Pass(*pipe.recv()) for pipe in pipes]
    last_first = max(each.first_ns for each in passes) - start
    return {"last_first_ns": last_first, "passes": [[each.rows, each.total, each.seconds] for each in passes]}, pipes


def dataloader(rows: Any, workers: int, limit_s: float, context: Any) -> Passed:
    """Read all rows once by the workers of a DataLoader, which then hold."""
    data = importlib.import_module("torch.utils.data")
    start = time.monotonic_ns()
    loader = data.DataLoader(
        Judged(rows),
        batch_size=STRETCH,
        num_workers=workers,
        multiprocessing_context=context,
        persistent_workers=True,
    )
    batches = iter(loader)
    yield _pids_of_workers()
    total = done = last_first = 0
    for number, batch in enumerate(batches, 1):
        total += int(batch.sum())
        done += len(batch)
        if number <= workers:  # they come in turn: by then each has read
            last_first = time.monotonic_ns() - start
        if time.monotonic_ns() - start > limit_s * 1e9:
            break
    seconds = (time.monotonic_ns() - start) / 1e9
    return {"last_first_ns": last_first, "passes": [[done, total, seconds]]}, (loader, batches)


def _pids_of_workers() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def play(
    rival: str,
    source: Source,
    folder: str,
    start: Start = "fork",
    workers: int = 0,
    loader: Loop = "loop",
    torch: bool = True,
    limit_s: float = 60.0,
    allocator: Allocator = "glibc",
) -> Steps:
    """Make the rows ready in a folder; then start workers that go over them for some seconds. 0 workers: that is all.

    `loader`: each worker runs the loop of the article over all rows, or those of a DataLoader read them once together.
    `torch`: import it in every process where it is installed, because a training program has it. `allocator`:
    "malloc_trim" is called when the rows are ready; others are chosen by who starts the process.
    """
    from onecopy_bench.workers.rivals import SHARED, nbytes_of

    chosen = named(SHARED, rival)
    context = _context_of(start, _import_all(chosen.needs, torch))
    gc.collect()
    yield "ready", {}
    begin = time.monotonic_ns()
    rows = chosen.ready(source, Path(folder))
    taken = time.monotonic_ns() - begin
    gc.collect()
    if allocator == "malloc_trim":
        ctypes.CDLL(None).malloc_trim(0)
    handle = len(ForkingPickler.dumps(rows)) if chosen.keeps else None
    yield "loaded", {"ready_ns": taken, "nbytes": nbytes_of(rows), "handle_bytes": handle, "rows": len(rows)}
    steps = (loop if loader == "loop" else dataloader)(rows, workers, limit_s, context)
    yield "started", {"workers": next(steps)}
    try:
        next(steps)
    except StopIteration as end:
        passed, held = end.value
    try:
        yield "passed", passed
    finally:
        if loader == "loop":
            for pipe in held:
                with contextlib.suppress(OSError):
                    pipe.send("exit")
            for child in multiprocessing.active_children():
                child.join()
