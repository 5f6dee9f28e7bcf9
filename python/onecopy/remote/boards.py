"""Which nodes fetch a file together, their secret, and the board on which they find each other.

The nodes are those of a list of addresses, of a job of torchrun, or of a Ray cluster. Each of these has texts that all
nodes reach and replace: at a port of the first address, in the store of torchrun's agent, in the key-value store of the
cluster. They are not trusted: names are digests, and texts are authenticated with the secret of the job, so that
another user who reaches them learns addresses alone, and can only make nodes fetch for themselves. What nodes send each
other passes through their own connections (`onecopy.remote.channels`).
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import itertools
import json
import os
import secrets
import socket
import stat
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union

from onecopy import _core
from onecopy.identity import boot_identity, start_of
from onecopy.remote.channels import Channel, Listener, NodeLostError, digest, lost
from onecopy.remote.steps import nothing
from onecopy.store import file_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy.store import Store

__all__ = ["Board", "JobNodes", "Nodes", "RayNodes", "Texts", "nodes_of"]

Nodes: TypeAlias = Union["Sequence[str]", Literal["ray", "torchrun"], None]
"""Nodes that fetch together, as `onecopy.remote.fetch` documents them."""
JOIN_S = 60.0
"""Seconds to wait for the other nodes, and for the board."""
WINDOW_S = 1.0
"""Seconds without a new node after which a group of a Ray cluster is complete."""
INVITED_S = 10.0
"""Seconds to wait for nodes of a Ray cluster that have the file, where a server has it too."""
INVITED = 4
"""Largest number of nodes of a Ray cluster that have the file, and take part only to pass it on."""
PORT = 29600
"""Port of the first address if it has none."""
VARIABLE = "ONECOPY_NODES_SECRET"
"""Environment variable with the secret of a job."""
_MAX_MESSAGE, _MAX_TEXTS, _MAX_SWAPS = 1 << 20, 100_000, 1000
_PID_SPACE = Path("/proc/self/ns/pid")
_served: dict[tuple[str, int], Listener] = {}  # by this process, until it ends
_calls = itertools.count()
_companions: set[str] = set()  # the nodes of the last group of this process, which are likely those of the next


def nodes_of(nodes: Nodes, store: Store) -> JobNodes | RayNodes | None:
    """Return the nodes with which to fetch into the store of this one; None if there are no others.

    `nodes` is documented at `onecopy.remote.fetch`. `NodeLostError` if the board cannot be reached.
    """
    if nodes is None:
        return None
    if not isinstance(nodes, str):
        return _nodes_of_addresses(nodes, store)
    if nodes == "torchrun":
        return _nodes_of_torchrun(store)
    if nodes == "ray":
        return RayNodes()
    raise ValueError(f"nodes must be 'ray', 'torchrun' or a list of addresses, not {nodes!r}")


# --- the board --------------------------------------------------------------------------------------------------------


class Texts:
    """Texts by names, in this process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._lock = threading.Lock()

    def swap(self, name: str, expected: str, text: str) -> str:
        """Replace a text, "" at first, if it is the expected one, in one step; return the text after that."""
        with self._lock:
            now = self._texts.get(name, "")
            if now == expected and text and (now or len(self._texts) < _MAX_TEXTS):
                now = self._texts[name] = text
            return now

    def serve(self, channel: Channel) -> None:
        """Answer the requests of a process that `_texts_at` gave a function."""
        while True:
            request = json.loads(channel.receive(_MAX_MESSAGE, 7 * 86400.0))
            channel.send(json.dumps(self.swap(*request)).encode())


class Board:
    """Values by names that the nodes of a job replace, which know its secret; jobs with other names have other values.

    `swap` replaces a text as `Texts.swap` does, wherever the texts are; `close` closes the connection to them.
    """

    def __init__(
        self, swap: Callable[[str, str, str], str], job: str, secret: bytes, close: Callable[[], object] = nothing
    ) -> None:
        self._swap, self._job, self.secret, self.close = swap, job, secret, close

    def name(self, *parts: str) -> str:
        """Return the name of a text; it does not show what it is made of."""
        encoded = (one.encode("utf-8", "surrogateescape") for one in (self._job, *parts))
        return digest(self.secret, b"name", *encoded).hex()

    def get(self, name: str) -> Any:
        """Return a value; None if there is none, or another user wrote it."""
        return self._value(name, self._swap(name, "", ""))

    def update(self, name: str, function: Callable[[Any], Any]) -> Any:
        """Replace a value by what a function makes of it, in one step; return the new one.

        The function may be called again, also with what it made.
        """
        text = self._swap(name, "", "")
        for _ in range(_MAX_SWAPS):
            value = function(self._value(name, text))
            made = json.dumps(value)
            made = f"{self._proof(name, made)} {made}"
            if (text_then := self._swap(name, text, made)) == made:
                return value
            text = text_then
        raise NodeLostError("the texts by which nodes find each other are changed by another program")

    def _value(self, name: str, text: str) -> Any:
        proof, _, value = text.partition(" ")
        return json.loads(value) if hmac.compare_digest(proof.encode(), self._proof(name, value).encode()) else None

    def _proof(self, name: str, value: str) -> str:
        return digest(self.secret, b"text", name.encode(), value.encode()).hex()


# --- a job whose nodes are known --------------------------------------------------------------------------------------


def _nodes_of_torchrun(store: Store) -> JobNodes | None:
    """Return the nodes of the job in which torchrun started this process.

    RuntimeError if it did not; the variables are those that torchrun documents.
    """
    variables = ("GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in variables if name not in os.environ]
    if missing or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        reason = f"{missing[0]} is not set" if missing else "TORCHELASTIC_USE_AGENT_STORE is not True"
        raise RuntimeError(f"nodes='torchrun': this process was not started by torchrun ({reason})")
    rank, size, host, port = (os.environ[name] for name in variables)
    if int(size) == 1:
        return None
    # not TORCHELASTIC_RESTART_COUNT: a node whose processes did not fail does not count the restart
    name = f"{os.environ.get('TORCHELASTIC_RUN_ID')} {size}"
    board = Board(_texts_of_torchrun(host, int(port)), name, secret_of_user())
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as one:
        one.connect(address)  # sends nothing, and chooses the address of this node from which others are reached
        return JobNodes(board, int(rank), int(size), str(one.getsockname()[0]), store)


def _nodes_of_addresses(addresses: Sequence[str], store: Store) -> JobNodes | None:
    """Return the nodes that have these addresses, of which the first serves the board."""
    rank, parsed = parsed_addresses(addresses)
    if len(parsed) == 1:
        return None
    first, secret = parsed[0], secret_of_user()
    if rank == 0 and first not in _served:
        with contextlib.suppress(OSError):  # another process of this node serves it
            _served[first] = Listener(*first, secret, Texts().serve)
    channel = _reached(*first, secret)

    def swap(*request: str) -> str:
        channel.send(json.dumps(request).encode())
        return str(json.loads(channel.receive(_MAX_MESSAGE)))

    board = Board(swap, " ".join(addresses), secret, channel.close)
    return JobNodes(board, rank, len(parsed), parsed[rank][0], store)


def parsed_addresses(addresses: Sequence[str]) -> tuple[int, list[tuple[str, int]]]:
    """Return which of some addresses, the same on all nodes, is that of this machine; and host and port of each.

    They are host names or IP addresses, "[...]" around those of version 6; the first may end with ":PORT" (29600).
    ValueError if not exactly one of them belongs to this machine, or one is invalid.
    """
    parsed = [_parsed(address) for address in addresses]
    own = [rank for rank, (host, _) in enumerate(parsed) if _is_own(host)]
    if len(own) != 1:
        raise ValueError(f"nodes: {len(own)} of {', '.join(addresses)} are addresses of this machine, not 1")
    return own[0], parsed


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
        raise ValueError(f"nodes: {address!r} is not an address such as 10.0.0.1 or node-1:29600")
    return bare.strip("[]"), int(port)


def _is_own(host: str) -> bool:
    """Return whether an address is one of this machine: only such can be bound."""
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as one:
                one.bind(address)
                return True
    return False


def secret_of_user() -> bytes:
    """Return the secret of `$ONECOPY_NODES_SECRET`, else that of a file in the home folder, which is made once.

    RuntimeError if the variable is too short, or the file belongs to another user, is readable by others, or cannot be
    made.
    """
    if text := os.environ.get(VARIABLE):
        if len(text) < 16:
            raise RuntimeError(f"{VARIABLE} must have at least 16 characters, which are random")
        return text.encode()
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "onecopy")
    path = folder / "nodes-secret"
    try:
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = folder / f".nodes-secret-{secrets.token_hex(8)}"
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
                file.write(secrets.token_hex(32))
            try:
                with contextlib.suppress(FileExistsError):
                    path.hardlink_to(new)
            finally:
                new.unlink()
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            if _core.owner_of(file.fileno()) != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise PermissionError(errno.EACCES, "it is not this user's alone")
            return file.read().encode()
    except OSError as error:
        raise RuntimeError(
            f"nodes that fetch together need a secret: set {VARIABLE} ({path}: {error.strerror})"
        ) from None


def _reached(host: str, port: int, secret: bytes) -> Channel:
    """Connect to the process that serves a board, which may come later than this one."""
    until = time.monotonic() + JOIN_S
    while True:
        try:
            return Channel.to(host, port, secret)
        except NodeLostError as error:
            if "secret" in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.1)


def _texts_of_torchrun(host: str, port: int) -> Callable[[str, str, str], str]:
    """Return the function that swaps texts in the store of the agent of torchrun."""
    import torch.distributed as dist

    what = "the agent of torchrun was lost"

    def swap(name: str, expected: str, text: str) -> str:
        with lost(RuntimeError, what):
            return str(store.compare_set(f"onecopy/{name}", expected, text).decode())

    with lost(RuntimeError, what):
        limit = timedelta(seconds=JOIN_S)
        store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
    return swap


class JobNodes:
    """Nodes whose number, `size`, is known, and which all make the same call.

    `rank` is the number of this one, `host` its address, and `store` that of its files.
    """

    def __init__(self, board: Board, rank: int, size: int, host: str, store: Store) -> None:
        self.board, self.host, self._size = board, host, size
        status = store.folder.stat()
        # nodes that use the same folder of the same machine are one
        self.node = board.name("node", f"{boot_identity()} {status.st_dev} {status.st_ino}")
        self._process = f"{os.getpid()} {start_of(os.getpid())} {_PID_SPACE.stat().st_ino} {next(_calls)}"
        board.update(board.name("nodes"), lambda now: {**(now or {}), str(rank): self.node})

    def invite(self, key: str, pass_on: Callable[[str, Path, str], object]) -> None:
        """Do nothing: all nodes come."""

    def is_complete(self, here: set[str], quiet: float, *, patient: bool) -> bool:  # noqa: ARG002
        """Return whether all nodes of the job have come, and are here."""
        nodes = self.board.get(self.board.name("nodes")) or {}
        return len(nodes) >= self._size and here >= set(nodes.values())

    def take_part(self, key: str) -> None:
        """Note that this process is that of its node which takes part."""
        self.board.update(self.board.name("process", self.node, key), lambda _: self._process)

    def is_to_serve(self, key: str, path: Path) -> bool:  # noqa: ARG002
        """Return whether this process is the first of its node, of those that live, which takes part."""
        name = self.board.name("process", self.node, key)
        first = self.board.update(name, lambda now: self._process if now is None or _has_ended(now) else now)
        return bool(first == self._process)


def _has_ended(process: Any) -> bool:
    """Return whether a process has ended; False of one in another container."""
    number, started, space, _ = str(process).split()
    return int(space) == _PID_SPACE.stat().st_ino and start_of(number) != started


# --- a Ray cluster ----------------------------------------------------------------------------------------------------


class RayNodes:
    """The nodes of the Ray cluster of this process. Some of them call, and others are invited that have the file.

    RuntimeError if the process is not of a cluster. The secret is made by the first process that needs it.
    """

    def __init__(self) -> None:
        import ray

        if not ray.is_initialized():
            raise RuntimeError("nodes='ray': this process is not of a Ray cluster: call ray.init() first")
        self._ray: Any = ray
        self._invited: dict[str, Any] = {}  # the task by the node
        self._begun = 0.0
        self.node, self.host = str(ray.get_runtime_context().get_node_id()), str(ray.util.get_node_ip_address())
        secret = _swap_of_ray("secret", "", secrets.token_hex(32))
        self.board = Board(_swap_of_ray, "ray", secret.encode())

    def invite(self, key: str, pass_on: Callable[[str, Path, str], object]) -> None:
        """Call a function on nodes that have a file, with the key, the path, and what identifies its contents."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._begun = time.monotonic()
        alive = self.alive()
        holders = {node: how for node, how in self._holders(key).items() if node in alive and node != self.node}
        self._invited = {}
        for node, (path, identity) in list(holders.items())[:INVITED]:
            place = NodeAffinitySchedulingStrategy(node, soft=False)
            task = self._ray.remote(max_retries=0, scheduling_strategy=place, num_cpus=0)(pass_on)
            self._invited[node] = task.remote(key, Path(path), identity)

    def is_complete(self, here: set[str], quiet: float, *, patient: bool) -> bool:
        """Return whether all nodes that are alive are here, or no other has come for `quiet` seconds, or will.

        `patient`: wait for invited nodes as long as they live.
        """
        coming = [task for node, task in self._invited.items() if node not in here]
        if coming and (patient or time.monotonic() - self._begun < INVITED_S):
            ended, _ = self._ray.wait(coming, num_returns=len(coming), timeout=0)
            if len(ended) < len(coming):
                return False
        alive = self.alive()
        if quiet < WINDOW_S and not here >= alive and not (_companions and here >= _companions & alive):
            return False
        _companions.clear()
        _companions.update(here)
        return True

    def take_part(self, key: str) -> None:
        """Do nothing: one process of the node calls."""

    def is_to_serve(self, key: str, path: Path) -> bool:
        """Note that this node has a file, which it serves when it is invited; return False."""
        entry = [str(path), file_key(path)]
        self.board.update(self.board.name("have", key), lambda now: {**(now or {}), self.node: entry})
        return False

    def forget(self, key: str) -> None:
        """Note that this node does not have a file."""
        name = self.board.name("have", key)
        self.board.update(name, lambda now: {node: how for node, how in (now or {}).items() if node != self.node})

    def having(self, key: str) -> set[str]:
        """Return the nodes that have a file, and are alive."""
        return self._holders(key).keys() & self.alive()

    def alive(self) -> set[str]:
        """Return the identifiers of the nodes that are alive."""
        return {one["NodeID"] for one in self._ray.nodes() if one["Alive"]}

    def _holders(self, key: str) -> dict[str, list[str]]:
        return self.board.get(self.board.name("have", key)) or {}


def _swap_of_ray(name: str, expected: str, text: str) -> str:
    """Swap a text in the key-value store of the cluster, where a key can be added in one step, and not replaced.

    Each text has a key of its own, with a number, of which the greatest counts. A process that stopped for long may
    add a number that was removed: therefore the text is read again.
    """
    from ray.exceptions import RayError
    from ray.experimental import internal_kv as store

    def last() -> tuple[list[bytes], str]:
        while True:
            keys = sorted(store._internal_kv_list(f"{name}/", namespace="onecopy"))
            found = store._internal_kv_get(keys[-1], namespace="onecopy") if keys else b""
            if found is not None:  # else there is a greater one
                return keys, found.decode()

    with lost(RayError, "the Ray cluster was lost"):
        keys, now = last()
        if now != expected or not text:
            return now
        number = int(keys[-1].rpartition(b"/")[2]) + 1 if keys else 0
        if not store._internal_kv_put(f"{name}/{number:020}", text, overwrite=False, namespace="onecopy"):
            for key in keys:
                store._internal_kv_del(key, namespace="onecopy")
        return last()[1]
