"""Groups of nodes of a Ray cluster, whose transport is the object store of Ray.

An actor of the cluster, the directory (`onecopy.remote.ray_directory`), forms the groups. It needs no CPU of the
cluster, is made by the first process that needs it, and lives as long as the cluster.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import RayError

from onecopy.remote.peers import PeerLostError, exchange
from onecopy.remote.pieces import WholeFile
from onecopy.remote.ray_directory import BEAT_S, INVITED_S, NO_CPU, DirectoryActor
from onecopy.store import file_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Directory", "RayGroup", "node_of_process"]

_NAME, _NAMESPACE = "directory", "onecopy"


class Directory:
    """The directory of the cluster, for a process of one of its nodes.

    Parameters
    ----------
    actor
        Its handle.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    @classmethod
    def of_cluster(cls) -> Directory:
        """Return the directory of the cluster of this process; the first call in the cluster makes it.

        RuntimeError if the process is not of a cluster.
        """
        if not ray.is_initialized():
            raise RuntimeError("peers='ray': this process is not of a Ray cluster: call ray.init() first")
        options = {"name": _NAME, "namespace": _NAMESPACE, "lifetime": "detached", "get_if_exists": True}
        actor = ray.remote(max_restarts=-1, max_concurrency=10_000, **NO_CPU)(DirectoryActor).options(**options)
        with _errors():
            return cls(actor.remote(_pass_on))

    def join(
        self, key: str, path: Path, waiting: Callable[[], object] = lambda: None, *, patient: bool = False
    ) -> RayGroup:
        """Join the group for a file; PeerLostError if that is not possible.

        Parameters
        ----------
        path
            Where the file is on this node, or will be.
        waiting
            Called about once per second.
        patient
            Wait for nodes that have the file as long as they live.
        """
        with _errors():
            joined = self._actor.join.remote(key, node_of_process(), str(path), patient)
            while not ray.wait([joined], timeout=1)[0]:
                waiting()
            return RayGroup(self._actor, key, *ray.get(joined))

    def note(self, key: str, path: Path) -> None:
        """Report that this node has a file; returns when the directory knows, so a node that joins next finds it."""
        with contextlib.suppress(PeerLostError), _errors():
            ray.get(self._actor.note.remote(key, node_of_process(), str(path), file_key(path)))

    def forget(self, key: str) -> None:
        """Report that this node does not have a file."""
        with contextlib.suppress(PeerLostError), _errors():
            self._actor.forget.remote(key, node_of_process())

    def paths(self, key: str) -> dict[str, str]:
        """Return the path of a file on each node that has it, by the identifier of the node."""
        with _errors():
            found: dict[str, str] = ray.get(self._actor.paths.remote(key))
            return found


class RayGroup:
    """Nodes of a cluster that fetch a file together, as `onecopy.remote.peers.Group`. Made by `Directory.join`."""

    def __init__(self, actor: Any, key: str, number: int, rank: int, size: int) -> None:
        self._actor, self._key, self._number = actor, key, number
        self.rank, self.size = rank, size
        self._steps = itertools.count()
        self._offered: list[Any] = []  # answers of the directory that are waited for
        self._references: dict[Any, Any] = {}  # of pieces, by these answers
        self._complete = False
        self._closed = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="onecopy-beat", daemon=True)
        self._beats.start()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_S):
            with contextlib.suppress(PeerLostError), _errors():
                self._actor.beat.remote(self._number, self.rank)

    def gather(self, value: bytes) -> list[bytes]:
        """Return the values of all nodes by rank."""
        with _errors():
            found: list[bytes] = ray.get(self._actor.gather.remote(self._number, next(self._steps), self.rank, value))
            return found

    def send(self, piece: int, receivers: Sequence[int], data: memoryview) -> Callable[[], object]:
        """Put a piece into the object store of this node; the returned function waits until all receivers have it."""
        with _errors():
            reference = ray.put(np.frombuffer(data, np.uint8))
            offered = self._actor.offer.remote(self._number, piece, [reference], len(receivers))

        def wait() -> None:
            with _errors():
                ray.get(offered)
            reference.hex()  # it must live until here

        return wait

    def receive(self, piece: int, sender: int, buffer: memoryview) -> Callable[[], object]:  # noqa: ARG002
        """Begin to receive a piece; the returned function waits until `buffer` is filled."""
        with _errors():
            offered = self._actor.take.remote(self._number, piece)
            self._offered.append(offered)

        def wait() -> None:
            with _errors():
                self._fetch_ahead(0)
                while offered in self._offered:
                    self._fetch_ahead(None)
                buffer[:] = ray.get(self._references.pop(offered))
                self._actor.taken.remote(self._number, piece)

        return wait

    def _fetch_ahead(self, timeout: float | None) -> None:
        """Let Ray begin to bring the pieces that are offered to this node; None: wait for one."""
        if not self._offered:
            return
        count = 1 if timeout is None else len(self._offered)
        answers, self._offered = ray.wait(self._offered, num_returns=count, timeout=timeout)
        for answer in answers:
            [reference] = ray.get(answer)
            ray.wait([reference], timeout=0)
            self._references[answer] = reference

    def complete(self) -> None:
        """Say that this node has all pieces, and sent all that were wanted, so that `close` does not end the group."""
        self._complete = True

    def close(self) -> None:
        """Leave the group; before `complete`, what other nodes still wait for raises an error there."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._beats.join()
        with contextlib.suppress(PeerLostError), _errors():
            ray.get(self._actor.leave.remote(self._key, self._number, self.rank, complete=self._complete))


def _pass_on(key: str, path: str, identity: str | None) -> None:
    """Take part in the group for a file on behalf of a node that has it, unless it was written or removed since."""
    directory = Directory.of_cluster()
    try:
        file = _opened(Path(path))
        if identity not in (None, file_key(path)):
            file.close()
            directory.forget(key)
            return
    except OSError:
        directory.forget(key)
        return
    with contextlib.closing(file), contextlib.suppress(PeerLostError):
        group = directory.join(key, Path(path))
        with contextlib.closing(group):
            exchange(group, key, file, lambda *_: None)
            group.complete()


def _opened(path: Path) -> WholeFile:
    """Open a file that may be about to get its final name."""
    until = time.monotonic() + INVITED_S / 2
    while True:
        try:
            return WholeFile(path)
        except FileNotFoundError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def node_of_process() -> str:
    """Return the identifier of the node of this process."""
    found: str = ray.get_runtime_context().get_node_id()
    return found


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raise the errors of Ray, and those of the directory, as `PeerLostError`."""
    try:
        yield
    except RayError as error:
        reason = getattr(error, "cause", None) or error
        text = str(reason).strip().split("\n", 1)[0]
        raise PeerLostError(f"another node of the cluster was lost: {text[:200]}") from None
