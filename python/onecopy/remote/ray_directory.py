"""The directory of a Ray cluster: an actor that forms groups of nodes and remembers which nodes have which files.

Pieces do not pass through it: it hands on references to Ray objects. `onecopy.remote.ray_nodes` makes it and calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BEAT_S", "INVITED_S", "NO_CPU", "DirectoryActor"]

WINDOW_S = 1.0
"""Seconds without a new node after which a group is complete."""
INVITED_S = 10.0
"""Seconds to wait for nodes that have the file, where a server has it too."""
INVITED = 4
"""Largest number of nodes that have the file, and take part only to pass it on."""
BEAT_S, LOST_S = 1.0, 15.0
"""Seconds between two signs of life of a member; without one after which it is lost."""
NO_CPU: dict[str, Any] = {"num_cpus": 0}
"""Options of actors and tasks of Ray that wait most of the time."""


class LostError(Exception):
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
            raise LostError(self.error)
        if name not in self.answers:
            self.answers[name] = asyncio.get_running_loop().create_future()
        return self.answers[name]

    def fail(self, error: str) -> None:
        """End the group: every answer that is still waited for is an error."""
        if self.error is None:
            self.error = error
            for future in self.answers.values():
                if not future.done():
                    future.set_exception(LostError(error))
                    future.exception()  # perhaps nothing waits for it
            self.answers.clear()


class DirectoryActor:
    """The actor. Nodes are those of Ray, by their identifiers.

    Parameters
    ----------
    pass_on
        Called on a node that has a file, as a task of Ray, with the key of the file, its path there and its
        `file_key` (None: not known): it joins the group for the file and sends it.
    """

    def __init__(self, pass_on: Callable[[str, str, str | None], None]) -> None:
        self._pass_on = pass_on
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
                task = ray.remote(max_retries=0, scheduling_strategy=place, **NO_CPU)(self._pass_on)
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
            raise LostError("the group has ended")
        return self._groups[number]

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
