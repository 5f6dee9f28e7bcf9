"""The child of a sample of `bench share`: a process of a job, as torchrun starts one per device, with its workers.

An errand without workers ends when the rows are loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import multiprocessing
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Literal

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import missing
from onecopy_bench.scenarios.rows import work
from onecopy_bench.scenarios.rows.data import Source
from onecopy_bench.scenarios.rows.peers import Peer

Start = Literal["fork", "spawn", "forkserver", "forkserver+preload"]
Loader = Literal["loop", "dataloader"]
Allocator = Literal["glibc", "malloc_trim", "jemalloc"]


@dataclass(frozen=True, slots=True)
class Errand:
    """What a rank has to do.

    Attributes
    ----------
    peer, source, folder
        Which rows, from where, and where they are built.
    start, workers
        How many workers, and how they are started; 0: the rows are made ready, and that is all.
    loader
        Workers run the loop of the article, each over all rows; or those of a DataLoader read them once together.
    torch
        Import it in every process where it is installed, because a training program has it.
    limit_s
        Seconds after which a pass stops.
    allocator
        "malloc_trim": called when the rows are ready. Others are chosen by who starts the process.
    """

    peer: str
    source: Source
    folder: str
    start: Start = "fork"
    workers: int = 0
    loader: Loader = "loop"
    torch: bool = True
    limit_s: float = 60.0
    allocator: Allocator = "glibc"


def context_of(start: Start, modules: tuple[str, ...]) -> BaseContext:
    """Return how workers are started; a preloading fork server imports what they need, once for all."""
    context = multiprocessing.get_context(start.partition("+")[0])
    if start == "forkserver+preload":
        context.set_forkserver_preload([work.__name__, *modules])
    return context


def import_all(peer: Peer, errand: Errand) -> tuple[str, ...]:
    """Import what the peer and a training program need, and return it."""
    torch = ("torch",) if errand.torch and not missing(("torch",)) else ()
    modules = tuple(dict.fromkeys(("numpy", *torch, *peer.needs)))
    for name in modules:
        importlib.import_module(name)
    if "torch" in modules:
        importlib.import_module("torch.multiprocessing")  # tensors travel through shared memory
    return modules


def loaded(peer: Peer, errand: Errand) -> tuple[Any, dict[str, Any]]:
    """Make the rows ready and return them with what that took."""
    from onecopy_bench.scenarios.rows.peers import nbytes_of

    start = time.monotonic_ns()
    rows = peer.ready(errand.source, Path(errand.folder))
    taken = time.monotonic_ns() - start
    gc.collect()
    if errand.allocator == "malloc_trim":
        ctypes.CDLL(None).malloc_trim(0)
    handle = len(ForkingPickler.dumps(rows)) if peer.keeps else None
    return rows, {"ready_ns": taken, "nbytes": nbytes_of(rows), "handle_bytes": handle, "rows": len(rows)}


Passed = Generator[list[int], None, tuple[dict[str, Any], Any]]
"""What starts workers, yields their PIDs, and returns what their passes came to and what has to stay alive."""


def loop(rows: Any, errand: Errand, context: Any) -> Passed:
    """Run the loop of the article in each worker; the workers then hold."""
    start = time.monotonic_ns()
    pipes, program = [], [name for name in ("torch",) if name in sys.modules]
    for _ in range(errand.workers):
        mine, its = context.Pipe()
        context.Process(target=work.run, args=(rows, errand.limit_s, its, *program), daemon=True).start()
        its.close()
        pipes.append(mine)
    yield pids_of_workers()
    passes = [work.Pass(*pipe.recv()) for pipe in pipes]
    last_first = max(each.first_ns for each in passes) - start
    return {"last_first_ns": last_first, "passes": [[each.rows, each.total, each.seconds] for each in passes]}, pipes


def dataloader(rows: Any, errand: Errand, context: Any) -> Passed:
    """Read all rows once by the workers of a DataLoader, which then hold."""
    data = importlib.import_module("torch.utils.data")
    start = time.monotonic_ns()
    loader = data.DataLoader(
        work.Judged(rows),
        batch_size=work.STRETCH,
        num_workers=errand.workers,
        multiprocessing_context=context,
        persistent_workers=True,
    )
    batches = iter(loader)
    yield pids_of_workers()
    total = done = last_first = 0
    for number, batch in enumerate(batches, 1):
        total += int(batch.sum())
        done += len(batch)
        if number <= errand.workers:  # they come in turn: by then each has read
            last_first = time.monotonic_ns() - start
        if time.monotonic_ns() - start > errand.limit_s * 1e9:
            break
    seconds = (time.monotonic_ns() - start) / 1e9
    return {"last_first_ns": last_first, "passes": [[done, total, seconds]]}, (loader, batches)


def pids_of_workers() -> list[int]:
    """Return the PIDs of this rank's workers."""
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def play(errand: Errand) -> Steps:
    """Make the rows ready, and then start workers that go over them."""
    from onecopy_bench.scenarios.rows.peers.table import peer_named

    peer = peer_named(errand.peer)
    context = context_of(errand.start, import_all(peer, errand))
    gc.collect()
    yield "ready", {}
    rows, found = loaded(peer, errand)
    yield "loaded", found
    steps = (loop if errand.loader == "loop" else dataloader)(rows, errand, context)
    yield "started", {"workers": next(steps)}
    try:
        next(steps)
    except StopIteration as end:
        passed, held = end.value
    try:
        yield "passed", passed
    finally:
        if errand.loader == "loop":
            for pipe in held:
                with contextlib.suppress(OSError):
                    pipe.send("exit")
            for child in multiprocessing.active_children():
                child.join()
