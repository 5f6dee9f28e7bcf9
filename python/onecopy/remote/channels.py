"""Connections between nodes that prove to each other that they know a secret; each message proves it again.

The secret is never sent: both ends answer a random number of the other with an HMAC-SHA256. The keys of the messages of
a connection, one per direction, are made of both numbers, and a message is authenticated with its number in the
connection, so that none can be changed, left out or repeated. Nothing is encrypted.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

from onecopy.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SILENT_S", "Channel", "Listener", "NodeLostError", "digest", "lost"]

_NUMBER, _HEAD = 32, struct.Struct("<Q32s")
_HANDSHAKE_S = 10.0
SILENT_S = 15.0
"""Seconds in which the next message must begin: a node that waits sends an empty one every few seconds."""
_MESSAGE_S = 60.0
"""Seconds in which the rest of a message must arrive, or leave."""
_MAX_CONNECTIONS, _POLL_S = 256, 0.05


class NodeLostError(Error, ConnectionError):
    """Another node of the group ended, failed, did not come, or does not know the secret."""


@contextlib.contextmanager
def lost(kind: type[Exception] = OSError, what: str = "another node cannot be reached") -> Iterator[None]:
    """Raise errors of a kind as `NodeLostError`: what was lost, and the first line of the reason, without a number."""
    try:
        yield
    except NodeLostError:
        raise
    except kind as error:
        line = str(error).strip().partition("\n")[0].rpartition("] ")[2]
        raise NodeLostError(f"{what}: {line[:200]}") from None


def digest(secret: bytes, *parts: bytes | memoryview) -> bytes:
    """Return the HMAC-SHA256 of parts, each of which is preceded by its length."""
    made = hmac.new(secret, digestmod="sha256")
    for part in parts:
        made.update(struct.pack("<Q", len(part)))
        made.update(part)
    return made.digest()


class Channel:
    """An end of a connection. Its methods raise `NodeLostError` when the other end is gone, silent, or not genuine.

    `connection` is a connected socket, which the channel closes; `serves` of the end that accepted it. Both ends know
    the secret.
    """

    def __init__(self, connection: socket.socket, secret: bytes, *, serves: bool) -> None:
        self._socket = connection
        self._sent = self._received = 0
        own = secrets.token_bytes(_NUMBER)
        proof = memoryview(bytearray(2 * _NUMBER))
        with lost():
            connection.settimeout(_HANDSHAKE_S)
            if serves:
                connection.sendall(own)
                self._fill(proof, _HANDSHAKE_S)
                both = own + bytes(proof[:_NUMBER])
                _expect(digest(secret, b"client", both), proof[_NUMBER:])
                connection.sendall(digest(secret, b"server", both))
            else:
                self._fill(proof[:_NUMBER], _HANDSHAKE_S)
                both = bytes(proof[:_NUMBER]) + own
                connection.sendall(own + digest(secret, b"client", both))
                with contextlib.suppress(NodeLostError):  # closed by an end that does not accept the proof
                    self._fill(proof[_NUMBER:], _HANDSHAKE_S)
                _expect(digest(secret, b"server", both), proof[_NUMBER:])
        keys = digest(secret, b"to the server", both), digest(secret, b"to the client", both)
        self._own, self._other = reversed(keys) if serves else keys

    @classmethod
    def to(cls, host: str, port: int, secret: bytes) -> Channel:
        """Connect to a `Listener`."""
        with lost():
            connection = socket.create_connection((host, port), _HANDSHAKE_S)
        try:
            return cls(connection, secret, serves=False)
        except BaseException:
            connection.close()
            raise

    def send(self, message: bytes | memoryview) -> None:
        """Send a message."""
        with lost():
            self._socket.settimeout(_MESSAGE_S)
            proof = digest(self._own, struct.pack("<Q", self._sent), message)
            self._sent += 1
            self._socket.sendall(_HEAD.pack(len(message), proof))
            self._socket.sendall(message)

    def receive(self, longest: int, seconds: float = SILENT_S) -> bytes:
        """Return the next message, which begins within `seconds`."""
        buffer = memoryview(bytearray(longest))
        return bytes(buffer[: self.receive_into(buffer, seconds)])

    def receive_into(self, buffer: memoryview, seconds: float = SILENT_S) -> int:
        """Write the next message, which begins within `seconds`, into a buffer; return its length."""
        head = memoryview(bytearray(_HEAD.size))
        with lost():
            self._fill(head, seconds)
            length, proof = _HEAD.unpack(head)
            if length > len(buffer):
                raise NodeLostError(f"another node sent a message of {length} bytes, not of at most {len(buffer)}")
            self._fill(buffer[:length], _MESSAGE_S)
        _expect(digest(self._other, struct.pack("<Q", self._received), buffer[:length]), proof)
        self._received += 1
        return int(length)

    def _fill(self, buffer: memoryview, seconds: float) -> None:
        until = time.monotonic() + seconds
        while buffer:
            self._socket.settimeout(max(until - time.monotonic(), 1e-3))
            count = self._socket.recv_into(buffer)
            if count == 0:
                raise NodeLostError("another node closed its connection")
            buffer = buffer[count:]

    def close(self) -> None:
        """Close the connection, also while another thread waits for a message."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _expect(proof: bytes, found: memoryview | bytes) -> None:
    if not hmac.compare_digest(proof, found):
        raise NodeLostError("another node does not know the secret: set ONECOPY_NODES_SECRET to one text on all nodes")


class Listener:
    """A port of one address, and a thread for each connection to it; OSError if the address cannot be bound.

    Port 0: any. `serve` is called with each connection whose other end knows the secret, in the thread of the
    connection, which is closed when it returns or raises an error.
    """

    def __init__(self, host: str, port: int, secret: bytes, serve: Callable[[Channel], object]) -> None:
        self._secret, self._serve = secret, serve
        self._open: set[socket.socket] = set()
        self._is_closed = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server((host, port), family=family, backlog=128)
        self.socket.settimeout(_POLL_S)
        self.port = int(self.socket.getsockname()[1])
        """The port."""
        self._thread = threading.Thread(target=self._accept, name="onecopy-listener", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether there is no connection."""
        return not self._open

    def _accept(self) -> None:
        while not self._is_closed:
            with contextlib.suppress(OSError):
                connection, _ = self.socket.accept()
                if len(self._open) >= _MAX_CONNECTIONS:
                    connection.close()
                    continue
                self._open.add(connection)
                threading.Thread(target=self._serve_one, args=[connection], daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        """Serve a connection; one that violates the protocol is closed."""
        try:
            with connection, contextlib.suppress(OSError, ValueError, TypeError, struct.error):
                self._serve(Channel(connection, self._secret, serves=True))
        finally:
            self._open.discard(connection)

    def close(self) -> None:
        """Close the port and all connections. Further calls do nothing."""
        self._is_closed = True
        self._thread.join()
        self.socket.close()
        while self._open:
            for one in list(self._open):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            time.sleep(0.005)
