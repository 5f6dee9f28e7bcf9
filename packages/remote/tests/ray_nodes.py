"""Ray clusters whose nodes are on this machine, each with a store of its own."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self


class RayNodes:
    """A cluster; node K has its store in the folder `node-K`. `setup` is called first in each process of a task."""

    def __init__(self, folder: Path, count: int, setup: Callable[[], object] | None = None) -> None:
        import ray
        from ray.cluster_utils import Cluster

        self.folder = folder
        self.nodes: list[Any] = []
        self._cluster = Cluster()
        for _ in range(count):
            self.add()
        self.address = self._cluster.address
        environment = {"worker_process_setup_hook": setup} if setup else None
        ray.init(address=self.address, log_to_driver=False, configure_logging=False, runtime_env=environment)

    def add(self) -> str:
        environment = {"ONECOPY_CACHE": str(self.folder / f"node-{len(self.nodes)}"), "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = str(Path(__file__).parent)  # for workers, which import the tasks below
        node = self._cluster.add_node(
            num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, env_vars=environment
        )
        self.nodes.append(node)
        return str(node.node_id)

    def kill(self, number: int) -> None:
        """End a node with all its processes, at once."""
        self._cluster.remove_node(self.nodes[number], allow_graceful=False)

    def on(self, number: int, function: Any, *arguments: Any) -> Any:
        """Begin a task on a node, and return the reference of its result."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        place = NodeAffinitySchedulingStrategy(self.nodes[number].node_id, soft=False)
        return ray.remote(num_cpus=0, max_retries=0)(function).options(scheduling_strategy=place).remote(*arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the cluster, and remove its logs."""
        import ray

        logs = self._cluster.head_node.get_session_dir_path()
        ray.shutdown()
        self._cluster.shutdown()
        shutil.rmtree(logs, ignore_errors=True)


# What runs in tasks is here: workers find this module, and not the modules of tests.


def fetched(url: str) -> str:
    """Fetch with the other nodes; return the digest of the content."""
    from onecopy.remote import fetch

    return hashlib.sha256(fetch(url, nodes="ray").read_bytes()).hexdigest()


def opened(handle) -> tuple[str, float]:
    """Open a handle; return the path and a number of the file."""
    with handle.open() as file:
        return str(file.path), float(file["weight"][7])


def names_of(handle) -> list[str]:
    """Open a handle; return the names of the arrays."""
    return sorted(handle.open())
