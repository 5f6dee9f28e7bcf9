"""The protocol of snapshot servers (`onecopy.run.snapshot_server`): with the processes that use them, and each other.

A connection carries one request. Processes of a run connect to the abstract socket of its server, send the key of the
run, and get the server's proof, so that neither gives a descriptor to a stranger, whatever user ids a namespace shows.
Other processes of the user, and other servers, connect to its socket in the store (`onecopy.store.servers`), where both
sides send `USER`. Then the process sends one of:

* `GET` (`GET_REMOTE` for a file on a network file system) and the lead of the snapshot, with the open file, which
  proves that the process may read it. The answers are `HAVE` with a snapshot; `MAKE`, which asks the process to make
  the snapshot and send it with `MADE`; `FULL`; and `WAIT` at intervals while another process makes it.
* `ASK` (`ASK_REMOTE`), the lead and the name of the server that asks, with the file. The answers are `HAVE`, `NONE`,
  and `WAIT` while a process makes the snapshot.
* `SHORT`: memory is short; the server closes what it got from others.
* `LOG`: the answer is `HAVE`, with the process id as the server sees it, and the log of calls.

A process never waits long: `ANSWER_S` seconds for the proof, then `PAUSE_S` for each answer. It does not contact a
silent server again for `SILENCE_S` seconds. A server waits for `OTHER_ANSWER_S` seconds for another one.

This module runs inside user programs. It uses `_socket`, because libraries may replace `socket`.
"""

from __future__ import annotations

import _socket
import errno
import os
import struct
import time

GET, GET_REMOTE, LOG, MADE = b"get", b"far", b"log", b"made"
HAVE, MAKE, WAIT, FULL = b"have", b"make", b"wait", b"full"
USER, ASK, ASK_REMOTE, NONE, SHORT = b"user", b"ask", b"askfar", b"none", b"short"
ANSWER_S, PAUSE_S, SILENCE_S = 1, 5, 30
OTHER_ANSWER_S = 0.2
_MAX_MESSAGE_BYTES = 64
_silent: dict[str, float] = {}
"""Servers that did not answer, and the times until which they are not contacted again."""


def listen() -> tuple[int, str]:
    """Return a listening socket, and text with the address, key and proof that processes need to connect."""
    listening = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    address = f"onecopy-run-{os.urandom(8).hex()}"
    listening.bind(f"\0{address}")
    listening.listen(1024)
    return listening.detach(), f"{address} {os.urandom(16).hex()} {os.urandom(16).hex()}"


def connected(server: str) -> _socket.socket:
    """Connect to the server that `listen` described. Raise OSError if it does not answer, or is a different server."""
    address, key, proof = server.split(" ")
    silent = TimeoutError(errno.ETIMEDOUT, f"it did not answer within {ANSWER_S} s")
    if time.monotonic() < _silent.get(server, 0.0):
        raise silent
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        limit(connection, ANSWER_S)
        connection.connect(f"\0{address}")
        send(connection, key.encode())
        if receive(connection)[0] != proof.encode():
            raise ConnectionResetError
        limit(connection, PAUSE_S)
    except (BrokenPipeError, ConnectionResetError):
        connection.close()
        raise ConnectionResetError(errno.ECONNRESET, "it closed the connection") from None
    except BlockingIOError:
        connection.close()
        _silent[server] = time.monotonic() + SILENCE_S
        raise silent from None
    except BaseException:
        connection.close()
        raise
    return connection


def ask_again() -> None:
    """Forget which servers did not answer."""
    _silent.clear()


def limit(connection: _socket.socket, seconds: float) -> None:
    """Let each call wait for at most this number of seconds, then raise BlockingIOError."""
    connection.setblocking(True)  # the program may have another default
    whole = int(seconds)
    for option in (_socket.SO_SNDTIMEO, _socket.SO_RCVTIMEO):
        value = struct.pack("@ll", whole, int((seconds - whole) * 1_000_000))
        connection.setsockopt(_socket.SOL_SOCKET, option, value)


def send(connection: _socket.socket, message: bytes, descriptor: int = -1) -> None:
    """Send a message, and a descriptor if one is given."""
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", descriptor))] if descriptor >= 0 else []
    connection.sendmsg([message], rights, _socket.MSG_NOSIGNAL)


def receive(connection: _socket.socket) -> tuple[bytes, int]:
    """Return a message, and the descriptor sent with it or -1. The message is empty after the last one."""
    size = _socket.CMSG_LEN(4)  # one descriptor; the kernel closes others
    message, ancillary, _, _ = connection.recvmsg(_MAX_MESSAGE_BYTES, size, _socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS) and len(data) == 4:
            return message, struct.unpack("i", data)[0]
    return message, -1


def peer(connection: _socket.socket) -> tuple[int, int]:
    """Return the id and user of the process at the other end, in the namespaces of this process."""
    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    pid, user, _ = struct.unpack("iII", credentials)
    return pid, user
