"""Keeps the snapshots of one `onecopy run`: memory that its processes fill once and map, gone when the run ends.

A process that loads a file connects to an abstract socket and sends ``get``, the secret, and an open descriptor of the
file, which proves that it may read it. The answer is ``have`` with a descriptor of the snapshot; or ``make``, to one
process at a time for each contents: it sends ``made`` with the memory that it has filled and sealed, which the others
that wait are given. If it closes the connection instead, the next one that waits is asked to make it.

Processes of another user than that of `onecopy run` are served if that is root, and never get what others have made.

Kept are snapshots whose file is unchanged. Those that no process maps any more are released, the least recently used
first, when there are many, or when a new one would not fit into half of the memory that may be used.
"""

from __future__ import annotations

import hmac
import os
import selectors
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onecopy import _core
from onecopy.identity import FileIdentity, file_identity
from onecopy.memory import proc
from onecopy.snapshots import GET, GET_REMOTE, HAVE, MADE, MAKE, MEMORY_NAME, fits_in_memory, is_sealed

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_KEPT = 400
"""Snapshots that are kept, each with a descriptor."""
_Key = tuple[int, FileIdentity]


@dataclass
class _Kept:
    """A snapshot, or one that is being made."""

    path: str
    is_remote: bool
    memory: int = -1
    """Descriptor of the sealed memory; -1 until it is made."""
    maker: socket.socket | None = None
    waiting: list[socket.socket] = field(default_factory=list)


class Keeper:
    """Answers the processes of one run, in one thread; `listening` and `environment` are those of `runs.listen`.

    `each` is called meanwhile, every `seconds`.
    """

    def __init__(self, listening: int, environment: str, each: Callable[[], object], seconds: float) -> None:
        self._listening, self._secret = socket.socket(fileno=listening), environment.partition(" ")[2].encode()
        self._each, self._seconds = each, seconds
        self._kept: dict[_Key, _Kept] = {}
        """By user and contents, the least recently used first."""
        self._stopped = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)

    def stop(self) -> None:
        """Let `serve` release all snapshots and return; the end of the process does the same."""
        self._stopped = True
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as own:
            own.connect(self._listening.getsockname())

    @property
    def kept(self) -> int:
        """Number of snapshots that are kept or made."""
        return len(self._kept)

    def serve(self) -> None:
        """Answer processes, until another thread calls `stop`."""
        self._answer_all()
        for key in [key for key, kept in self._kept.items() if kept.memory >= 0]:
            self._release(key)
        for connection in [each.fileobj for each in self._selector.get_map().values()]:
            assert isinstance(connection, socket.socket)
            connection.close()
        self._selector.close()

    def _answer_all(self) -> None:
        due = time.monotonic()
        while not self._stopped:
            if time.monotonic() >= due:
                begin = time.monotonic()
                self._each()
                due = begin + max(self._seconds, 20 * (time.monotonic() - begin))
            for ready, _ in self._selector.select(max(due - time.monotonic(), 0)):
                connection = ready.fileobj
                assert isinstance(connection, socket.socket)
                if connection is self._listening:
                    with suppress(OSError):  # EMFILE: the process is answered when others have ended
                        self._selector.register(connection.accept()[0], selectors.EVENT_READ)
                    continue
                try:
                    message, descriptors, _, _ = socket.recv_fds(connection, 64, 1, socket.MSG_CMSG_CLOEXEC)
                except OSError:
                    message, descriptors = b"", []
                try:
                    self._answer(connection, message, descriptors)
                except OSError:  # the process has ended meanwhile
                    self._drop(connection)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)

    def _answer(self, connection: socket.socket, message: bytes, descriptors: list[int]) -> None:
        if descriptors and hmac.compare_digest(message, GET + self._secret):
            self._get(connection, descriptors[0], is_remote=False)
        elif descriptors and hmac.compare_digest(message, GET_REMOTE + self._secret):
            self._get(connection, descriptors[0], is_remote=True)
        elif descriptors and message == MADE:
            self._made(connection, descriptors[0])
        else:
            self._drop(connection)

    def _get(self, connection: socket.socket, file: int, *, is_remote: bool) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        user = struct.unpack("3i", credentials)[1]
        if os.geteuid() not in (0, user):
            return self._drop(connection)
        # As the process has just asked: a server that does not answer must not hold up the other processes.
        key = user, FileIdentity(*_core.content_identity(file, ask=False))
        self._release_changed()
        path = os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115 - text
        kept = self._kept.pop(key, None) or _Kept(path, is_remote)
        self._kept[key] = kept  # now the most recently used
        if kept.memory >= 0:
            self._give(connection, kept)
        elif kept.maker is None:
            self._make_room(key[1].nbytes)
            kept.maker = connection
            connection.send(MAKE)
        else:
            kept.waiting.append(connection)
        return None

    def _give(self, connection: socket.socket, kept: _Kept) -> None:
        with suppress(OSError):  # the process has ended
            socket.send_fds(connection, [HAVE], [kept.memory])
        self._close(connection)

    def _made(self, connection: socket.socket, memory: int) -> None:
        key = next((key for key, kept in self._kept.items() if kept.maker is connection), None)
        if key is None or not is_sealed(memory) or os.fstat(memory).st_size != key[1].nbytes:
            return self._drop(connection)
        kept = self._kept[key]
        kept.memory, kept.maker = os.dup(memory), None
        for other in kept.waiting:
            self._give(other, kept)
        kept.waiting.clear()
        self._close(connection)
        return None

    def _drop(self, connection: socket.socket) -> None:
        """Forget a process; if it was making a snapshot, ask the next one that waits."""
        self._close(connection)
        for key, kept in list(self._kept.items()):
            with suppress(ValueError):
                kept.waiting.remove(connection)
            if kept.maker is connection:
                kept.maker = None
                while kept.waiting and kept.maker is None:
                    following = kept.waiting.pop(0)
                    try:
                        following.send(MAKE)
                        kept.maker = following
                    except OSError:
                        self._close(following)
                if kept.maker is None:
                    del self._kept[key]

    def _close(self, connection: socket.socket) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()

    # --- what is not needed any more ------------------------------------------------------------------------------

    def _release_changed(self) -> None:
        for key, kept in list(self._kept.items()):
            if kept.memory >= 0 and not kept.is_remote:
                try:
                    changed = file_identity(kept.path) != key[1]
                except OSError:
                    changed = True
                if changed:
                    self._release(key)

    def _make_room(self, nbytes: int) -> None:
        """Release snapshots that no process maps, until a new one fits."""
        mapped: set[int] | None = None
        for key, kept in list(self._kept.items()):
            if len(self._kept) <= MAX_KEPT and fits_in_memory(nbytes):
                return
            if kept.memory >= 0:
                mapped = _mapped_inodes() if mapped is None else mapped
                if os.fstat(kept.memory).st_ino not in mapped:
                    self._release(key)

    def _release(self, key: _Key) -> None:
        os.close(self._kept.pop(key).memory)


def _mapped_inodes() -> set[int]:
    """Return the inodes of the snapshots that any process of this user maps."""
    found = set[int]()
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - text
        with suppress(OSError, ValueError):
            found |= {one.inode for one in proc.maps(int(pid)) if one.path.startswith(f"/memfd:{MEMORY_NAME}")}
    return found
