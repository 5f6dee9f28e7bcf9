"""Nodes in a torchrun job that fetch a file together and exchange pieces with torch.distributed (Gloo).

The first process of each node (LOCAL_RANK 0) joins a Gloo group, which the first call creates. It fetches its share
from the origin, and sends each of its pieces to every node that lacks it. Gloo connects in the same way as for the
job's own groups: GLOO_SOCKET_IFNAME selects the network, and GLOO_DEVICE_TRANSPORT=TCP_TLS encrypts.
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
from onecopy.store.pieces import Ranges
from onecopy_remote import nodes, transfer
from onecopy_remote.nodes import NodeLostError, Partners, Piece, warn
from onecopy_remote.transfer import pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from onecopy.store import Store
    from onecopy.store.pieces import PartialFile
    from onecopy_remote.nodes import Fetch

_VARIABLES = ("GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_POLL_S, _CHECK_S = 0.02, 1.0
_MAX_NODES_WITH_LARGE_PIECES = 16
"""Number of nodes above which pieces are smaller, because each pair of nodes needs three buffers."""
_MAX_PIECE_WAIT = timedelta(minutes=30)
"""Gloo's time-out for one piece. The connection to a node that has ended breaks immediately."""


def partners(store: Store) -> Partners:
    """Return the other nodes in this process's job, or none if they cannot be reached. `store` contains the files."""
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        reason = f"{missing[0]} is not set" if missing else "TORCHELASTIC_USE_AGENT_STORE is not True"
        raise RuntimeError(f"nodes='torchrun': this process was not started by torchrun ({reason})")
    if os.environ["GROUP_WORLD_SIZE"] == "1":
        return Partners()
    if os.environ["LOCAL_RANK"] != "0":
        return _Follower()
    status = store.folder.stat()
    try:
        job = _job(f"{boot_identity()} {status.st_dev} {status.st_ino}")
    except NodeLostError as error:
        warn(error)
        return Partners()
    return _Leader(job) if job.rank in job.members else _Follower()


class _Follower(Partners):
    """A process that waits while another process on its node fetches the file."""

    def begin(self, key: str, store: Store, report: Callable[[], object]) -> None:
        end = time.monotonic() + nodes.JOIN_S
        path = store.path(key)
        while store.find(key) is None and not any(one.path == path and one.state == "building" for one in store.ls()):
            if time.monotonic() > end:
                warn("the first process of this node is not fetching")
                return
            report()
            time.sleep(10 * _POLL_S)


class _Job:
    """The first processes of all nodes, connected by a Gloo group. Nodes that share a folder count as one node."""

    def __init__(self, folder: str) -> None:
        import torch.distributed as dist

        rank, size, _, host, port = (os.environ[name] for name in _VARIABLES)
        self.rank = int(rank)
        self._calls = 0
        limit = timedelta(seconds=nodes.JOIN_S)
        with _connection_errors():
            self._store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=limit)
            tokens = self._agreed_tokens(int(size), folder)
            self._name = "/".join(tokens)
            options: Any = dist.ProcessGroupGloo._Options()
            options._timeout, options._devices = _MAX_PIECE_WAIT, [_device(host)]
            group_store = dist.PrefixStore(self._name, self._store)
            self.group: Any = dist.ProcessGroupGloo(group_store, self.rank, int(size), options)
        folders = [token.partition(" ")[2] for token in tokens]
        self.members = [rank for rank, folder in enumerate(folders) if folder not in folders[:rank]]
        """Ranks of the processes that fetch."""

    def _agreed_tokens(self, size: int, folder: str) -> list[str]:
        """Return the random tokens and folders that all processes have agreed on. A restart changes the tokens."""
        run = f"onecopy/{os.environ.get('TORCHELASTIC_RUN_ID')}/{size}"
        keys = [f"{run}/{rank}" for rank in range(size)]
        self._store.set(keys[self.rank], f"{secrets.token_hex(8)} {folder}")
        end = time.monotonic() + nodes.JOIN_S
        while time.monotonic() < end:
            if self._store.check(keys):
                tokens = [one.decode() for one in self._store.multi_get(keys)]
                name = "/".join(tokens)
                self._store.set(f"{name}/{self.rank}", "here")
                if self._store.check([f"{name}/{rank}" for rank in range(size)]):
                    return tokens
            time.sleep(_POLL_S)
        raise NodeLostError(f"not every node called fetch within {nodes.JOIN_S:g} s")

    def gather(self, value: object, report: Callable[[], object]) -> dict[int, Any]:
        """Return the values that all members pass to the same call of this method, by rank."""
        self._calls += 1
        keys = [f"{self._name}/{self._calls}/{rank}" for rank in self.members]
        end = time.monotonic() + nodes.JOIN_S
        with _connection_errors():
            self._store.set(f"{self._name}/{self._calls}/{self.rank}", json.dumps(value))
            while not self._store.check(keys):
                if time.monotonic() > end or self.any_stopped(self.members):
                    raise NodeLostError(f"not every node made the same call within {nodes.JOIN_S:g} s")
                report()
                time.sleep(_POLL_S)
            found = map(json.loads, self._store.multi_get(keys))
            self._store.delete_key(f"{self._name}/{self._calls - 1}/{self.rank}")  # all members have read it
        return dict(zip(self.members, found, strict=True))

    def note_done(self) -> None:
        """Notify the other members that this member has all pieces that the last `gather` agreed on."""
        with _connection_errors():
            self._store.set(f"{self._name}/done {self._calls}/{self.rank}", "")

    def note_stopped(self) -> None:
        """Notify the other members that this member is leaving the group."""
        with _connection_errors():
            self._store.set(f"{self._name}/stopped/{self.rank}", "")

    def all_done(self) -> bool:
        """Return whether all members have called `note_done` after the last `gather`."""
        with _connection_errors():
            return bool(self._store.check([f"{self._name}/done {self._calls}/{rank}" for rank in self.members]))

    def any_stopped(self, ranks: Iterable[int]) -> bool:
        """Return whether any of these members has left the group."""
        with _connection_errors():
            return any(self._store.check([f"{self._name}/stopped/{rank}"]) for rank in ranks)


_job = functools.cache(_Job)


@contextlib.contextmanager
def _connection_errors() -> Iterator[None]:
    """Convert the RuntimeError that torch raises when a connection fails to a NodeLostError."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise NodeLostError(str(error).partition("\n")[0].rpartition("] ")[2]) from None


class _Leader(Partners):
    """The process that fetches for its node."""

    has_nodes = True

    def __init__(self, job: _Job) -> None:
        self._job: _Job | None = job
        self._last_key = ""

    def exchange(self, key: str, file: PartialFile, fetch: Fetch | None, progress: Callable[[int], object]) -> None:
        self._take_part(key, file.path, file, fetch, progress)

    def found(self, key: str, path: Path, report: Callable[[], object]) -> None:
        if key != self._last_key:
            self._take_part(key, path, None, None, lambda _: report())

    def _take_part(
        self,
        key: str,
        path: Path,
        file: PartialFile | None,
        fetch: Fetch | None,
        progress: Callable[[int], object],
    ) -> None:
        """Exchange pieces of a file. Without `file`, this node has all of them. Leave the group if a node is lost."""
        self._last_key = key
        if self._job is None:
            return
        size = path.stat().st_size
        have = [(0, size)] if file is None else list(file.have)
        try:
            found = self._job.gather([key, size, have], lambda: progress(0))
            if any([key, size] != one[:2] for one in found.values()):
                raise NodeLostError("the nodes fetch different files at the same time")
            ranges = {rank: Ranges(map(tuple, have)) for rank, (_, _, have) in found.items()}
            _Exchange(self._job, path, size, file, ranges).run(fetch, progress)
        except NodeLostError as error:
            self.stop()
            warn(error)

    def stop(self) -> None:
        """Leave the group. The next call of `fetch` creates another one."""
        if self._job is not None:
            with contextlib.suppress(NodeLostError):  # the agent of torchrun has ended
                self._job.note_stopped()
            self._job = None
            _job.cache_clear()


class _Exchange:
    """Threads that exchange pieces of a file with other members."""

    def __init__(self, job: _Job, path: Path, size: int, file: PartialFile | None, have: Mapping[int, Ranges]) -> None:
        self._job, self._path, self._file = job, path, file
        self._lock = threading.Lock()
        self._ended = False
        self._lost: BaseException | None = None
        self._received = 0
        self._last_move = time.monotonic()
        """Time at which the last piece was sent or received."""
        self._piece = transfer.PIECE if len(have) <= _MAX_NODES_WITH_LARGE_PIECES else transfer.PIECE // 8
        supplier = assigned([*pieces_of([(0, size)], self._piece)], have)

        def supplied(sender: int, receiver: int) -> list[Piece]:
            return [piece for piece, one in supplier.items() if one == sender and not have[receiver].has(*piece)]

        self._own = list(Ranges(supplied(job.rank, job.rank)))
        self._threads: dict[threading.Thread, int] = {}
        """The threads, each with the rank of the other member."""
        for rank in have.keys() - {job.rank}:
            self._add_thread(self._send, rank, supplied(job.rank, rank))
            self._add_thread(self._receive, rank, supplied(rank, job.rank))

    def _add_thread(self, work: Callable[[int, list[Piece]], None], rank: int, pieces: list[Piece]) -> None:
        def run() -> None:
            try:
                with _connection_errors():
                    work(rank, pieces)
            except NodeLostError as error:
                self._lost = self._lost or error

        if pieces:
            self._threads[threading.Thread(target=run, name="onecopy-exchange", daemon=True)] = rank

    def run(self, fetch: Fetch | None, progress: Callable[[int], object]) -> None:
        """Fetch this node's share, and return when all pieces have been sent and received.

        Raise NodeLostError if another node's process failed, or transferred no data for longer than this share took.
        """
        started = time.monotonic()
        for thread in self._threads:
            thread.start()
        fetched = 0

        def report(arrived: int | None = None) -> None:
            nonlocal fetched
            fetched = fetched if arrived is None else arrived
            progress(fetched + self._received)

        try:
            if fetch is not None:
                fetch(self._own, report)
            self._wait_for_threads(max(nodes.JOIN_S, time.monotonic() - started), report)
            self._wait_for_members(report)
        finally:
            with self._lock:  # a thread that waits for a node that does not answer is left behind, and writes nothing
                self._ended = True

    def _wait_for_threads(self, max_wait_s: float, report: Callable[[], object]) -> None:
        begun = checked = time.monotonic()
        while waiting_for := {rank for thread, rank in self._threads.items() if thread.is_alive()}:
            report()
            time.sleep(_POLL_S)
            if time.monotonic() - checked > _CHECK_S:
                checked = time.monotonic()
                if self._job.any_stopped(waiting_for):
                    raise self._lost or NodeLostError("its process failed")
                if checked - max(self._last_move, begun) > max_wait_s:
                    raise self._lost or NodeLostError(f"it has neither sent nor received data for {max_wait_s:.0f} s")
        if self._lost:
            raise self._lost

    def _wait_for_members(self, report: Callable[[], object]) -> None:
        """Wait until the others have read the data that this process sent."""
        self._job.note_done()
        end = time.monotonic() + nodes.JOIN_S
        while not self._job.all_done() and not self._job.any_stopped(self._job.members) and time.monotonic() < end:
            report()
            time.sleep(_POLL_S)

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
                    raise OSError(f"{self._path} was truncated while it was sent to other nodes")
                self._job.group.send([torch.frombuffer(view, dtype=torch.uint8)], rank, start // self._piece).wait()
                self._last_move = time.monotonic()

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
                self._last_move = time.monotonic()


def _device(host: str) -> Any:
    """Return the device that Gloo uses to connect to a host, or the default device if GLOO_SOCKET_IFNAME is set."""
    from torch.distributed import ProcessGroupGloo

    if "GLOO_SOCKET_IFNAME" in os.environ:
        return ProcessGroupGloo.create_default_device()
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as one:
        one.connect(address)  # sends nothing, and selects the address from which this node reaches the host
        return ProcessGroupGloo.create_device(hostname=one.getsockname()[0])


def assigned(pieces: Sequence[Piece], have: Mapping[int, Ranges]) -> dict[Piece, int]:
    """Return which member sends each piece: a member that has it, or else a member that fetches it from the origin.

    Examples
    --------
    >>> first, second, third = pieces_of([(0, 3 << 23)])
    >>> list(assigned([first, second, third], {0: Ranges([first]), 1: Ranges(), 2: Ranges()}).values())
    [0, 1, 2]
    """
    found = {}
    for piece in pieces:
        able = [rank for rank, ranges in have.items() if ranges.has(*piece)] or list(have)
        found[piece] = able[piece[0] // transfer.PIECE % len(able)]  # in blocks that are spread evenly
    return found
