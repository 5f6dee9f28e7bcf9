"""Nodes of a job of torchrun fetch a file together: pieces pass between them by torch.distributed (Gloo).

The first process of each node (LOCAL_RANK 0) belongs to one Gloo group, which is made at the first call and kept. Each
fetches its share from the origin, and sends each piece to every node that lacks it. Gloo connects as for the job's own
groups: GLOO_SOCKET_IFNAME chooses the network, GLOO_DEVICE_TRANSPORT=TCP_TLS encrypts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import socket
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onecopy.files.identity import boot_identity
from onecopy.remote import nodes, transfer
from onecopy.remote.nodes import NodeLostError, Partners, Piece, warn
from onecopy.remote.pieces import Ranges
from onecopy.remote.transfer import pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from onecopy.remote.nodes import Fetch
    from onecopy.remote.pieces import PartialFile
    from onecopy.store import Store

__all__ = ["assigned", "partners"]

_VARIABLES = ("GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_POLL_S, _CHECK_S = 0.02, 1.0
_FEW = 16
"""Number of nodes up to which pieces between nodes are as large as those of the origin: three buffers a node."""
_LIMIT = timedelta(minutes=30)
"""Time that Gloo waits for a piece; the connection to a node that ended breaks at once."""


def partners(store: Store) -> Partners:
    """Return the nodes of the job of this process, whose files lie in `store`; none if they do not come."""
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        reason = f"{missing[0]} is not set" if missing else "TORCHELASTIC_USE_AGENT_STORE is not True"
        raise RuntimeError(f"nodes='torchrun': this process was not started by torchrun ({reason})")
    if os.environ["GROUP_WORLD_SIZE"] == "1":
        return Partners()
    if os.environ["LOCAL_RANK"] != "0":
        return _Follower()
    try:
        return _Leader(_job(), store)
    except NodeLostError as error:
        warn(error)
        return Partners()


class _Follower(Partners):
    """A process that waits until the first process of its node fetches."""

    def begin(self, key: str, store: Store, report: Callable[[], object]) -> None:
        end = time.monotonic() + nodes.JOIN_S
        path = store.path(key)
        while store.find(key) is None and not any(one.path == path and one.state == "building" for one in store.ls()):
            if time.monotonic() > end:
                warn("the first process of this node does not fetch")
                return
            report()
            time.sleep(10 * _POLL_S)


class _Job:
    """The first processes of all nodes, which are connected; `rank` is the number of this one, of `size`."""

    def __init__(self) -> None:
        import torch.distributed as dist

        rank, size, _, host, port = (os.environ[name] for name in _VARIABLES)
        self.rank, self.size = int(rank), int(size)
        self._calls = 0
        limit = timedelta(seconds=nodes.JOIN_S)
        try:
            self._store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=limit)
            self.name = self._agreed_name()
            options: Any = dist.ProcessGroupGloo._Options()
            options._timeout, options._devices = _LIMIT, [_device(host)]
            self.group: Any = dist.ProcessGroupGloo(
                dist.PrefixStore(self.name, self._store), self.rank, self.size, options
            )
        except (RuntimeError, OSError) as error:  # errors of connections are RuntimeError in torch
            raise NodeLostError(_first_line(error)) from None

    def _agreed_name(self) -> str:
        """Return a name that all processes have agreed on: that of a restarted process is another one."""
        run = f"onecopy/{os.environ.get('TORCHELASTIC_RUN_ID')}/{self.size}"
        tokens = [f"{run}/{rank}" for rank in range(self.size)]
        self._store.set(tokens[self.rank], secrets.token_hex(8))
        end = time.monotonic() + nodes.JOIN_S
        while time.monotonic() < end:
            if self._store.check(tokens):
                name = "/".join(one.decode() for one in self._store.multi_get(tokens))
                self._store.set(f"{name}/{self.rank}", "here")
                if self._store.check([f"{name}/{rank}" for rank in range(self.size)]):
                    return name
            time.sleep(_POLL_S)
        raise NodeLostError(f"not every node called fetch within {nodes.JOIN_S:g} s")

    def gathered(self, value: object, report: Callable[[], object]) -> list[Any]:
        """Return what each process gives to the same call of this method, in the order of their numbers."""
        self._calls += 1
        keys = [f"{self.name}/{self._calls}/{rank}" for rank in range(self.size)]
        end = time.monotonic() + nodes.JOIN_S
        try:
            self._store.set(keys[self.rank], json.dumps(value))
            while not self._store.check(keys):
                if time.monotonic() > end or self.stopped(range(self.size)):
                    raise NodeLostError(f"not every node made the same call within {nodes.JOIN_S:g} s")
                report()
                time.sleep(_POLL_S)
            found = [json.loads(one) for one in self._store.multi_get(keys)]
            self._store.delete_key(f"{self.name}/{self._calls - 1}/{self.rank}")  # all have read it
        except RuntimeError as error:
            raise NodeLostError(_first_line(error)) from None
        return found

    def note(self, what: str) -> None:
        """Let the other processes know that this one is at an end: "stopped", or "done K"."""
        self._store.set(f"{self.name}/{what}/{self.rank}", "")

    def has_noted(self, what: str, rank: int) -> bool:
        """Return whether a process has noted something."""
        return bool(self._store.check([f"{self.name}/{what}/{rank}"]))

    def stopped(self, ranks: Sequence[int]) -> bool:
        """Return whether one of some processes has left the group."""
        return any(self.has_noted("stopped", rank) for rank in ranks)

    @property
    def call(self) -> str:
        """What is noted when the exchange of the last call of `gathered` is done."""
        return f"done {self._calls}"


_job = functools.cache(_Job)


class _Leader(Partners):
    """The process of its node that fetches."""

    has_nodes = True

    def __init__(self, job: _Job, store: Store) -> None:
        self._job: _Job | None = job
        status = store.folder.stat()
        self._node = f"{boot_identity()} {status.st_dev} {status.st_ino}"  # nodes with one folder are one
        self._took_part = False
        self._members: list[int] = []

    def begin(self, key: str, store: Store, report: Callable[[], object]) -> None:
        self._took_part = False
        job = self._job
        if job is None:
            return
        with self._guarded():
            found = job.gathered([self._node, key], report)
            if any(one[1] != key for one in found):
                raise NodeLostError("the nodes fetch different files at the same time")
            first = {node: rank for rank, (node, _) in reversed(list(enumerate(found)))}
            self._members = sorted(first.values())
            if job.rank not in self._members:
                self._took_part = True
                job.gathered(None, report)  # by which the members learn what each of them has
                _Follower().begin(key, store, report)

    def exchange(
        self,
        key: str,  # noqa: ARG002
        file: PartialFile,
        fetch: Fetch | None,
        progress: Callable[[int], object],
    ) -> None:
        self._take_part(file.path, file.size, file, fetch, progress)

    def found(self, key: str, path: Path, report: Callable[[], object]) -> None:  # noqa: ARG002
        self._take_part(path, path.stat().st_size, None, None, lambda _: report())

    def _take_part(
        self,
        path: Path,
        size: int,
        file: PartialFile | None,
        fetch: Fetch | None,
        progress: Callable[[int], object],
    ) -> None:
        job = self._job
        if self._took_part or job is None:
            return
        self._took_part = True
        with self._guarded():
            have = [(0, size)] if file is None else list(file.have)
            found = job.gathered([size, have], lambda: progress(0))
            exchange = _Exchange(job, path, size, file, {rank: found[rank] for rank in self._members})
            try:
                exchange.run(fetch, progress)
            finally:
                exchange.end()
            if exchange.lost:
                self.stop()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Leave the group if a node is lost in the block, which ends there."""
        try:
            yield
        except NodeLostError as error:
            self.stop()
            warn(error)

    def stop(self) -> None:
        """Leave the group; the next call of `fetch` makes another one."""
        if self._job is not None:
            with contextlib.suppress(RuntimeError):  # the agent has ended
                self._job.note("stopped")
            self._job = None
            _job.cache_clear()


class _Exchange:
    """Threads that send pieces of a file to other members, and receive theirs; `have` has size and ranges of each."""

    def __init__(self, job: _Job, path: Path, size: int, file: PartialFile | None, have: Mapping[int, Any]) -> None:
        if any(one[0] != size for one in have.values()):
            raise NodeLostError("a node has a file of another size")
        self._job, self._path, self._file = job, path, file
        self.lost = False
        self._lock = threading.Lock()
        self._ended = False
        self._received = 0
        self._moved = time.monotonic()
        """When a piece was sent or received last."""
        ranges = {rank: Ranges(map(tuple, one)) for rank, (_, one) in have.items()}
        self._piece = transfer.PIECE if len(have) <= _FEW else transfer.PIECE // 8
        supplier = assigned([*pieces_of([(0, size)], self._piece)], ranges)
        own = (piece for piece, rank in supplier.items() if rank == job.rank and not ranges[rank].has(*piece))
        self.own = list(Ranges(own))
        self._threads: dict[threading.Thread, int] = {}
        for rank in have.keys() - {job.rank}:
            pieces = [piece for piece, one in supplier.items() if one == job.rank and not ranges[rank].has(*piece)]
            self._add(rank, self._send, pieces)
            pieces = [piece for piece, one in supplier.items() if one == rank and not ranges[job.rank].has(*piece)]
            self._add(rank, self._receive, pieces)
        self._members = have.keys() - {job.rank}

    def _add(self, rank: int, work: Callable[[int, list[Piece]], None], pieces: list[Piece]) -> None:
        def guarded() -> None:
            try:
                work(rank, pieces)
            except (RuntimeError, OSError) as error:
                self._lose(error)

        if pieces:
            self._threads[threading.Thread(target=guarded, name="onecopy-exchange", daemon=True)] = rank

    def _lose(self, reason: object) -> None:
        with self._lock:
            is_first = not self._ended and not self.lost
            self.lost = True
        if is_first:
            warn(_first_line(reason))

    def run(self, fetch: Fetch | None, progress: Callable[[int], object]) -> None:
        """Fetch this node's share, and return when all pieces have been sent and received, or a node was lost.

        A node is lost if nothing comes from it, or nothing is taken by it, for longer than this node's share took.
        """
        started = time.monotonic()
        for thread in self._threads:
            thread.start()
        fetched = 0

        def note(arrived: int) -> None:
            nonlocal fetched
            fetched = arrived
            progress(fetched + self._received)

        if fetch is not None:
            fetch(self.own, note)
        begun = checked = time.monotonic()
        patience = max(nodes.JOIN_S, begun - started)
        while any(thread.is_alive() for thread in self._threads):
            note(fetched)
            time.sleep(_POLL_S)
            if time.monotonic() - checked > _CHECK_S:
                checked = time.monotonic()
                waited_for = {rank for thread, rank in self._threads.items() if thread.is_alive()}
                if self._job.stopped(sorted(waited_for)):
                    return self._lose("its process failed")
                if checked - max(self._moved, begun) > patience:
                    return self._lose(f"it has neither sent nor taken anything for {patience:.0f} s")
        self._job.note(self._job.call)
        while not self.lost and not all(self._job.has_noted(self._job.call, rank) for rank in self._members):
            # they still read what this process has sent
            if self._job.stopped(sorted(self._members)) or time.monotonic() - begun > nodes.JOIN_S:
                break
            note(fetched)
            time.sleep(_POLL_S)
        return None

    def end(self) -> None:
        """Write nothing more; a thread that waits for a node that does not answer is left behind."""
        with self._lock:
            self._ended = True

    def _send(self, rank: int, pieces: list[Piece]) -> None:
        import torch

        buffer = bytearray(self._piece)
        with self._path.open("rb", buffering=0) as file:
            for start, stop in pieces:
                while self._file is not None and not self._file.wait(start, stop, _CHECK_S):
                    if self._ended:
                        return
                view = memoryview(buffer)[: stop - start]
                if os.preadv(file.fileno(), [view], start) != len(view):
                    raise OSError(f"{self._path} became shorter")
                self._job.group.send([torch.frombuffer(view, dtype=torch.uint8)], rank, start // self._piece).wait()
                self._moved = time.monotonic()

    def _receive(self, rank: int, pieces: list[Piece]) -> None:
        import torch

        buffers = [bytearray(self._piece), bytearray(self._piece)]
        file = self._file
        assert file is not None

        def request(number: int) -> tuple[memoryview, Any]:
            start, stop = pieces[number]
            view = memoryview(buffers[number % 2])[: stop - start]
            tensor = torch.frombuffer(view, dtype=torch.uint8)
            return view, self._job.group.recv([tensor], rank, start // self._piece)

        requested = request(0)
        for number, (start, _) in enumerate(pieces):
            view, work = requested
            if number + 1 < len(pieces):
                requested = request(number + 1)
            work.wait()
            with self._lock:
                if self._ended:
                    return
                file.write(start, view)
                self._received += len(view)
                self._moved = time.monotonic()


def _device(host: str) -> Any:
    """Return the network device of Gloo by which this node reaches a host, unless GLOO_SOCKET_IFNAME names another."""
    from torch.distributed import ProcessGroupGloo

    if "GLOO_SOCKET_IFNAME" in os.environ:
        return ProcessGroupGloo.create_default_device()
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as one:
        one.connect(address)  # sends nothing, and chooses the address of this node from which others are reached
        return ProcessGroupGloo.create_device(hostname=one.getsockname()[0])


def assigned(pieces: Sequence[Piece], have: Mapping[int, Ranges]) -> dict[Piece, int]:
    """Return which member supplies each piece to the others that lack it.

    A piece that members have is sent by one of these; another one is fetched from the origin. The pieces are spread
    evenly, in blocks of `PIECE` bytes.

    Examples
    --------
    >>> first, second, third = pieces_of([(0, 3 << 23)])
    >>> list(assigned([first, second, third], {0: Ranges([first]), 1: Ranges(), 2: Ranges()}).values())
    [0, 1, 2]
    """
    found = {}
    for piece in pieces:
        able = [rank for rank, ranges in have.items() if ranges.has(*piece)] or list(have)
        found[piece] = able[piece[0] // transfer.PIECE % len(able)]
    return found


def _first_line(error: object) -> str:
    return str(error).partition("\n")[0].rpartition("] ")[2]
