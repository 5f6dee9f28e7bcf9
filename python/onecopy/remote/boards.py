"""Boards: small texts that the nodes of a job read and replace, by which they find each other.

A board is that of torchrun's agent, one that the first of a list of addresses serves, or an actor of Ray
(`onecopy.remote.ray_nodes`). It is not trusted: names are digests, and texts are authenticated with the secret of the
job, so that another user who reaches the board learns addresses alone, and can only make nodes fetch for themselves.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import os
import secrets
import socket
import stat
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.remote.channels import Channel, Listener, NodeLostError, digest, lost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

__all__ = ["Board", "Job", "Texts", "job_of_addresses", "job_of_torchrun", "secret_of_user"]

JOIN_S = 60.0
"""Seconds to wait for the other nodes, and for the board."""
PORT = 29600
"""Port of the first address if it has none."""
VARIABLE = "ONECOPY_NODES_SECRET"
"""Environment variable with the secret of a job."""
_MAX_MESSAGE, _MAX_TEXTS, _MAX_SWAPS = 1 << 20, 100_000, 1000
_served: dict[tuple[str, int], Listener] = {}  # by this process, until it ends


class Texts:
    """Texts by names, in this process; other classes have those of another one."""

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
        """Answer the requests of a `_TextsOfServer`."""
        while True:
            request = json.loads(channel.receive(_MAX_MESSAGE, 7 * 86400.0))
            channel.send(json.dumps(self.swap(*request)).encode())

    def close(self) -> None:
        """Close the connection to another process, if there is one."""


class Board:
    """A board, for the nodes of a job, which know its secret; jobs with other names use other texts."""

    def __init__(self, texts: Texts, job: str, secret: bytes) -> None:
        self._texts, self._job, self.secret = texts, job, secret

    def name(self, *parts: str) -> str:
        """Return the name of a text; it does not show what it is made of."""
        encoded = (one.encode("utf-8", "surrogateescape") for one in (self._job, *parts))
        return digest(self.secret, b"name", *encoded).hex()

    def get(self, name: str) -> Any:
        """Return a value; None if there is none, or another user wrote it."""
        return self._value(name, self._texts.swap(name, "", ""))

    def update(self, name: str, function: Callable[[Any], Any]) -> Any:
        """Replace a value by what a function makes of it, in one step; return the new one."""
        text = self._texts.swap(name, "", "")
        for _ in range(_MAX_SWAPS):
            value = function(self._value(name, text))
            made = json.dumps(value)
            made = f"{self._proof(name, made)} {made}"
            if (text_then := self._texts.swap(name, text, made)) == made:
                return value
            text = text_then
        raise NodeLostError("the texts by which nodes find each other are changed by another program")

    def close(self) -> None:
        """Close the connection to the texts."""
        self._texts.close()

    def _value(self, name: str, text: str) -> Any:
        proof, _, value = text.partition(" ")
        return json.loads(value) if hmac.compare_digest(proof.encode(), self._proof(name, value).encode()) else None

    def _proof(self, name: str, value: str) -> str:
        return digest(self.secret, b"text", name.encode(), value.encode()).hex()


@dataclass(frozen=True, slots=True)
class Job:
    """The nodes of a job, seen from that with the number `rank`; `host` and `port` serve the texts of the board."""

    rank: int
    size: int
    host: str
    port: int
    own: str
    """Address of this node, or ""."""
    name: str

    def board(self) -> Board:
        """Return the board of the job; `NodeLostError` if it cannot be reached."""
        secret = secret_of_user()
        if not self.own:
            return Board(_TorchTexts(self.host, self.port), self.name, secret)
        if self.rank == 0 and (self.host, self.port) not in _served:
            with contextlib.suppress(OSError):  # another process of this node serves it
                _served[self.host, self.port] = Listener(self.host, self.port, secret, Texts().serve)
        return Board(_TextsOfServer(self.host, self.port, secret), self.name, secret)

    def address(self) -> str:
        """Return the address at which other nodes reach this one: that from which packets to the board are sent."""
        if self.own:
            return self.own
        family, kind, protocol, _, address = socket.getaddrinfo(self.host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.connect(address)  # sends nothing
            return str(one.getsockname()[0])


def job_of_torchrun() -> Job:
    """Return the job of this process, which torchrun started.

    RuntimeError if it did not; the variables are those that torchrun documents.
    """
    variables = ("GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in variables if name not in os.environ]
    if missing or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        reason = f"{missing[0]} is not set" if missing else "TORCHELASTIC_USE_AGENT_STORE is not True"
        raise RuntimeError(f"nodes='torchrun': this process was not started by torchrun ({reason})")
    rank, size, host, port = (os.environ[name] for name in variables)
    # not TORCHELASTIC_RESTART_COUNT: a node whose processes did not fail does not count the restart
    return Job(int(rank), int(size), host, int(port), "", f"{os.environ.get('TORCHELASTIC_RUN_ID')} {size}")


def job_of_addresses(addresses: Sequence[str]) -> Job:
    """Return the job whose nodes have these addresses, in the same order on all of them.

    They are host names or IP addresses, "[...]" around those of version 6; the first may end with ":PORT" (29600).
    ValueError if not exactly one of them belongs to this machine, or one is invalid.
    """
    parsed = [_parsed(address) for address in addresses]
    own = [rank for rank, (host, _) in enumerate(parsed) if _is_own(host)]
    if len(own) != 1:
        raise ValueError(f"nodes: {len(own)} of {', '.join(addresses)} are addresses of this machine, not 1")
    host, port = parsed[0]
    return Job(own[0], len(parsed), host, port, parsed[own[0]][0], " ".join(addresses))


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
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
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
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise PermissionError(errno.EACCES, "it is not this user's alone")
            return file.read().encode()
    except OSError as error:
        raise RuntimeError(
            f"nodes that fetch together need a secret: set {VARIABLE} ({path}: {error.strerror})"
        ) from None


class _TextsOfServer(Texts):
    """Texts that the process at an address serves."""

    def __init__(self, host: str, port: int, secret: bytes) -> None:
        until = time.monotonic() + JOIN_S
        while True:
            try:
                self._channel = Channel.to(host, port, secret)
            except NodeLostError as error:
                if "secret" in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return

    def swap(self, name: str, expected: str, text: str) -> str:
        self._channel.send(json.dumps([name, expected, text]).encode())
        return str(json.loads(self._channel.receive(_MAX_MESSAGE)))

    def close(self) -> None:
        self._channel.close()


class _TorchTexts(Texts):
    """Texts of the agent of torchrun."""

    def __init__(self, host: str, port: int) -> None:
        import torch.distributed as dist

        limit = timedelta(seconds=JOIN_S)
        with self._errors():
            self._store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)

    def swap(self, name: str, expected: str, text: str) -> str:
        with self._errors():
            return str(self._store.compare_set(f"onecopy/{name}", expected, text).decode())

    def _errors(self) -> AbstractContextManager[None]:
        return lost(
            RuntimeError,
            "the agent of torchrun was lost",
            lambda error: str(error).partition("\n")[0].rpartition("] ")[2],
        )
