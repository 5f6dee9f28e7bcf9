"""A model on the workers of a Dask cluster: fetched once per machine, one copy for all workers of a machine.

    python examples/dask_cluster.py URL [SCHEDULER]

Needs: pip install 'onecopy[remote]' 'dask[distributed]'
"""

import sys

import numpy as np
from dask.distributed import Client, get_worker

import onecopy as oc


def norm(url: str, name: str) -> float:
    """Task: the worker opens the URL once, and keeps it."""
    worker = get_worker()
    if getattr(worker, "model", None) is None:
        worker.model = oc.open(url)
    return float(np.linalg.norm(worker.model[name]))


def main(url: str, scheduler: str | None = None) -> None:
    """Fetch on every machine before the work begins, then compute."""
    with Client(scheduler) if scheduler else Client(n_workers=2, threads_per_worker=1) as client:
        client.run(lambda: list(oc.open(url)))  # optional: otherwise the first task of each machine fetches it
        with oc.open(url) as model:
            names = list(model)
        for name, value in zip(names, client.gather(client.map(norm, [url] * len(names), names)), strict=True):
            print(f"{name}: {value:.6g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
