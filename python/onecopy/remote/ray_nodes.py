"""Nodes of a Ray cluster that fetch together, and the actor that has the texts of their board.

The actor needs no CPU of the cluster, is made by the first process that needs it, and lives as long as the cluster. It
makes the secret of the cluster. Pieces pass from node to node, and not through Ray.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from onecopy.remote.boards import Board, Texts
from onecopy.remote.channels import NodeLostError, lost
from onecopy.remote.groups import Group
from onecopy.store import file_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from onecopy.remote.groups import Member

__all__ = ["RayNodes", "node_of_process"]

WINDOW_S = 1.0
"""Seconds without a new node after which a group is complete."""
INVITED_S = 10.0
"""Seconds to wait for nodes that have the file, where a server has it too."""
INVITED = 4
"""Largest number of nodes that have the file, and take part only to pass it on."""
_NAME, _NAMESPACE = "directory", "onecopy"
_NO_CPU: dict[str, Any] = {"num_cpus": 0}
_companions: set[str] = set()  # the nodes of the last group of this process, which are likely those of the next


def _errors() -> AbstractContextManager[None]:
    return lost(RayError, "another node of the cluster was lost", lambda error: getattr(error, "cause", None) or error)


class _Actor(Texts):
    """The actor: texts, and a secret."""

    def secret(self) -> bytes:
        if not hasattr(self, "_secret"):
            self._secret = secrets.token_bytes(32)
        return self._secret


class _TextsOfActor(Texts):
    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def swap(self, name: str, expected: str, text: str) -> str:
        with _errors():
            return str(ray.get(self._actor.swap.remote(name, expected, text)))


class RayNodes:
    """The nodes of the cluster, seen from one of them, with their board."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.node, self.host = node_of_process(), ray.util.get_node_ip_address()
        self._invited: dict[str, Any] = {}  # the task by the node
        self._begun = 0.0
        self.is_patient = False

    @classmethod
    def of_cluster(cls) -> RayNodes:
        """Return the nodes of the cluster of this process; the first call in the cluster makes the actor.

        RuntimeError if the process is not of a cluster.
        """
        if not ray.is_initialized():
            raise RuntimeError("nodes='ray': this process is not of a Ray cluster: call ray.init() first")
        options = {"name": _NAME, "namespace": _NAMESPACE, "lifetime": "detached", "get_if_exists": True}
        with _errors():
            actor = ray.remote(max_restarts=-1, max_task_retries=3, **_NO_CPU)(_Actor).options(**options).remote()
            return cls(Board(_TextsOfActor(actor), "ray", ray.get(actor.secret.remote())))

    def begin(self, key: str) -> None:
        """Ask nodes that have the file to pass it on."""
        self._begun = time.monotonic()
        alive = _alive()
        holders = {node: how for node, how in self._holders(key).items() if node in alive and node != self.node}
        for node, (path, identity) in list(holders.items())[:INVITED]:
            place = NodeAffinitySchedulingStrategy(node, soft=False)
            task = ray.remote(max_retries=0, scheduling_strategy=place, **_NO_CPU)(_pass_on)
            self._invited[node] = task.remote(key, path, identity)

    def is_complete(self, members: Sequence[Member], quiet: float) -> bool:
        """Return whether all nodes that are alive are members, or no other has come for a while, and no guest will."""
        here = {member.node for member in members}
        coming = [task for node, task in self._invited.items() if node not in here]
        if len(ray.wait(coming, num_returns=len(coming), timeout=0)[0] if coming else []) < len(coming) and (
            self.is_patient or time.monotonic() - self._begun < INVITED_S
        ):
            return False
        alive = _alive()
        if quiet < WINDOW_S and not here >= alive and not (_companions and here >= _companions & alive):
            return False
        _companions.clear()
        _companions.update(here)
        return True

    def take_part(self, key: str, *, patient: bool) -> None:  # noqa: ARG002
        """Note how long to wait for nodes that have the file."""
        self.is_patient = patient
        self._invited.clear()

    def is_to_serve(self, key: str, path: Path) -> bool:
        """Note that this node has a file, which it serves when it is asked to; return False."""
        entry = [str(path), file_key(path)]
        self.board.update(self.board.name("have", key), lambda now: {**(now or {}), self.node: entry})
        return False

    def forget(self, key: str) -> None:
        """Note that this node does not have a file."""
        self.board.update(
            self.board.name("have", key),
            lambda now: {node: how for node, how in (now or {}).items() if node != self.node},
        )

    def _holders(self, key: str) -> dict[str, list[str]]:
        return self.board.get(self.board.name("have", key)) or {}

    def having(self, key: str) -> set[str]:
        """Return the nodes that have a file, and are alive."""
        return self._holders(key).keys() & _alive()


def _pass_on(key: str, path: str, identity: str) -> None:
    """Take part in the group for a file on behalf of a node that has it, unless it was written or removed since."""
    nodes = RayNodes.of_cluster()
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            if identity != file_key(path):
                raise FileNotFoundError(path)
            group = Group(nodes, key, file.fileno(), os.fstat(file.fileno()).st_size)
    except OSError:
        nodes.forget(key)
        return
    with contextlib.suppress(NodeLostError), contextlib.closing(group):
        group.join()
        group.finish()


def _alive() -> set[str]:
    return {one["NodeID"] for one in ray.nodes() if one["Alive"]}


def node_of_process() -> str:
    """Return the identifier of the node of this process."""
    return str(ray.get_runtime_context().get_node_id())
