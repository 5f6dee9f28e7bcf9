"""Nodes that fetch a file together: each fetches other pieces from the origin, and the others ask it for these.

The origin then sends the file about once, not once per node. One process of each node takes part: that which holds the
claim of the file in the store of the node, or one that passes on the file that the node has. It serves its pieces on a
port of one address until the others have what they want of it. The pieces of a node that is lost come from the origin.
Of each piece of another node, some bytes are compared with the origin before the piece counts; a node that sent other
bytes is lost, with all that it has sent.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import secrets
import struct
import threading
import time
from functools import partial
from itertools import chain, cycle, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, Union

from onecopy.identity import boot_identity, start_of
from onecopy.remote import boards, transfer
from onecopy.remote.boards import job_of_addresses, job_of_torchrun
from onecopy.remote.channels import Channel, Listener, NodeLostError
from onecopy.remote.pieces import Ranges
from onecopy.remote.steps import StoppedError, nothing, run
from onecopy.remote.transfer import pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onecopy.remote.boards import Board, Job
    from onecopy.remote.pieces import PartialFile
    from onecopy.remote.ray_nodes import RayNodes
    from onecopy.store import Store

__all__ = ["Differs", "Fetch", "Group", "JobNodes", "NodeLostError", "Nodes", "Partners", "assigned", "together"]

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

Nodes: TypeAlias = Union["Sequence[str]", Literal["ray", "torchrun"], None]
"""Nodes that fetch together, as `onecopy.remote.fetch` documents them."""
Piece = tuple[int, int]
"""First byte of a piece, and that behind it."""
Fetch: TypeAlias = "Callable[[list[Piece], Callable[[int], object]], object]"
"""Fetches pieces from the origin into the file; the function is called with the number of bytes that have arrived."""
Differs: TypeAlias = "Callable[[Sequence[tuple[int, memoryview]], Callable[[], object]], bool]"
"""Whether the origin has other bytes than some, each with its first position; the function raises when it should end.
Called in threads, as `Fetch` is."""
_calls = itertools.count()
_PID_SPACE = Path("/proc/self/ns/pid")


class Member(NamedTuple):
    """A node of a group."""

    node: str
    host: str
    port: int
    is_whole: bool
    """Whether the node has the whole file, and takes part to pass it on."""


class Group:
    """The nodes that fetch a file together, seen from one of them, which serves what it has until `close`.

    `nodes` may take part, `key` identifies the content, `fd` and `size` are those of the file of this node, and `file`
    is the same file if it lacks pieces; None: the node has all.
    """

    def __init__(
        self, nodes: JobNodes | RayNodes, key: str, fd: int, size: int, file: PartialFile | None = None
    ) -> None:
        self._nodes, self._key, self._size, self._file = nodes, key, size, file
        self._name = nodes.board.name("group", key)
        self._fd = os.dup(fd)  # served also after the file was closed
        self._others: list[Member] = []
        self._connected: dict[Member, tuple[Channel, Ranges]] = {}
        self._is_member = False
        self._begun: set[str] = set()  # nodes that have asked for something
        self._gone: set[str] = set()
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

    def join(self, report: Callable[[], object] = nothing) -> None:
        """Join the group of the file, or begin one, and wait until it is complete; `report` is called meanwhile."""
        run([self._join], self._end, report, wait=False)  # the thread may wait for the board

    def _join(self) -> None:
        while not self._ended.is_set():
            members = self._joined_members()
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

    def _joined_members(self) -> list[Member]:
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
                self._nodes.begin(self._key)
            is_late = time.monotonic() - started > boards.JOIN_S and not self._nodes.is_patient
            if is_late:
                warn(f"another node of the job was lost: none with the same secret came in {boards.JOIN_S:g} s")
            if is_late or (is_first and self._nodes.is_complete(members, time.monotonic() - changed)):
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
                have = Ranges()
                for start, stop in answer["have"]:
                    have.add(start, stop)
                if answer["size"] != self._size:
                    raise NodeLostError("it has a file of another size")
                self._connected[member] = channel, have
            except (NodeLostError, ValueError, TypeError, KeyError) as error:
                lost[member] = str(error)

        run([partial(connect, member) for member in self._others])
        if self._is_member or self._connected:  # else all of them ended before this node came
            for member, reason in lost.items():
                self._lose(member, reason)

    def _lose(self, member: Member, reason: str) -> None:
        self._gone.add(member.node)
        if not self._ended.is_set():
            warn(f"another node of the job was lost ({member.host}): {reason}")

    # --- what this node lacks -------------------------------------------------------------------------------------

    def pull(self, fetch: Fetch, differs: Differs, progress: Callable[[int], object]) -> None:
        """Bring what other nodes have, or will have, and fetch this node's share of the rest; some may stay missing.

        `progress` is called about 10 times per second with the number of bytes received from the origin and from nodes.
        What the functions raise is passed on; other nodes notice it as a lost node.
        """
        lacking = sorted(one.node for one in [*self._others, *[self._own] * self._is_member] if not one.is_whole)
        assert self._file is not None
        missing = [*pieces_of(self._file.have.missing(0, self._size))]
        shares = assigned(missing, {one.node: have for one, (_, have) in self._connected.items()}, lacking)
        steps: list[Callable[[], object]] = []
        for member, (channel, _) in self._connected.items():
            steps.append(partial(self._receive, member, channel, shares.pop(member.node, []), differs))
        own = [piece for pieces in shares.values() for piece in pieces]  # those of nodes that are gone, too

        def note(arrived: int) -> None:
            self._fetched = arrived
            self._check_ended()

        def bring() -> None:
            fetch(sorted(own), note)
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

    def _receive(self, member: Member, channel: Channel, pieces: list[Piece], differs: Differs) -> None:
        """Receive pieces of a member; without those that come after it is lost."""
        file = self._file
        assert file is not None
        number = min(len(pieces), max(1, WINDOW // len(self._connected)))
        free = [bytearray(max(stop - start for start, stop in pieces)) for _ in range(number)]
        pending: list[tuple[int, memoryview]] = []
        taken: list[Piece] = []

        def take() -> None:
            if pending and differs([_sample(start, view) for start, view in pending], self._check_ended):
                raise _LiarError("it sent other bytes than the origin has")
            for start, view in pending:
                file.write(start, view)
                taken.append((start, start + len(view)))
                self._received += len(view)
                free.append(view.obj)  # type: ignore[arg-type]
            pending.clear()

        try:
            for start, view in self._arriving(channel, pieces, free, take):
                pending.append((start, view))
                if not free:
                    take()
            take()
        except NodeLostError as error:
            if isinstance(error, _LiarError):
                file.forget(taken)
                self._received -= sum(stop - start for start, stop in taken)
            self._lose(member, str(error))
        finally:
            channel.close()

    def _arriving(
        self, channel: Channel, pieces: list[Piece], free: list[bytearray], idle: Callable[[], object]
    ) -> Iterator[tuple[int, memoryview]]:
        """Ask for pieces, some of them ahead, and yield each in a buffer of `free`; call `idle` where one is late."""
        ahead = 2 * len(free)
        for piece in pieces[:ahead]:
            channel.send(_REQUEST.pack(*piece))
        for (start, stop), further in zip_longest(pieces, pieces[ahead:]):
            view = memoryview(free.pop())[: stop - start]
            while (count := channel.receive_into(view)) == 0:
                idle()
                self._check_patience()
            if count != len(view):
                raise NodeLostError("it sent a piece of another length")
            if further:
                channel.send(_REQUEST.pack(*further))
            yield start, view

    # --- what others lack -----------------------------------------------------------------------------------------

    def _serve(self, channel: Channel) -> None:
        name, node = json.loads(channel.receive(4096))
        if name != self._name:
            return
        self._begun.add(node)
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
        waited_for = {one.node for one in self._others if not one.is_whole and self._is_member} - self._gone
        while not self._ended.is_set() and time.monotonic() - begun < longest:
            is_late = time.monotonic() - self._joined > boards.JOIN_S
            if self._listener.is_idle and (is_late or waited_for <= self._begun):
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
    >>> ranges = Ranges()
    >>> ranges.add(*first)
    >>> found = assigned([first, second, third], {"a": ranges}, ["b", "c"])
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


def _sample(start: int, view: memoryview) -> tuple[int, memoryview]:
    """Return a part of a piece that no other node can foresee."""
    at = secrets.randbelow(max(1, len(view) - SAMPLE + 1))
    return start + at, view[at : at + SAMPLE]


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
        self.groups: list[Group] = []

    def exchange(
        self,
        key: str,
        file: PartialFile,
        fetch: Fetch,
        differs: Differs,
        progress: Callable[[int], object],
        *,
        patient: bool,
    ) -> None:
        """Bring a file together with other nodes, and serve it to them; some pieces may stay missing.

        `patient`: wait for nodes that have the file as long as they live, since no server has it.
        """
        if self._nodes is None:
            return
        with _warned():
            run([partial(self._nodes.take_part, key, patient=patient)], report=self._report, wait=False)
            self.groups.append(Group(self._nodes, key, file.fileno(), file.size, file))
            self.groups[-1].join(lambda: progress(0))
            self.groups[-1].pull(fetch, differs, progress)

    def found(self, key: str, path: Path) -> None:
        """Note that this node has a file, and pass it on to nodes that wait for it."""
        if (nodes := self._nodes) is None:
            return
        with _warned():
            serves: list[bool] = []
            run([lambda: serves.append(nodes.is_to_serve(key, path))], report=self._report, wait=False)
            if serves == [True]:
                with path.open("rb") as file:
                    self.groups.append(Group(nodes, key, file.fileno(), os.fstat(file.fileno()).st_size))
                self.groups[-1].join(self._report)


@contextlib.contextmanager
def together(nodes: Nodes, store: Store, report: Callable[[], object] = nothing) -> Iterator[Partners]:
    """Fetch inside the block with the nodes that `nodes` gives; at its end, serve them until they have the files.

    `store` is that of this node; `nodes` is documented at `onecopy.remote.fetch`.
    """
    found = _nodes(nodes, store, report)
    partners = Partners(found, report)
    try:
        yield partners
        for group in partners.groups:
            group.finish(report)
    finally:
        for group in partners.groups:
            group.close()
        if found is not None:
            found.board.close()


class JobNodes:
    """Nodes whose number is known: those of a job of torchrun, or of a list of addresses."""

    is_patient = False
    """Whether nodes that have a file are waited for as long as they live, since no server has it."""

    def __init__(self, job: Job, store: Store, board: Board) -> None:
        self.board, self.host, self._size = board, job.address(), job.size
        status = store.folder.stat()
        # nodes that use the same folder of the same machine are one
        self.node = board.name("node", f"{boot_identity()} {status.st_dev} {status.st_ino}")
        self._process = f"{os.getpid()} {start_of(os.getpid())} {_PID_SPACE.stat().st_ino} {next(_calls)}"
        self._own: set[str] = set()  # files that this process fetches for its node
        board.update(board.name("nodes"), lambda now: {**(now or {}), str(job.rank): self.node})

    def begin(self, key: str) -> None:
        """Do nothing: all nodes make the same call."""

    def is_complete(self, members: Sequence[Member], quiet: float) -> bool:  # noqa: ARG002
        """Return whether all nodes have come, and are members."""
        nodes = self.board.get(self.board.name("nodes")) or {}
        return len(nodes) >= self._size and {member.node for member in members} >= set(nodes.values())

    def take_part(self, key: str, *, patient: bool) -> None:  # noqa: ARG002
        """Note that this process is that of its node which takes part."""
        self._own.add(key)
        self.board.update(self.board.name("process", self.node, key), lambda _: self._process)

    def is_to_serve(self, key: str, path: Path) -> bool:  # noqa: ARG002
        """Return whether this process is the first of its node, of those that live, which has the file."""
        name = self.board.name("process", self.node, key)
        found = self.board.update(name, lambda now: self._process if now is None or _has_ended(now) else now)
        return found == self._process and key not in self._own


def _nodes(nodes: Nodes, store: Store, report: Callable[[], object]) -> JobNodes | RayNodes | None:
    """Return the nodes with which to fetch; None if there is one, or the board cannot be reached."""
    if nodes is None:
        return None
    found: list[JobNodes | RayNodes] = []

    def find() -> None:
        if isinstance(nodes, str) and nodes == "ray":
            from onecopy.remote.ray_nodes import RayNodes

            found.append(RayNodes.of_cluster())
            return
        if isinstance(nodes, str) and nodes != "torchrun":
            raise ValueError(f"nodes must be 'ray', 'torchrun' or a list of addresses, not {nodes!r}")
        job = job_of_torchrun() if isinstance(nodes, str) else job_of_addresses(nodes)
        if job.size > 1:
            found.append(JobNodes(job, store, job.board()))

    with _warned():
        run([find], report=report, wait=False)  # the board may be silent
    return found[0] if found else None


def _has_ended(process: Any) -> bool:
    """Return whether a process has ended; False of one in another container."""
    number, started, space, _ = str(process).split()
    return int(space) == _PID_SPACE.stat().st_ino and start_of(number) != started
