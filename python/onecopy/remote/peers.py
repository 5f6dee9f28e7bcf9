"""Nodes of a job that fetch a file together: each fetches other pieces from the origin, and they pass them on.

The origin then sends the file about once, not once per node. One process of each node takes part. How pieces are passed
on is up to a transport, a `Group`: that of `onecopy.remote.gloo` or `onecopy.remote.ray_nodes`.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from onecopy.errors import FileChanged
from onecopy.remote.transfer import pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy.remote.pieces import PartialFile, WholeFile

__all__ = ["Group", "PeerLostError", "exchange", "plan_of"]

WINDOW = 16
"""Number of pieces that a node receives, or sends, at a time: the memory that an exchange needs is twice this."""
_LOOK_S = 0.1


class PeerLostError(ConnectionError):
    """Another node of the group ended, failed, or did not come."""


class Group(Protocol):
    """The nodes that fetch files together, seen from one of them. Every method may raise `PeerLostError`."""

    rank: int
    """Number of this node, from 0."""
    size: int
    """Number of nodes."""

    def gather(self, value: bytes) -> list[bytes]:
        """Return the values of all nodes by rank; each node calls this at the same place."""

    def send(self, piece: int, receivers: Sequence[int], data: memoryview) -> Callable[[], object]:
        """Begin to send a piece; the returned function waits until `data` is no longer needed."""

    def receive(self, piece: int, sender: int, buffer: memoryview) -> Callable[[], object]:
        """Begin to receive a piece; the returned function waits until `buffer` is filled."""

    def close(self) -> None:
        """Leave the group; what other nodes still wait for raises an error there. Further calls do nothing."""


def plan_of(have: Sequence[bytes]) -> list[tuple[int, int, list[int]]]:
    """Return which node sends which piece to which nodes, in the order in which all nodes proceed.

    A piece that some nodes have is sent by one of them; another one is fetched from the origin by the node that sends
    it. The pieces are spread evenly.

    Parameters
    ----------
    have
        Of each node: a byte per piece, which is not 0 if the node has the piece.

    Returns
    -------
    (piece, sender, receivers); a piece that every node has is not listed.

    Examples
    --------
    >>> plan_of([bytes([0, 0, 1]), bytes([0, 0, 0])])
    [(0, 0, [1]), (1, 1, [0]), (2, 0, [1])]
    """
    nodes = range(len(have))
    load = [0] * len(have)
    found: list[tuple[int, int, int, list[int]]] = []
    for piece in range(len(have[0])):
        lacking = [node for node in nodes if not have[node][piece]]
        if not lacking:
            continue
        able = nodes if len(lacking) == len(have) else [node for node in nodes if have[node][piece]]
        sender = min(able, key=load.__getitem__)
        found.append((load[sender], piece, sender, [node for node in lacking if node != sender]))
        load[sender] += 1
    return [(piece, sender, receivers) for _, piece, sender, receivers in sorted(found)]


def exchange(
    group: Group,
    key: str,
    file: PartialFile | WholeFile,
    fetch: Callable[[list[tuple[int, int]], Callable[[int], object]], object],
    *,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Make a file whole in all nodes of a group. All of them call this with the same key.

    Parameters
    ----------
    key
        Key of the file, which identifies its content.
    file
        The file of this node, with the pieces that it has; of a node that has all, a `WholeFile`.
    fetch
        Called, in a thread, with the ranges that this node fetches from the origin and a function that takes the
        number of bytes that have arrived: fetches them into `file`.
    progress
        Called about 10 times per second with the number of bytes received from the origin and from nodes.

    Raises
    ------
    PeerLostError
        Another node was lost. What arrived is in the file.
    FileChanged
        The nodes have different versions of the file.
    Exception
        That of `fetch`, which the other nodes notice as a lost node.
    """
    if len(set(group.gather(f"{key}\n{file.size}".encode("utf-8", "surrogateescape")))) != 1:
        raise FileChanged(f"{key}: other nodes of the job found another version of this file")
    grid = list(pieces_of([(0, file.size)]))
    mine = bytes(file.has(*piece) for piece in grid)
    plan = plan_of(group.gather(mine))
    job = _Exchange(group, file, grid, plan)
    own = [grid[piece] for piece, sender, _ in plan if sender == group.rank and not mine[piece]]
    job.run(lambda arrived: fetch(own, arrived), progress)


class _Exchange:
    def __init__(
        self,
        group: Group,
        file: PartialFile | WholeFile,
        grid: Sequence[tuple[int, int]],
        plan: Sequence[tuple[int, int, list[int]]],
    ) -> None:
        self._group, self._file, self._grid, self._plan = group, file, grid, plan
        self._ended = threading.Event()
        self._fetched = self._received = 0

    def run(self, fetch: Callable[[Callable[[int], object]], object], progress: Callable[[int], object] | None) -> None:
        def report() -> None:
            if progress is not None:
                progress(self._fetched + self._received)

        steps = [lambda: fetch(self._note_fetched), self._send, self._receive]
        errors = [error for error in run_threads(steps, self._give_up, report) if not isinstance(error, _EndedError)]
        if errors:
            own = [error for error in errors if not isinstance(error, PeerLostError)]
            raise (own or errors)[0]

    def _give_up(self) -> None:
        self._ended.set()
        self._group.close()  # ends what the other threads, and other nodes, wait for

    def _note_fetched(self, arrived: int) -> None:
        self._fetched = arrived
        if self._ended.is_set():
            raise _EndedError

    def _send(self) -> None:
        """Send the pieces of this node, each as soon as it is in the file."""
        buffers = _Buffers(self._grid)
        begun: deque[tuple[memoryview, Callable[[], object]]] = deque()
        for piece, sender, receivers in self._plan:
            if sender != self._group.rank or not receivers:
                continue
            start, stop = self._grid[piece]
            while not self._file.wait(start, stop, _LOOK_S):
                if self._ended.is_set():
                    raise _EndedError
            if len(begun) == WINDOW:
                data, wait = begun.popleft()
                wait()
                buffers.give(data)
            data = buffers.take(stop - start)
            self._file.read_into(start, data)
            begun.append((data, self._group.send(piece, receivers, data)))
        for _, wait in begun:
            wait()

    def _receive(self) -> None:
        """Receive the pieces of other nodes."""
        buffers = _Buffers(self._grid)
        begun: deque[tuple[int, memoryview, Callable[[], object]]] = deque()
        for piece, sender, receivers in self._plan:
            if self._group.rank not in receivers:
                continue
            if len(begun) == WINDOW:
                buffers.give(self._take(*begun.popleft()))
            start, stop = self._grid[piece]
            buffer = buffers.take(stop - start)
            begun.append((start, buffer, self._group.receive(piece, sender, buffer)))
        for one in begun:
            self._take(*one)

    def _take(self, start: int, buffer: memoryview, wait: Callable[[], object]) -> memoryview:
        wait()
        if self._ended.is_set():
            raise _EndedError
        self._file.write(start, buffer)
        self._received += len(buffer)
        return buffer


def run_threads(
    steps: Sequence[Callable[[], object]], stop: Callable[[], object], report: Callable[[], object]
) -> list[BaseException]:
    """Run each step in a thread until all have ended; return what they raised, the first error first.

    `stop` is called when a step raises, and must make the others end. `report` is called about 10 times per second in
    this thread; what it raises stops the steps and is passed on.
    """
    errors: list[BaseException] = []

    def guarded(step: Callable[[], object]) -> None:
        try:
            step()
        except BaseException as error:
            errors.append(error)
            stop()

    threads = [
        threading.Thread(target=guarded, args=(step,), name=f"onecopy-{number}", daemon=True)
        for number, step in enumerate(steps)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_S)
                report()
    except BaseException:
        stop()
        raise
    finally:
        for thread in threads:
            thread.join()
    return errors


class _Buffers:
    """Buffers that are used again: fresh memory costs as much as what is passed on."""

    def __init__(self, grid: Sequence[tuple[int, int]]) -> None:
        self._longest = max((stop - start for start, stop in grid), default=0)
        self._free: list[bytearray] = []

    def take(self, nbytes: int) -> memoryview:
        whole = self._free.pop() if self._free else bytearray(self._longest)
        return memoryview(whole)[:nbytes]

    def give(self, buffer: memoryview) -> None:
        self._free.append(buffer.obj)  # type: ignore[arg-type]


class _EndedError(Exception):
    """Ends a thread because another one failed."""
