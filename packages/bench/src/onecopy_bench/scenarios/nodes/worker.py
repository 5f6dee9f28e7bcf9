"""The child of a sample of `bench nodes`: a process of a node that wants the arrays of a model."""

from __future__ import annotations

import gc
import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.nodes.ways import WAYS, Place, touched


@dataclass(frozen=True, slots=True)
class Errand:
    """What the processes of all nodes have to do.

    Attributes
    ----------
    way, name
        How to load which object.
    processes
        On each node.
    hosts
        Addresses of the nodes.
    names
        Of the arrays that are wanted; empty: all.
    ray
        Address of the Ray cluster; empty: none.
    """

    way: str
    name: str
    processes: int
    hosts: tuple[str, ...]
    names: tuple[str, ...]
    ray: str


def play(errand: Errand) -> Steps:
    """Load the arrays, and hold them."""
    way = named(WAYS, errand.way)
    node, number = (int(os.environ[name]) for name in ("BENCH_NODE", "BENCH_PROCESS"))
    place = Place(node, number, Path(os.environ["BENCH_FOLDER"]), errand.hosts, errand.names)
    for module in way.needs:
        importlib.import_module(module)
    if errand.ray:
        import ray

        ray.init(address=errand.ray, _node_ip_address=errand.hosts[node], log_to_driver=False, configure_logging=False)
    gc.collect()
    gc.freeze()
    yield "ready", {}
    start = perf_counter_ns()
    arrays = way.load(errand.name, place)
    for array in arrays.values():
        array.reshape(-1)[:1].tolist()
        array.reshape(-1)[-1:].tolist()
    ready = perf_counter_ns() - start
    yield "loaded", {"ready_ns": ready, "checksum": touched(arrays, place, errand.processes)}
    del arrays
