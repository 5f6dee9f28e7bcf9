"""Groups of nodes of a Ray cluster, whose transport is the object store of Ray.

An actor of the cluster, the directory, forms the groups and remembers which nodes have which files. It needs no CPU
of the cluster, is made by the first process that needs it, and lives as long as the cluster. Pieces do not pass
through it: it hands on references to Ray objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from onecopy.remote.peers import PeerLostError, exchange
from onecopy.remote.pieces import WholeFile
from onecopy.store import file_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Directory", "RayGroup", "node_of_process"]

WINDOW_S = 1.0
"""Seconds without a new node after which a group is complete."""
INVITED_S = 10.0
"""Seconds to wait for nodes that have the file, where a server has it too."""
INVITED = 4
"""Largest number of nodes that have the file, and take part only to pass it on."""
BEAT_S, LOST_S = 1.0, 15.0
"""Seconds between two signs of life of a member; without one after which it is lost."""
_NAME, _NAMESPACE = "directory", "onecopy"
_NO_CPU: dict[str, Any] = {"num_cpus": 0}


class _LostError(Exception):
    """Raised by the directory when a member of a group was lost."""


@dataclass
class _Group:
    """A group in the directory."""

    number: int
    members: list[tuple[str, str]] = field(default_factory=list)  # node and path, by rank
    expected: set[tuple[str, str]] = field(default_factory=set)  # invited nodes that have not come yet
    is_patient: bool = False  # waits for these as long as they live
    joined: float = field(default_factory=time.monotonic)  # time of the last join
    is_formed: bool = False
    formed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    left: set[int] = field(default_factory=set)
    beats: dict[int, float] = field(default_factory=dict)
    answers: dict[Any, asyncio.Future[Any]] = field(default_factory=dict)
    values: dict[int, dict[int, bytes]] = field(default_factory=dict)
    takers: dict[int, int] = field(default_factory=dict)  # of each piece on offer: receivers that lack it
    error: str | None = None

    def answer(self, name: Any) -> asyncio.Future[Any]:
        """Return the future of a name; it fails when a member is lost."""
        if self.error is not None:
            raise _LostError(self.error)
        if name not in self.answers:
            self.answers[name] = asyncio.get_running_loop().create_future()
        return self.answers[name]

    def fail(self, error: str) -> None:
        """End the group: every answer that is still waited for is an error."""
        if self.error is None:
            self.error = error
            for future in self.answers.values():
                if not future.done():
                    future.set_exception(_LostError(error))
                    future.exception()  # perhaps nothing waits for it
            self.answers.clear()


class _Directory:
    """The actor. Nodes are those of Ray, by their identifiers."""

    def __init__(self) -> None:
        self._paths: dict[str, dict[str, tuple[str, str | None]]] = {}  # of each key: node, path, `file_key` of it
        self._current: dict[str, _Group] = {}  # group of each key that is forming, or at work
        self._groups: dict[int, _Group] = {}
        self._companions: dict[str, set[str]] = {}  # nodes of the last group of each node
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    async def note(self, key: str, node: str, path: str, identity: str | None) -> None:
        """Remember that a node has a file."""
        self._paths.setdefault(key, {})[node] = path, identity

    async def forget(self, key: str, node: str) -> None:
        """Note that a node does not have a file after all."""
        self._paths.get(key, {}).pop(node, None)
        if key in self._current:
            self._current[key].expected = {one for one in self._current[key].expected if one[0] != node}

    async def paths(self, key: str) -> dict[str, str]:
        """Return the path of a file on each node that has it."""
        return {node: path for node, (path, _) in self._paths.get(key, {}).items()}

    async def join(self, key: str, node: str, path: str, patient: bool) -> tuple[int, int, int]:
        """Join the group for a file; return its number, the rank in it, and its size when it is complete."""
        while (group := self._current.get(key)) is not None and group.is_formed:
            await group.ended.wait()
        if group is None:
            group = self._current[key] = _Group(next(self._numbers))
            self._groups[group.number] = group
            self._invite(key, group, node)
            self._begin(self._form(key, group))
        rank = len(group.members)
        group.members.append((node, path))
        group.expected.discard((node, path))
        group.is_patient |= patient
        group.joined = group.beats[rank] = time.monotonic()
        await group.formed.wait()
        group.beats[rank] = time.monotonic()
        return group.number, rank, len(group.members)

    def _invite(self, key: str, group: _Group, node: str) -> None:
        """Ask nodes that have a file to pass it on."""
        alive = {one["NodeID"] for one in ray.nodes() if one["Alive"]}
        for holder, (path, identity) in self._paths.get(key, {}).items():
            if holder in alive and holder != node and len(group.expected) < INVITED:
                group.expected.add((holder, path))
                place = NodeAffinitySchedulingStrategy(holder, soft=False)
                task = ray.remote(max_retries=0, scheduling_strategy=place, **_NO_CPU)(_pass_on)
                self._begin(self._withdraw(group, (holder, path), task.remote(key, path, identity)))

    async def _withdraw(self, group: _Group, invited: tuple[str, str], work: ray.ObjectRef[None]) -> None:
        """Expect a node no longer when its work has ended, or cannot be done because the node was lost."""
        with contextlib.suppress(RayError):
            await work
        group.expected.discard(invited)

    async def _form(self, key: str, group: _Group) -> None:
        begun = time.monotonic()
        nodes = {one["NodeID"] for one in ray.nodes() if one["Alive"]}
        while True:
            await asyncio.sleep(0.02)
            now = time.monotonic()
            here = {node for node, _ in group.members}
            companions = set[str]().union(*(self._companions.get(node, set()) for node in here))
            no_more = (
                now - group.joined > WINDOW_S or here >= nodes or (bool(companions) and here >= companions & nodes)
            )
            if no_more and (not group.expected or (now - begun > INVITED_S and not group.is_patient)):
                break
        group.is_formed = True
        for node in here:
            self._companions[node] = here
        group.formed.set()
        self._begin(self._watch(key, group))

    async def _watch(self, key: str, group: _Group) -> None:
        """Fail a group of which a member is silent; end it when all have left or been lost."""
        while len(group.left) < len(group.members):
            await asyncio.sleep(BEAT_S / 5)
            now = time.monotonic()
            for rank, (node, _) in enumerate(group.members):
                if rank not in group.left and now - group.beats[rank] > LOST_S:
                    group.left.add(rank)
                    group.fail(f"node {node[:8]} is silent")
        del self._current[key]
        del self._groups[group.number]
        group.ended.set()

    async def beat(self, number: int, rank: int) -> None:
        """Note a sign of life of a member."""
        if number in self._groups:
            self._groups[number].beats[rank] = time.monotonic()

    async def gather(self, number: int, step: int, rank: int, value: bytes) -> list[bytes]:
        """Return the values of all members; each calls it with the same numbers of steps."""
        group = self._group(number)
        answer = group.answer(("gather", step))
        values = group.values.setdefault(step, {})
        values[rank] = value
        if len(values) == len(group.members):
            answer.set_result([values[one] for one in range(len(values))])
        found: list[bytes] = await asyncio.shield(answer)
        return found

    async def offer(self, number: int, piece: int, reference: list[Any], receivers: int) -> None:
        """Hand on the reference of a piece, and return when all receivers have it."""
        group = self._group(number)
        group.takers[piece] = receivers
        taken = group.answer(("taken", piece))
        group.answer(("piece", piece)).set_result(reference)
        await asyncio.shield(taken)

    async def take(self, number: int, piece: int) -> list[Any]:
        """Return the reference of a piece when it is offered."""
        reference: list[Any] = await asyncio.shield(self._group(number).answer(("piece", piece)))
        return reference

    async def taken(self, number: int, piece: int) -> None:
        """Note that a receiver has a piece."""
        group = self._group(number)
        group.takers[piece] -= 1
        if group.takers[piece] == 0:
            group.answer(("taken", piece)).set_result(None)
            del group.answers["piece", piece], group.answers["taken", piece]

    async def leave(self, key: str, number: int, rank: int, *, complete: bool) -> None:
        """Note that a member has all that it wanted, or ends the group."""
        if number not in self._groups:
            return
        group = self._groups[number]
        group.left.add(rank)
        node, path = group.members[rank]
        if complete:
            await self.note(key, node, path, None)
        else:
            group.fail(f"node {node[:8]} gave up")

    def _group(self, number: int) -> _Group:
        if number not in self._groups:
            raise _LostError("the group has ended")
        return self._groups[number]

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


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
        actor = ray.remote(max_restarts=-1, max_concurrency=10_000, **_NO_CPU)(_Directory).options(**options)
        with _errors():
            return cls(actor.remote())

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
        """Report that this node has a file."""
        with contextlib.suppress(PeerLostError), _errors():
            self._actor.note.remote(key, node_of_process(), str(path), file_key(path))

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
