"""A model that tasks, actors, Ray Data and Ray Serve use on every node of a cluster: fetched once, one copy per node.

    python examples/ray_cluster.py URL-or-path    # on a node of a cluster, or alone

Needs: pip install 'onecopy[remote]' 'ray[data,serve]'
"""

import sys

import numpy as np
import ray
from ray import serve

import onecopy as oc


@ray.remote
def norm(handle, name: str) -> float:
    """Task: opens the copy of its node, reads one array of it."""
    with handle.open() as model:
        return float(np.linalg.norm(model[name]))


class Scorer:
    """Ray Data: made once per worker process; all workers of a node map one copy."""

    def __init__(self, handle):
        self.model = handle.open()
        self.weights = next(iter(self.model.values()))

    def __call__(self, batch):
        """Add a column."""
        batch["score"] = batch["id"] * float(self.weights.mean())
        return batch


@serve.deployment(num_replicas=2)
class Server:
    """Ray Serve: the replicas of a node map one copy."""

    def __init__(self, handle):
        self.model = handle.open()

    def __call__(self, name: str) -> float:
        """Answer a request."""
        return float(np.linalg.norm(self.model[name]))


def main(source: str) -> None:
    """Use a model in four ways."""
    handle = oc.ray.share(source)
    handle.prefetch()  # optional: otherwise the first process of each node that opens it fetches it
    with handle.open() as model:
        name = next(iter(model))
    near = norm.options(scheduling_strategy=handle.placement())  # on a node that has the file
    print(f"task: {ray.get(near.remote(handle, name)):.6g}")
    scored = ray.data.range(8).map_batches(Scorer, fn_constructor_args=(handle,), concurrency=2)
    print(f"data: {scored.sum('score'):.6g}")
    server = serve.run(Server.bind(handle))
    print(f"serve: {server.remote(name).result():.6g}")
    serve.shutdown()


if __name__ == "__main__":
    if not ray.is_initialized():
        ray.init()
    main(sys.argv[1])
