"""Snapshot servers of one user find each other through sockets in the folder ``servers`` of the default store on disk.

A socket in a folder works between containers that share a volume, whatever their network, PID and mount namespaces, and
without a daemon. The folder belongs to the user, and each side asks the kernel whether the other one is a process of
the same user in the same user namespace. The kernel does not remove the socket of a server that was killed; the next
server does.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import stat
import struct
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING

from onecopy import _core
from onecopy.store import protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = "servers"
"""Name of the folder that contains the sockets, in the default store on disk."""
MAX_SERVERS = 64
"""Maximum number of other servers that are asked for a snapshot."""
_SO_PEERPIDFD, _PIDFD_GET_USER_NAMESPACE = 77, 0xFF09


class Address:
    """A listening socket in a store's folder. Other processes of the same user can find it until `close` is called.

    Raises
    ------
    OSError
        The store cannot be written, or its file system does not support sockets.
    """

    def __init__(self, store: Path) -> None:
        self._folder = store / FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self.name = os.urandom(8).hex()
        """Name of the socket."""
        with (
            _opened(os.fspath(self._folder)) as folder,
            closing(_socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)) as listening,
        ):
            os.fchmod(listening.fileno(), 0o600)
            hidden = f".{self.name}"
            listening.bind(f"/proc/self/fd/{folder}/{hidden}")  # paths of sockets have at most 107 bytes
            listening.listen(1024)
            # Sockets with visible names are listening: if one refuses a connection, its server has ended.
            os.rename(hidden, self.name, src_dir_fd=folder, dst_dir_fd=folder)
            self.listening = listening.detach()
            """Descriptor of the listening socket. The server closes it."""

    def has_others(self) -> bool:
        """Return whether there may be other servers."""
        with suppress(OSError):
            return len(os.listdir(self._folder)) > 1  # noqa: PTH208 - names
        return False

    def send_to_others(self, message: bytes) -> None:
        """Send a message to the other servers of this user."""
        for _, connection in connections(os.fspath(self._folder), self.name):
            with closing(connection), suppress(OSError):
                protocol.send(connection, message)

    def close(self) -> None:
        """Remove the socket. Existing connections stay open; further calls do nothing."""
        with suppress(OSError):
            (self._folder / self.name).unlink()


def connected() -> tuple[str, _socket.socket] | None:
    """Return the name of one of this user's servers and a connection to it, or None if there is no server."""
    return next(connections(), None)


def sweep(store: Path) -> None:
    """Remove the sockets of servers that have ended."""
    for _, connection in connections(os.fspath(store / FOLDER)):
        connection.close()


def connections(folder: str = "", own: str = "") -> Iterator[tuple[str, _socket.socket]]:
    """Yield the servers of this user whose sockets are in a folder, and remove the sockets of servers that have ended.

    Yields the name of each server, and a connection whose calls wait for at most `protocol.OTHER_ANSWER_S`. Omits the
    server `own`, and servers that recently did not answer. Without `folder`, use the one in the default store.
    """
    with suppress(OSError), _opened(folder or f"{_core.default_folder(memory=False)[0]}/{FOLDER}") as opened:
        names = sorted(name for name in os.listdir(opened) if name != own and name[0] != ".")  # noqa: PTH208
        found = ((name, _connection(opened, name)) for name in names if not protocol.is_silent(name))
        yield from islice(((name, connection) for name, connection in found if connection is not None), MAX_SERVERS)


def is_same_user(connection: _socket.socket) -> bool:
    """Return whether the other end belongs to a process of this user, in the same user namespace.

    A process in another user namespace may have the same user id, but it does not have the same rights.
    """
    pid, user = protocol.peer(connection)
    if _core.known_user(user) != os.geteuid():
        return False
    try:
        (descriptor,) = struct.unpack("i", connection.getsockopt(_socket.SOL_SOCKET, _SO_PEERPIDFD, 4))
        process = _core.FileHandle(descriptor)
        namespace = _core.FileHandle(fcntl.ioctl(process.fileno(), _PIDFD_GET_USER_NAMESPACE))
        path = f"/proc/self/fd/{namespace.fileno()}"
    except OSError:  # a kernel before 6.11, or a process with more rights than this one
        path = f"/proc/{pid}/ns/user"  # the id is 0 if the process is not in this PID namespace
    try:
        return os.path.samefile(path, "/proc/self/ns/user")  # noqa: PTH121 - without pathlib
    except OSError:
        return False


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Open the folder that contains the sockets. Raise PermissionError if other users can write to it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _core.owner_of(descriptor) != os.geteuid() or os.fstat(descriptor).st_mode & 0o022:
            raise PermissionError(f"{folder} belongs to another user, or other users can write to it")
        yield descriptor
    finally:
        os.close(descriptor)


def _connection(folder: int, name: str) -> _socket.socket | None:
    """Return a connection to one of this user's servers, or None if it does not exist or accepts no connections."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    connection.setblocking(False)
    try:
        if stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            connection.connect(f"/proc/self/fd/{folder}/{name}")
            if is_same_user(connection):
                protocol.limit(connection, protocol.OTHER_ANSWER_S)
                return connection
    except ConnectionRefusedError:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
    except OSError:
        pass
    connection.close()
    return None
