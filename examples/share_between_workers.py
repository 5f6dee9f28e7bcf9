"""Four workers, one copy: each opens the same file, and the memory of all of them together is counted.

python examples/share_between_workers.py
"""

import multiprocessing
import os
import tempfile
from pathlib import Path

import numpy as np

import onecopy as oc
from onecopy.memory import proc

WORKERS = 4
MEGABYTES = 64


def work(model: oc.ArrayFile, ready: multiprocessing.Barrier) -> float:
    """Touch every page, wait until every process has, and return this process's share of the file in MB."""
    model["weights"].sum()
    ready.wait()
    share = sum(region.memory.pss for region in proc.regions_of(os.getpid(), model.path))
    ready.wait()
    return share / 1e6


def run(model: oc.ArrayFile, ready: multiprocessing.Barrier, results: multiprocessing.SimpleQueue) -> None:
    """Be one worker: the model came as path and identity, and was opened again on arrival."""
    results.put(work(model, ready))


def main() -> None:
    """Save a file, hand it to the workers, add up."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        oc.save(path, {"weights": np.ones(MEGABYTES * 1_000_000 // 4, np.float32)})
        ready, results = context.Barrier(WORKERS), context.SimpleQueue()
        with oc.open(path) as model:
            workers = [context.Process(target=run, args=(model, ready, results)) for _ in range(WORKERS)]
            for worker in workers:
                worker.start()
            total = sum(results.get() for _ in workers)
            for worker in workers:
                worker.join()
    print(f"{WORKERS} workers hold {total:.0f} MB of a file of {MEGABYTES} MB")


if __name__ == "__main__":
    main()
