"""Groups of nodes whose transport is gloo, that of torch.distributed for CPUs.

Nodes find each other through a store of keys (`torch.distributed.TCPStore`): that of torchrun, or one on the first of a
list of addresses. The program need not call ``init_process_group``, and its own groups are not touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.remote.peers import PeerLostError
from onecopy.store.identity import boot_identity, start_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from onecopy.store import Store

__all__ = ["GlooGroup", "Job", "job_of_addresses", "job_of_torchrun"]

JOIN_S = 60.0
"""Seconds to wait for the other nodes, and for the process of this node that takes part."""
SILENT_S = 300.0
"""Seconds after which a node is lost from which nothing comes; one whose process ended is noticed at once."""
PORT = 29600
"""Port of the first address if it has none."""
_servers: list[Any] = []  # TCPStores that this process serves, until it ends
_calls = itertools.count()
_PID_SPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class Job:
    """The nodes of a job, seen from one of them."""

    rank: int
    """Number of this node, from 0."""
    size: int
    """Number of nodes."""
    host: str
    """Host that serves the store of keys."""
    port: int
    """Port of the store of keys."""
    serves: bool
    """Whether a process of this node serves the store of keys."""
    name: str
    """Name of the job."""


def job_of_torchrun() -> Job:
    """Return the job of this process, which torchrun started.

    RuntimeError if it did not; the variables are those that torchrun documents.
    """
    variables = ("GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in variables if name not in os.environ]
    if missing or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        reason = f"{missing[0]} is not set" if missing else "TORCHELASTIC_USE_AGENT_STORE is not True"
        raise RuntimeError(f"peers='torchrun': this process was not started by torchrun ({reason})")
    rank, size, host, port = (os.environ[name] for name in variables)
    # not TORCHELASTIC_RESTART_COUNT: a node whose processes did not fail does not count the restart
    name = f"{os.environ.get('TORCHELASTIC_RUN_ID')} {size}"
    return Job(int(rank), int(size), host, int(port), serves=False, name=name)


def job_of_addresses(addresses: Sequence[str]) -> Job:
    """Return the job whose nodes have these addresses, in the same order on all of them.

    Parameters
    ----------
    addresses
        Host names or IP addresses, "[...]" around those of version 6; the first may end with ":PORT" (29600).

    Raises
    ------
    ValueError
        Not exactly one of the addresses belongs to this machine, or one is invalid.
    """
    parsed = [_parsed(address) for address in addresses]
    own = [rank for rank, (host, _) in enumerate(parsed) if _is_own(host)]
    if len(own) != 1:
        raise ValueError(f"peers: {len(own)} of {', '.join(addresses)} are addresses of this machine, not 1")
    host, port = parsed[0]
    return Job(own[0], len(parsed), host, port, serves=own[0] == 0, name=" ".join(addresses))


def _parsed(address: str) -> tuple[str, int]:
    """Return host and port of an address.

    Examples
    --------
    >>> _parsed("10.0.0.1"), _parsed("node-1:700"), _parsed("[fe80::1]:80")
    (('10.0.0.1', 29600), ('node-1', 700), ('fe80::1', 80))
    """
    bare, separator, port = address.rpartition(":")
    if not separator or address.endswith("]"):
        bare, port = address, str(PORT)
    if not bare or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"peers: {address!r} is not an address such as 10.0.0.1 or node-1:29600")
    return bare.strip("[]"), int(port)


def _is_own(host: str) -> bool:
    """Return whether an address is one of this machine: only such can be bound."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as one:
            one.bind(address)
            return True
    return False


class GlooGroup:
    """The nodes of a job that fetch files together, as `onecopy.remote.peers.Group`. Made by `joined`."""

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self._group = group
        self.rank, self.size = rank, size

    def gather(self, value: bytes) -> list[bytes]:
        """Return the values of all nodes by rank."""
        import torch

        with _errors():
            lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            self._group.allgather([lengths], [torch.tensor([len(value)])]).wait()
            longest = max(1, *(int(length) for length in lengths))
            values = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            self._group.allgather([values], [_tensor(bytearray(value.ljust(longest, b"\0")))]).wait()
        return [bytes(one.numpy())[: int(length)] for one, length in zip(values, lengths, strict=True)]

    def send(self, piece: int, receivers: Sequence[int], data: memoryview) -> Callable[[], object]:
        """Begin to send a piece; the returned function waits until the data has left."""
        tensor = _tensor(data)
        with _errors():
            works = [self._group.send([tensor], receiver, piece) for receiver in receivers]

        def wait() -> None:
            with _errors():
                for work in works:
                    work.wait()
            tensor.numel()  # it must live until here

        return wait

    def receive(self, piece: int, sender: int, buffer: memoryview) -> Callable[[], object]:
        """Begin to receive a piece; the returned function waits until `buffer` is filled."""
        tensor = _tensor(buffer)
        with _errors():
            work = self._group.recv([tensor], sender, piece)

        def wait() -> None:
            with _errors():
                work.wait()
            tensor.numel()

        return wait

    def close(self) -> None:
        """Leave the group; what other nodes still wait for raises an error there."""
        with contextlib.suppress(RuntimeError):
            self._group.abort()


def _tensor(buffer: bytearray | memoryview) -> torch.Tensor:
    import torch

    return torch.frombuffer(buffer, dtype=torch.uint8)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raise the errors of gloo as `PeerLostError`."""
    try:
        yield
    except RuntimeError as error:  # of gloo; those of a store of keys are of this class, too
        text = str(error).split("\n", 1)[0]
        raise PeerLostError(f"another node of the job was lost: {text.rpartition('] ')[2][:200]}") from None


class Rendezvous:
    """The way of a process into the group of its job for a file, or a list of files.

    Groups are formed in rounds: when a process finds that the one of its node which took part has ended, as after an
    elastic restart of the job, it begins another round.

    Parameters
    ----------
    key
        What the group is for; the same on all nodes.

    Raises
    ------
    PeerLostError
        The store of keys cannot be reached.
    """

    def __init__(self, job: Job, key: str) -> None:
        import torch.distributed as dist

        self._job = job
        prefix = hashlib.sha256(f"{job.name}\n{key}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        with _errors():
            if job.serves:
                with contextlib.suppress(RuntimeError):  # another process of this node serves it
                    _servers.append(
                        dist.TCPStore(job.host, job.port, is_master=True, wait_for_workers=False, multi_tenant=False)
                    )
            client = dist.TCPStore(
                job.host, job.port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=JOIN_S)
            )
            keys = dist.PrefixStore(f"onecopy/{prefix}", client)
            this = f"{_process()} {next(_calls)}"
            while True:
                turn = keys.compare_set("round", "", "0").decode()
                self._keys = dist.PrefixStore(turn, keys)
                taker = self._keys.compare_set(f"node {job.rank}", "", this).decode()
                if not _has_ended(taker):
                    break
                keys.compare_set("round", turn, str(int(turn) + 1))
            self.takes_part = taker == this
            """Whether this process is that of its node which takes part."""

    def join(self, store: Store) -> GlooGroup | None:
        """Join the group of the nodes; None if a node of a smaller rank has the same store, or if there is one node.

        PeerLostError if not all nodes come within `JOIN_S` seconds.
        """
        import torch.distributed as dist

        with _errors():
            self._keys.set(f"store {self._job.rank}", _identity(store))
            names = [f"store {rank}" for rank in range(self._job.size)]
            self._keys.wait(names, timedelta(seconds=JOIN_S))
            identities = [bytes(self._keys.get(name)) for name in names]
            members = [rank for rank, one in enumerate(identities) if identities.index(one) == rank]
            if self._job.rank not in members or len(members) == 1:
                return None
            options = dist.ProcessGroupGloo._Options()
            options._timeout = timedelta(seconds=SILENT_S)
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=_address_towards(self._job.host))]
            rank = members.index(self._job.rank)
            group = dist.ProcessGroupGloo(dist.PrefixStore("gloo", self._keys), rank, len(members), options)
            return GlooGroup(group, rank, len(members))

    def begin(self) -> None:
        """Let the other processes of this node go on: this one holds the claim of the file, or has ended."""
        with contextlib.suppress(PeerLostError), _errors():
            self._keys.set(f"begun {self._job.rank}", b"1")

    def wait(self) -> None:
        """Wait until the process of this node that takes part has called `begin`."""
        with contextlib.suppress(PeerLostError), _errors():
            self._keys.wait([f"begun {self._job.rank}"], timedelta(seconds=2 * JOIN_S))


def _process() -> str:
    """Return an identity of this process: its number, when it started, and where the number counts."""
    return f"{os.getpid()} {start_of(os.getpid())} {_PID_SPACE.stat().st_ino}"


def _has_ended(process: str) -> bool:
    """Return whether a process has ended; False of one in another container."""
    number, started, space, _ = process.split()
    return int(space) == _PID_SPACE.stat().st_ino and start_of(number) != started


def _identity(store: Store) -> bytes:
    """Return what two processes have in common if, and only if, they use the same folder of the same machine."""
    facts = store.folder.stat()
    return f"{boot_identity()} {facts.st_dev} {facts.st_ino}".encode()


def _address_towards(host: str) -> str:
    """Return the address of this machine from which packets to a host are sent; nothing is sent here."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as one:
        one.connect(address)
        return str(one.getsockname()[0])
