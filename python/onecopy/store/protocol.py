"""The protocol between snapshot servers (`onecopy.run.snapshot_server`), and between a server and its clients.

A connection carries one request. Processes of a run connect to the abstract socket of its server, send the run's
key, and receive the server's proof, so that neither side sends a descriptor to an unrelated process, whatever user
ids a namespace shows. Other processes of the user, and other servers, connect to the socket in the store
(`onecopy.store.servers`), where the kernel identifies both sides. The process then sends one of these messages:

* `GET` (`GET_REMOTE` for a file on a network file system) and the snapshot's lead, with the open file as proof
  that the process may read it. The answers are `HAVE` with a snapshot; `MAKE`, a request to make the snapshot and send
  it with `MADE`; `FULL`; `WAIT` at intervals while another process makes it; and `ASK`.
* `ASK`, the lead, and the time and name that order searches. A server that sends `ASK` asks the process to send the
  same message, with the file, to the user's other servers, and then to send the server `HAVE` with a snapshot from one
  of them, or `NONE`. The other servers answer `HAVE`, `NONE`, or `WAIT` while a process makes the snapshot;
  the process then also sends `WAIT` to its run's server.
* `SHORT`: memory is short, so the server closes the snapshots that other servers made.
* `LOG`: the answer is `HAVE`, with the process id in the server's namespace, and the call log.

A process waits at most `ANSWER_S` seconds for the proof, then `PAUSE_S` seconds for each answer. If the server does not
answer, the process does not contact it again for `SILENCE_S` seconds. Other servers must send their first answer within
`OTHER_ANSWER_S` seconds, each further one within `OTHER_PAUSE_S`, and the snapshot within `most_seconds`.

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
ASK, NONE, SHORT = b"ask", b"none", b"short"
HOLDS = "holds"
"""Name of the folder that contains the links and locks of `onecopy hold`, in the default store in memory."""
ANSWER_S, PAUSE_S, SILENCE_S = 1, 5, 30
OTHER_ANSWER_S, OTHER_PAUSE_S = 0.2, 1
_MAX_MESSAGE_BYTES = 128
_SLOWEST = 20 << 20
"""Minimum speed in bytes per second at which another server's snapshot is expected to be made."""
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
    silent = TimeoutError(errno.ETIMEDOUT, f"the server did not answer within {ANSWER_S} s")
    if is_silent(server):
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
        raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection") from None
    except BlockingIOError:
        connection.close()
        mark_silent(server)
        raise silent from None
    except BaseException:
        connection.close()
        raise
    return connection


def is_silent(server: str) -> bool:
    """Return whether a server did not answer within the last `SILENCE_S` seconds."""
    return time.monotonic() < _silent.get(server, 0.0)


def mark_silent(server: str) -> None:
    """Mark a server as silent, so that it is not contacted for the next `SILENCE_S` seconds."""
    _silent[server] = time.monotonic() + SILENCE_S


def most_seconds(nbytes: int) -> float:
    """Return the maximum number of seconds to wait for a snapshot that another server makes."""
    return PAUSE_S + nbytes / _SLOWEST


def ask_again() -> None:
    """Forget which servers did not answer."""
    _silent.clear()


def limit(connection: _socket.socket, seconds: float) -> None:
    """Make each call on a connection wait for at most `seconds`, and then raise BlockingIOError."""
    connection.setblocking(True)  # the program may have set another default
    value = struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))
    for option in (_socket.SO_SNDTIMEO, _socket.SO_RCVTIMEO):
        connection.setsockopt(_socket.SOL_SOCKET, option, value)


def send(connection: _socket.socket, message: bytes, descriptor: int = -1) -> None:
    """Send a message, and a descriptor if one is given."""
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", descriptor))] if descriptor >= 0 else []
    connection.sendmsg([message], rights, _socket.MSG_NOSIGNAL)


def receive(connection: _socket.socket) -> tuple[bytes, int]:
    """Return a message (empty after the last one), and the descriptor sent with it, or -1 without a descriptor."""
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
