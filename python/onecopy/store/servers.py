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
from contextlib import suppress
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
    """A listening socket in the folder of a store, which other processes of this user find until `close`.

    Raises
    ------
    OSError
        The store cannot be written, or its file system does not support sockets.
    """

    def __init__(self, store: Path) -> None:
        folder = store / FOLDER
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        self._folder = _opened(os.fspath(folder))
        self.name = os.urandom(8).hex()
        """Name of the socket."""
        listening = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            os.fchmod(listening.fileno(), 0o600)
            hidden = f".{self.name}"
            listening.bind(f"/proc/self/fd/{self._folder}/{hidden}")  # paths of sockets have at most 107 bytes
            listening.listen(1024)
            # Sockets with visible names are listening: if one refuses a connection, its server has ended.
            os.rename(hidden, self.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            listening.close()
            self.close()
            raise
        self.listening = listening.detach()
        """Descriptor of the listening socket. The server closes it."""

    def others(self) -> Iterator[tuple[str, _socket.socket]]:
        """Yield the other servers of this user: the name of each, and a connection that does not block."""
        return _connections(self._folder, self.name)

    def hide(self) -> None:
        """Remove the socket from the folder. Existing connections stay open."""
        for name in (f".{self.name}", self.name):
            with suppress(OSError):
                os.unlink(name, dir_fd=self._folder)

    def close(self) -> None:
        """Remove the socket. Further calls do nothing."""
        if self._folder >= 0:
            self.hide()
            os.close(self._folder)
        self._folder = -1


def connected() -> tuple[str, _socket.socket] | None:
    """Return the name of a server of this user and a connection to it; None if there is no server."""
    try:
        folder = _opened(os.path.join(_core.default_folder(memory=False)[0], FOLDER))  # noqa: PTH118 - text
    except OSError:
        return None
    try:
        for name, connection in _connections(folder):
            if not protocol.is_silent(name):
                protocol.limit(connection, protocol.OTHER_ANSWER_S)
                return name, connection
            connection.close()
    finally:
        os.close(folder)
    return None


def sweep(store: Path) -> None:
    """Remove the sockets of servers that have ended."""
    with suppress(OSError):
        folder = _opened(os.fspath(store / FOLDER))
        try:
            for _, connection in _connections(folder):
                connection.close()
        finally:
            os.close(folder)


def is_same_user(connection: _socket.socket) -> bool:
    """Return whether the other end belongs to a process of this user, in the same user namespace.

    A process in another user namespace may have the same user id, but it does not have the same rights.
    """
    pid, user = protocol.peer(connection)
    if _core.known_user(user) != os.geteuid():
        return False
    try:
        (process,) = struct.unpack("i", connection.getsockopt(_socket.SOL_SOCKET, _SO_PEERPIDFD, 4))
        try:
            namespace = fcntl.ioctl(process, _PIDFD_GET_USER_NAMESPACE)
        finally:
            os.close(process)
        try:
            theirs = os.fstat(namespace)
        finally:
            os.close(namespace)
    except OSError:  # a kernel before 6.11, or a process with more rights than this one
        if not pid:
            return False
        try:
            theirs = os.stat(f"/proc/{pid}/ns/user")  # noqa: PTH116 - without pathlib
        except OSError:
            return False
    return os.path.samestat(theirs, os.stat("/proc/self/ns/user"))  # noqa: PTH116 - without pathlib


def _opened(folder: str) -> int:
    """Open the folder that contains the sockets. Raise PermissionError if other users can write to it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if _core.owner_of(descriptor) == os.geteuid() and not os.fstat(descriptor).st_mode & 0o022:
        return descriptor
    os.close(descriptor)
    raise PermissionError(f"{folder} belongs to another user, or other users can write to it")


def _connections(folder: int, own: str = "") -> Iterator[tuple[str, _socket.socket]]:
    """Yield connections to the servers that have sockets in a folder, and remove the sockets of servers that ended."""
    names = sorted(name for name in os.listdir(folder) if name != own and not name.startswith("."))
    found = ((name, connection) for name in names if (connection := _connection(folder, name)) is not None)
    return islice(found, MAX_SERVERS)


def _connection(folder: int, name: str) -> _socket.socket | None:
    """Return a connection to a server of this user that does not block; None if there is no such server."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    connection.setblocking(False)
    try:
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            if stat.S_ISSOCK(os.fstat(place).st_mode):
                connection.connect(f"/proc/self/fd/{place}")
                if is_same_user(connection):
                    return connection
        finally:
            os.close(place)
    except ConnectionRefusedError:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
    except OSError:
        pass
    connection.close()
    return None
