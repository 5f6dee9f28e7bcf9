"""The child of a sample of `bench dataset`: a rank of a training run, which forks workers that read its images.

In each epoch the images are shuffled, and each rank reads its part with its workers, which add up the pixels.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.dataset.ways import WAYS, Pictures, Work


@dataclass(frozen=True, slots=True)
class Errand:
    """What the ranks have to do.

    Attributes
    ----------
    way, work
        What, with which files.
    ranks, workers
        How many ranks there are, and how many workers each has.
    """

    way: str
    work: Work
    ranks: int
    workers: int


def rank_of(errand: Errand) -> int:
    """Return a number that no other rank has: the first whose file this process creates."""
    for number in range(errand.ranks):
        try:
            os.close(os.open(Path(errand.work.folder, f"rank-{number}"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return number
    raise ValueError(f"more than {errand.ranks} ranks")


def read(images: Pictures, part: tuple[int, int], pipe: Connection) -> None:
    """Read the part (first, step) of every epoch that the rank sends, and send the sum of the pixels."""
    first, step = part
    while (epoch := pipe.recv()) is not None:
        order = np.random.default_rng(epoch).permutation(len(images))[first::step]
        pipe.send(sum(int(images[number].sum()) for number in order))


def play(errand: Errand) -> Steps:
    """Open the dataset, fork the workers, read an epoch; then read another one."""
    way = named(WAYS, errand.way)
    for module in way.needs:
        importlib.import_module(module)
    rank = rank_of(errand)
    gc.collect()
    yield "ready", {}
    start = perf_counter_ns()
    images: Any = way.open(errand.work)
    opened = perf_counter_ns()
    pipes, context = [], multiprocessing.get_context("fork")
    for worker in range(errand.workers):
        mine, its = context.Pipe()
        part = rank * errand.workers + worker, errand.ranks * errand.workers
        context.Process(target=read, args=(images, part, its), daemon=True).start()
        pipes.append(mine)
    workers = [child.pid for child in multiprocessing.active_children()]
    for epoch, phase in enumerate(("first", "second")):
        start = start if epoch == 0 else perf_counter_ns()
        for pipe in pipes:
            pipe.send(epoch)
        checksum = sum(pipe.recv() for pipe in pipes)
        taken = perf_counter_ns() - start
        yield phase, {"ns": taken, "open_ns": opened - start, "checksum": checksum, "workers": workers}
    for pipe in pipes:
        pipe.send(None)
