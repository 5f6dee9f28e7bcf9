"""Nodes that fetch a file together: each fetches other pieces from the origin, and the others ask it for these.

The origin then sends the file about once, not once per node. One process of each node takes part: that which holds the
claim of the file in the store of the node, or one that passes on the file that the node has. It serves its pieces on a
port of one address until the others have what they want of it. The pieces of a node that is lost come from the origin.
Of each piece of another node, some bytes are compared with the origin before the piece counts; a node that sent other
bytes is lost, with all that it has sent. `fetching` compares the whole file, where the origin reports its hash.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import struct
import threading
import time
from functools import partial
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.remote import boards, transfer
from onecopy.remote.boards import RayNodes, nodes_of
from onecopy.remote.channels import Channel, Listener, NodeLostError
from onecopy.remote.pieces import Ranges
from onecopy.remote.steps import StoppedError, nothing, run, waited
from onecopy.remote.transfer import pieces_of, received
from onecopy.store import file_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from onecopy.remote.boards import JobNodes, Nodes
    from onecopy.remote.origin import Origin, Version
    from onecopy.remote.pieces import PartialFile
    from onecopy.store import Store

__all__ = ["Group", "Partners", "assigned", "together"]

WINDOW = 16
"""Number of pieces that a node receives at a time: the memory that receiving needs."""
SAMPLE = 4096
"""Bytes of each piece of another node that are compared with the origin."""
_MAX_PIECE = 64 << 20
_MAX_HELLO = 64 << 20
_REQUEST = struct.Struct("<QQ")
_IDLE_S = 120.0
"""Seconds after which a node is lost that neither asks for a piece nor leaves."""
_BEAT_S, _POLL_S = 2.0, 0.05

Piece = tuple[int, int]
"""First byte of a piece, and that behind it."""
Arrived = tuple[int, memoryview]
"""First byte of a piece, and its bytes, which another node sent."""


class Member(NamedTuple):
    """A node of a group."""

    node: str
    host: str
    port: int
    is_whole: bool
    """Whether the node has the whole file, and takes part to pass it on."""


class Group:
    """The nodes that fetch a file together, seen from one of them, which serves what it has until `close`.

    `nodes` may take part, `key` identifies the content, and `path` is that of the file of this node, which lacks the
    pieces that `file` lacks; None: it is whole. OSError if it cannot be opened.
    """

    def __init__(self, nodes: JobNodes | RayNodes, key: str, path: Path, file: PartialFile | None = None) -> None:
        self._nodes, self._key, self._file = nodes, key, file
        self._name = nodes.board.name("group", key)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # served also after the file was renamed or removed
        self._size = os.fstat(self._fd).st_size
        self._others: list[Member] = []
        self._connected: dict[Member, tuple[Channel, Ranges]] = {}
        self._is_member = False
        self._heard: set[str] = set()  # nodes that have asked for something, or were lost
        self._ended = threading.Event()
        self._fetched = self._received = 0
        self._joined = time.monotonic()
        self._brought: float | None = None
        """When this node had brought its share."""
        try:
            self._listener = Listener(nodes.host, 0, nodes.board.secret, self._serve)
        except OSError as error:
            os.close(self._fd)
            raise NodeLostError(f"{nodes.host} has no port for other nodes: {error.strerror}") from None
        self._own = Member(nodes.node, nodes.host, self._listener.port, file is None)

    # --- which nodes ----------------------------------------------------------------------------------------------

    def join(self, report: Callable[[], object] = nothing, *, patient: bool = False) -> None:
        """Join the group of the file, or begin one, and wait until it is complete; `report` is called meanwhile.

        `patient`: wait for nodes that have the file as long as they live, since no server has it.
        """
        run([partial(self._join, patient)], self._end, report, wait=False)  # the thread may wait for the board

    def _join(self, patient: bool) -> None:
        if not self._own.is_whole:
            self._nodes.take_part(self._key)
        while not self._ended.is_set():
            members = self._joined_members(patient)
            self._joined = time.monotonic()
            self._others = [one for one in members if one.node != self._own.node]
            self._is_member = self._own in members
            if not self._ended.is_set() and not (self._own.is_whole and self._is_member):
                self._connect()
            if self._is_member or self._connected:
                break
            self._nodes.board.update(self._name, partial(_without, members))  # none of them is left
        for channel, _ in self._connected.values() if self._own.is_whole else ():
            channel.close()

    def _joined_members(self, patient: bool) -> list[Member]:
        def added(now: Any) -> Any:
            members = _members(now)
            if now and now["formed"]:
                if self._own.node not in {one.node for one in members}:
                    return now  # it is at work: its members are asked, and this node fetches nothing for them
                members = []
            return {"formed": False, "members": [*(one for one in members if one.node != self._own.node), self._own]}

        board = self._nodes.board
        now = board.update(self._name, added)
        started = changed = time.monotonic()
        before, is_first = 0, False
        while now and not now["formed"] and not self._ended.is_set():
            members = _members(now)
            if len(members) != before:
                before, changed = len(members), time.monotonic()
            if members[:1] == [self._own] and not is_first:  # also where the first one was replaced: it had ended
                is_first = True
                self._nodes.invite(self._key, _pass_on)
            here, quiet = {one.node for one in members}, time.monotonic() - changed
            is_late = time.monotonic() - started > boards.JOIN_S and not patient
            if is_late:
                warn(f"another node of the job was lost: none with the same secret came in {boards.JOIN_S:g} s")
            if is_late or (is_first and self._nodes.is_complete(here, quiet, patient=patient)):
                now = board.update(self._name, lambda now: now and now | {"formed": True})
            else:
                time.sleep(_POLL_S)
                now = board.get(self._name)
        return _members(now)

    def _connect(self) -> None:
        """Connect to the other members, and learn what each has."""
        self._connected = {}
        lost: dict[Member, str] = {}

        def connect(member: Member) -> None:
            try:
                channel = Channel.to(member.host, member.port, self._nodes.board.secret)
                channel.send(json.dumps([self._name, self._own.node]).encode())
                answer = json.loads(channel.receive(_MAX_HELLO))
                if answer["size"] != self._size:
                    raise NodeLostError("it has a file of another size")
                self._connected[member] = channel, Ranges(answer["have"])
            except (NodeLostError, ValueError, TypeError, KeyError) as error:
                lost[member] = str(error)

        run([partial(connect, member) for member in self._others])
        if self._is_member or self._connected:  # else all of them ended before this node came
            for member, reason in lost.items():
                self._lose(member, reason)

    def _lose(self, member: Member, reason: str) -> None:
        self._heard.add(member.node)
        if not self._ended.is_set():
            warn(f"another node of the job was lost ({member.host}): {reason}")

    # --- what this node lacks -------------------------------------------------------------------------------------

    def pull(self, origin: Origin, version: Version, progress: Callable[[int], object], *, connections: int) -> None:
        """Bring what other nodes have, or will have, and fetch this node's share of the rest; some may stay missing.

        `progress` is called about 10 times per second with the number of bytes received from the origin and from nodes.
        Errors are those of `transfer`; other nodes notice one as a lost node.
        """
        file = self._file
        assert file is not None
        lacking = sorted(one.node for one in [*self._others, *[self._own] * self._is_member] if not one.is_whole)
        missing = [*pieces_of(file.have.missing(0, self._size))]
        shares = assigned(missing, {one.node: have for one, (_, have) in self._connected.items()}, lacking)
        compare = partial(_compare, origin, version, self._check_ended)
        steps: list[Callable[[], object]] = [
            partial(self._receive, member, channel, shares.pop(member.node, []), compare)
            for member, (channel, _) in self._connected.items()
        ]
        own = [piece for pieces in shares.values() for piece in pieces]  # those of nodes that are gone, too

        def note(arrived: int) -> None:
            self._fetched = arrived
            self._check_ended()

        def bring() -> None:
            transfer.transfer(origin, version, file, sorted(own), note, connections=connections)
            self._brought = time.monotonic()

        run([bring, *steps], self._end, lambda: progress(self._fetched + self._received))

    def _end(self) -> None:
        self._ended.set()
        for channel, _ in self._connected.values():
            channel.close()

    def _check_ended(self) -> None:
        if self._ended.is_set():
            raise StoppedError

    def _check_patience(self) -> None:
        """Raise NodeLostError if this node brought its share long ago, and another one is far from that."""
        self._check_ended()
        now = time.monotonic()
        if self._brought is not None and now - self._brought > max(boards.JOIN_S, self._brought - self._joined):
            raise NodeLostError("it does not send what it should fetch")

    def _receive(
        self, member: Member, channel: Channel, pieces: list[Piece], compare: Callable[[list[Arrived]], object]
    ) -> None:
        """Receive pieces of a member, which is asked for some of them ahead; without those that come after it is lost.

        Pieces are written when all buffers are full, and when the next one is late.
        """
        file = self._file
        assert file is not None
        number = min(len(pieces), max(1, WINDOW // len(self._connected)))
        buffers = [memoryview(bytearray(max(stop - start for start, stop in pieces))) for _ in range(number)]
        pending: list[Arrived] = []  # in the first of the buffers
        taken: list[Piece] = []

        def take() -> None:
            compare(pending)
            for start, view in pending:
                file.write(start, view)
                taken.append((start, start + len(view)))
                self._received += len(view)
            pending.clear()

        try:
            _ask(channel, pieces[: 2 * number])
            for ahead, (start, stop) in enumerate(pieces, 2 * number):
                while (count := channel.receive_into(view := buffers[len(pending)][: stop - start])) == 0:
                    take()
                    self._check_patience()
                if count != len(view):
                    raise NodeLostError("it sent a piece of another length")
                _ask(channel, pieces[ahead : ahead + 1])
                pending.append((start, view))
                if len(pending) == number:
                    take()
            take()
        except NodeLostError as error:
            if isinstance(error, _LiarError):
                file.forget(taken)
                self._received -= sum(stop - start for start, stop in taken)
            self._lose(member, str(error))
        finally:
            channel.close()

    # --- what others lack -----------------------------------------------------------------------------------------

    def _serve(self, channel: Channel) -> None:
        name, node = json.loads(channel.receive(4096))
        if name != self._name:
            return
        self._heard.add(node)
        have = [(0, self._size)] if self._file is None else list(self._file.have)
        channel.send(json.dumps({"size": self._size, "have": have}).encode())
        buffer = memoryview(b"")
        while not self._ended.is_set():
            start, stop = _REQUEST.unpack(channel.receive(_REQUEST.size, _IDLE_S).ljust(_REQUEST.size, b"\0"))
            if not start < stop <= self._size or stop - start > _MAX_PIECE:
                return
            while self._file is not None and not self._file.wait(start, stop, _BEAT_S):
                if self._ended.is_set():
                    return
                channel.send(b"")
            if len(buffer) < stop - start:
                buffer = memoryview(bytearray(stop - start))
            channel.send(buffer[: os.preadv(self._fd, [buffer[: stop - start]], start)])

    def finish(self, report: Callable[[], object] = nothing) -> None:
        """Serve the other nodes until each has left, or has been lost; `report` is called meanwhile."""
        begun = time.monotonic()
        longest = boards.JOIN_S + 10 * (begun - self._joined)  # for nodes that are slower than this one
        waited_for = {one.node for one in self._others if not one.is_whole and self._is_member}
        while not self._ended.is_set() and time.monotonic() - begun < longest:
            is_late = time.monotonic() - self._joined > boards.JOIN_S
            if self._listener.is_idle and (is_late or waited_for <= self._heard):
                break
            time.sleep(_POLL_S)
            report()
        with contextlib.suppress(NodeLostError):
            run([partial(self._nodes.board.update, self._name, self._left)], report=report, wait=False)

    def _left(self, now: Any) -> Any:
        members = [one for one in _members(now) if one != self._own]
        return {**now, "members": members} if members else None

    def close(self) -> None:
        """Leave the group; what other nodes still wait for is lost to them. Further calls do nothing."""
        self._end()
        self._listener.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def assigned(missing: Sequence[Piece], have: Mapping[str, Ranges], lacking: Sequence[str]) -> dict[str, list[Piece]]:
    """Return which node brings which of the missing pieces: `have` is what each node has that can be asked.

    A piece that nodes have is asked of one of these; another one is fetched from the origin by one of the `lacking`
    nodes, which are in the same order in all of them. The pieces are spread evenly, and in order.

    Examples
    --------
    >>> first, second, third = pieces_of([(0, 3 << 23)])
    >>> found = assigned([first, second, third], {"a": Ranges([first])}, ["b", "c"])
    >>> found == {"a": [first], "c": [second], "b": [third]}
    True
    """
    found: dict[str, list[Piece]] = {}
    for piece in missing:
        number = piece[0] // transfer.PIECE
        able = [node for node, ranges in have.items() if not any(ranges.missing(*piece))] or lacking or [""]
        found.setdefault(able[number % len(able)], []).append(piece)
    return found


def warn(text: str) -> None:
    """Warn of a node that was lost."""
    logging.getLogger("onecopy").warning("onecopy: %s; what is missing comes from the origin", text)


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    """Warn of a node that is lost inside the block, which ends there."""
    try:
        yield
    except NodeLostError as error:
        warn(str(error))


def _ask(channel: Channel, pieces: list[Piece]) -> None:
    for piece in pieces:
        channel.send(_REQUEST.pack(*piece))


def _compare(origin: Origin, version: Version, check: Callable[[], object], pieces: list[Arrived]) -> None:
    """Raise _LiarError unless parts of pieces, which no other node can foresee, are as those of the origin.

    `check` is called meanwhile, and raises an error when this should end.
    """
    if not origin.serves or not pieces:
        return
    samples = [
        (start + (at := secrets.randbelow(max(1, len(view) - SAMPLE + 1))), view[at : at + SAMPLE])
        for start, view in pieces
    ]
    expected = [memoryview(bytearray(len(view))) for _, view in samples]

    async def bring() -> None:
        requests = zip(samples, expected, strict=True)
        await asyncio.gather(*(received(origin, version, start, buffer) for (start, _), buffer in requests))

    try:
        waited(bring(), check)
    except NotImplementedError:
        raise NodeLostError("the origin has no ranges to compare with") from None
    if [view for _, view in samples] != expected:
        raise _LiarError("it sent other bytes than the origin has")


def _without(members: list[Member], now: Any) -> Any:
    return None if _members(now) == members else now


def _members(now: Any) -> list[Member]:
    with contextlib.suppress(KeyError, TypeError):
        found = [Member(*one) for one in now["members"]] if now else []
        if all(map(isinstance, chain(*found), cycle((str, str, int, bool)))):
            return found
    raise NodeLostError("another node of the job wrote what is no list of nodes")


class _LiarError(NodeLostError):
    """A node sent bytes that the origin does not have."""


# --- which nodes a call fetches with ----------------------------------------------------------------------------------


class Partners:
    """The nodes with which a call of `fetch` fetches; without `nodes`: none.

    `report` is called about 10 times per second while others are waited for; what it raises ends the waiting.
    """

    def __init__(self, nodes: JobNodes | RayNodes | None, report: Callable[[], object]) -> None:
        self._nodes, self._report = nodes, report
        self.groups: dict[str, Group] = {}
        """Those of which this process is a node, by the key of the file."""
        self.has_nodes = nodes is not None
        """Whether there are other nodes."""

    def exchange(
        self,
        key: str,
        file: PartialFile,
        origin: Origin,
        version: Version,
        progress: Callable[[int], object],
        *,
        connections: int,
    ) -> None:
        """Bring a file together with other nodes, and serve it to them; some pieces may stay missing."""
        if self._nodes is None:
            return
        with _warned():
            group = self.groups[key] = Group(self._nodes, key, file.path, file)
            group.join(lambda: progress(0), patient=not origin.serves)
            group.pull(origin, version, progress, connections=connections)

    def found(self, key: str, path: Path) -> None:
        """Note that this node has a file, and pass it on to nodes that wait for it."""
        if self._nodes is None:
            return
        with _warned():
            [is_to_serve] = run([partial(self._nodes.is_to_serve, key, path)], report=self._report, wait=False)
            if is_to_serve and key not in self.groups:
                self.groups[key] = Group(self._nodes, key, path)
                self.groups[key].join(self._report)


@contextlib.contextmanager
def together(nodes: Nodes, store: Store, report: Callable[[], object] = nothing) -> Iterator[Partners]:
    """Fetch inside the block with the nodes that `nodes` gives; at its end, serve them until they have the files.

    `store` is that of this node; `nodes` is documented at `onecopy.remote.fetch`.
    """
    others = None
    if nodes is not None:
        with _warned():
            [others] = run([partial(nodes_of, nodes, store)], report=report, wait=False)  # the board may be silent
    partners = Partners(others, report)
    try:
        yield partners
        for group in partners.groups.values():
            group.finish(report)
    finally:
        for group in partners.groups.values():
            group.close()
        if others is not None:
            others.board.close()


def _pass_on(key: str, path: Path, identity: str) -> None:
    """Take part in the group for a file on behalf of a node that has it, unless it was written or removed since."""
    nodes = RayNodes()
    try:
        group = Group(nodes, key, path)
        with contextlib.suppress(NodeLostError), contextlib.closing(group):
            if identity != file_key(path):
                raise FileNotFoundError(path)
            group.join()
            group.finish()
    except OSError:
        nodes.forget(key)
