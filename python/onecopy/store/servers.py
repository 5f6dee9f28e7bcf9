"""Servers of one user find each other: each listens at a socket in the folder ``servers`` of the default store on disk.

A socket in a folder works between containers that share a volume, whatever their network, PID and mount namespaces, and
without a daemon. The folder belongs to the user; both sides check that the other is a process of the same user in the
same user namespace. The kernel does not remove the socket of a server that was killed: the next server does.
"""

from __future__ import annotations

import _socket
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from onecopy import _core, store
from onecopy.store import protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "servers"
"""Name of the folder with the sockets, in the default store on disk."""
MAX_SERVERS = 64
"""Number of other servers that are asked for a snapshot."""


class Address:
    """A listening socket in the folder, which other processes of this user find until `close`.

    Raises
    ------
    OSError
        The store cannot be written, or its file system has no sockets.
    """

    def __init__(self) -> None:
        folder = store.Store(on_wait=None).folder / FOLDER
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        self._folder = _opened(os.fspath(folder))
        self.name = os.urandom(8).hex()
        """Name of the socket; servers that make the same snapshot at the same time compare their names."""
        listening = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            os.fchmod(listening.fileno(), 0o600)
            hidden = f".{self.name}"
            listening.bind(_path(self._folder, hidden))
            listening.listen(1024)
            # Sockets that can be found listen: a refused connection means that the server has ended.
            os.rename(hidden, self.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            listening.close()
            self.close()
            raise
        self.listening = listening.detach()
        """Descriptor of the listening socket, which the server closes."""

    def others(self) -> Iterator[tuple[str, _socket.socket]]:
        """Yield the other servers by name, each with a connection that does not block."""
        return _connections(self._folder, self.name)

    def hide(self) -> None:
        """Remove the socket from the folder; connections stay."""
        for name in (f".{self.name}", self.name):
            with suppress(OSError):
                os.unlink(name, dir_fd=self._folder)

    def close(self) -> None:
        """Remove the socket; further calls do nothing."""
        if self._folder >= 0:
            self.hide()
            os.close(self._folder)
        self._folder = -1


def connected() -> _socket.socket | None:
    """Return a connection to a server of this user that answers; None if there is none."""
    try:
        folder = _opened(os.path.join(_core.default_folder(memory=False)[0], FOLDER))  # noqa: PTH118 - text
    except OSError:
        return None
    try:
        for _, connection in _connections(folder):
            protocol.limit(connection, protocol.OTHER_ANSWER_S)
            with suppress(OSError):
                introduce(connection)
                message, descriptor = protocol.receive(connection)
                try:
                    is_right = is_same_user(connection, message, descriptor)
                finally:
                    os.close(descriptor)
                if is_right:
                    protocol.limit(connection, protocol.PAUSE_S)
                    return connection
            connection.close()
    finally:
        os.close(folder)
    return None


def introduce(connection: _socket.socket) -> None:
    """Send the proof that this process is in the user namespace that it is in: its descriptor."""
    namespace = os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        protocol.send(connection, protocol.USER, namespace)
    finally:
        os.close(namespace)


def is_same_user(connection: _socket.socket, message: bytes, descriptor: int) -> bool:
    """Return whether a first message comes from a process of this user in this user namespace.

    A process in another user namespace may have the same user id, but not the same rights.
    """
    if descriptor < 0 or message != protocol.USER:
        return False
    is_here = os.path.samestat(os.fstat(descriptor), os.stat("/proc/self/ns/user"))  # noqa: PTH116 - without pathlib
    return is_here and _core.known_user(protocol.peer(connection)[1]) == os.geteuid()


def _opened(folder: str) -> int:
    """Open the folder of sockets; PermissionError if other users may write to it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    facts = os.fstat(descriptor)
    if _core.owner_of(descriptor) == os.geteuid() and not facts.st_mode & 0o022:
        return descriptor
    os.close(descriptor)
    raise PermissionError(f"{folder} belongs to another user, or other users may write to it")


def _path(folder: int, name: str) -> str:
    """Return a path for `bind` and `connect`, which take at most 107 bytes."""
    return f"/proc/self/fd/{folder}/{name}"


def _connections(folder: int, own: str = "") -> Iterator[tuple[str, _socket.socket]]:
    """Yield connections to the servers whose sockets are in a folder, and remove the sockets of those that ended."""
    names = [name for name in os.listdir(folder) if name != own and not name.startswith(".")]
    for name in sorted(names)[:MAX_SERVERS]:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            connection.connect(_path(folder, name))
        except OSError as error:
            connection.close()
            if isinstance(error, ConnectionRefusedError):
                with suppress(OSError):
                    if stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                        os.unlink(name, dir_fd=folder)
            continue
        yield name, connection


__all__ = ["FOLDER", "Address", "connected", "introduce", "is_same_user"]
