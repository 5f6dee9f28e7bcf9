"""The child of a sample of `bench share`: a process of a job, as torchrun starts one per device, with its workers.

    python -m onecopy_bench.records.rank PARENT

One line of JSON comes first, then one word per step; one line of JSON goes out per phase:

    -> {"source": {...}, "peer": ..., "folder": ..., "start": ..., "workers": ..., ...}   see `Errand`
    <- {"phase": "ready"}                          imports are done
    -> load
    <- {"phase": "loaded", "ready_ns": ..., ...}   the rows can be asked for
    -> work
    <- {"phase": "started", "workers": [pid, ...]}
    -> collect                                     meanwhile they work
    <- {"phase": "passed", "last_first_ns": ..., "passes": [[rows, total, seconds], ...]}
    -> exit                                        until then all hold what they hold

An errand without workers ends after "loaded".
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import multiprocessing
import sys
import time
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onecopy_bench.child import die_with, open_channel, say, wait_for
from onecopy_bench.records import work
from onecopy_bench.records.data import Source

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext
    from typing import TextIO

    from onecopy_bench.records.peers import Peer

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


def errand_of(plain: dict[str, Any]) -> Errand:
    """Return an errand from its JSON types."""
    return Errand(**{**plain, "source": Source(**plain["source"])})


def context_of(start: Start, modules: tuple[str, ...]) -> BaseContext:
    """Return how workers are started; a preloading fork server imports what they need, once for all."""
    context = multiprocessing.get_context(start.partition("+")[0])
    if start == "forkserver+preload":
        context.set_forkserver_preload([work.__name__, *modules])
    return context


def import_all(peer: Peer, errand: Errand) -> tuple[str, ...]:
    """Import what the peer and a training program need, and return it."""
    torch = ("torch",) if importlib.util.find_spec("torch") is not None and errand.torch else ()
    modules = tuple(dict.fromkeys(("numpy", *torch, *peer.imports())))
    for name in modules:
        importlib.import_module(name)
    if "torch" in modules:
        importlib.import_module("torch.multiprocessing")  # tensors travel through shared memory
    return modules


def loaded(peer: Peer, errand: Errand) -> tuple[Any, dict[str, Any]]:
    """Make the rows ready and return them with what that took."""
    from onecopy_bench.records.peers import nbytes_of

    start = time.monotonic_ns()
    rows = peer.ready(errand.source, Path(errand.folder))
    taken = time.monotonic_ns() - start
    gc.collect()
    if errand.allocator == "malloc_trim":
        ctypes.CDLL(None).malloc_trim(0)
    handle = len(ForkingPickler.dumps(rows)) if peer.keeps else None
    return rows, {"ready_ns": taken, "nbytes": nbytes_of(rows), "handle_bytes": handle, "rows": len(rows)}


def loop(rows: Any, errand: Errand, context: Any, channel: TextIO) -> dict[str, Any]:
    """Run the loop of the article in each worker, and return what the passes came to; the workers then hold."""
    start = time.monotonic_ns()
    pipes, program = [], [name for name in ("torch",) if name in sys.modules]
    for _ in range(errand.workers):
        mine, its = context.Pipe()
        context.Process(target=work.run, args=(rows, errand.limit_s, its, *program), daemon=True).start()
        its.close()
        pipes.append(mine)
    say(channel, {"phase": "started", "workers": [child.pid for child in multiprocessing.active_children()]})
    wait_for("collect")
    passes = [work.Pass(*pipe.recv()) for pipe in pipes]
    return {
        "last_first_ns": max(each.first_ns for each in passes) - start,
        "passes": [[each.rows, each.total, each.seconds] for each in passes],
        "held": pipes,
    }


def dataloader(rows: Any, errand: Errand, context: Any, channel: TextIO) -> dict[str, Any]:
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
    say(channel, {"phase": "started", "workers": [child.pid for child in multiprocessing.active_children()]})
    wait_for("collect")
    total = done = last_first = 0
    for number, batch in enumerate(batches, 1):
        total += int(batch.sum())
        done += len(batch)
        if number <= errand.workers:  # they come in turn: by then each has read
            last_first = time.monotonic_ns() - start
        if time.monotonic_ns() - start > errand.limit_s * 1e9:
            break
    seconds = (time.monotonic_ns() - start) / 1e9
    return {"last_first_ns": last_first, "passes": [[done, total, seconds]], "held": (loader, batches)}


def main(arguments: list[str]) -> None:
    """Play the part of one rank of one sample."""
    die_with(int(arguments[0]))
    channel = open_channel()
    errand = errand_of(json.loads(sys.stdin.readline()))
    from onecopy_bench.records.peers.table import peer_named

    peer = peer_named(errand.peer)
    context = context_of(errand.start, import_all(peer, errand))
    gc.collect()
    say(channel, {"phase": "ready"})
    wait_for("load")
    rows, found = loaded(peer, errand)
    say(channel, {"phase": "loaded", **found})
    if errand.workers:
        wait_for("work")
        passed = (loop if errand.loader == "loop" else dataloader)(rows, errand, context, channel)
        held = passed.pop("held")
        say(channel, {"phase": "passed", **passed})
    wait_for("exit")
    if errand.workers and errand.loader == "loop":
        for pipe in held:
            with contextlib.suppress(OSError):
                pipe.send("exit")
        for child in multiprocessing.active_children():
            child.join()


if __name__ == "__main__":
    main(sys.argv[1:])
