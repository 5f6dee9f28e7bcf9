"""The server of one `onecopy run`: it owns snapshots, which processes of the run fill once and map.

`onecopy.store.protocol` describes the messages. One process at a time makes the snapshot of some contents, while others
that want it wait. If the maker closes its connection, or makes no progress for `STALLED_S`, the process that has waited
longest makes it. A snapshot goes only to processes of the user whose process made it.

**No process blocks another.** The server never waits for a connection: it closes one that does not read, does not
quickly prove that it belongs to the run, or sends anything unexpected. The number of connections is limited per process
and per user. Connections of users that the run does not serve are closed before anything is read.

**Release.** The server drops snapshots whose file has changed. It releases unused ones, the least recently used first,
when there are many, or when a new one would not fit into half of the available memory. A snapshot is in use while any
process has it open or mapped, which a lease shows without a search in ``/proc``. All memory is freed with the run.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import selectors
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import NamedTuple

from onecopy import _core
from onecopy.files.direct_mapping import is_sealed
from onecopy.files.identity import FileIdentity, file_identity
from onecopy.store import protocol
from onecopy.store.snapshots import fits_in_memory

MAX_KEPT = 400
"""Number of snapshots above which unused ones are released."""
STALLED_S = 5.0
"""Seconds without progress after which another process makes a snapshot."""
MAX_OF_PROCESS = 64
"""Number of connections of one process."""
_MAX_DESCRIPTORS = 1 << 14
"""Half of them are for snapshots, a quarter for connections."""
_TICK_S = 0.25
_MAX_ACCEPTS = 32
"""Number of connections that are accepted before the others are read again."""


class _Key(NamedTuple):
    """What identifies a snapshot."""

    user: int
    contents: FileIdentity
    lead: int


@dataclass(eq=False)
class _Client:
    """A connection of a process."""

    connection: socket.socket
    pid: int
    user: int
    deadline: float
    """Time at which it is closed unless it has requested something."""
    is_known: bool = False
    """Whether it has sent the key of the run."""
    wants: _Key | None = None
    """The snapshot that it requested."""
    may_make: bool = False
    """Whether it was asked to make that snapshot."""


@dataclass
class _Kept:
    """A snapshot that exists or is being made."""

    path: str
    is_remote: bool
    memory: int = -1
    """Descriptor of the sealed memory; -1 until it is made."""
    maker: _Client | None = None
    progress: str = ""
    """The kernel's counters of the maker, unchanged since the time `since`."""
    since: float = 0.0


class SnapshotServer:
    """Answers the processes of one run, in one thread.

    `listening` and `server` are those of `protocol.listen`, `calls` is the descriptor of the file of calls.
    """

    def __init__(self, listening: int, server: str, calls: int) -> None:
        self._listening, self._calls = socket.socket(fileno=listening), calls
        self._key, self._proof = server.encode().split()[1:]
        self._kept: dict[_Key, _Kept] = {}
        """Least recently used first."""
        self._clients: dict[_Client, None] = {}
        """Oldest first."""
        descriptors = getrlimit(RLIMIT_NOFILE)[0]
        descriptors = _MAX_DESCRIPTORS if descriptors == RLIM_INFINITY else min(descriptors, _MAX_DESCRIPTORS)
        self._most_kept, self._most_clients = descriptors // 2, descriptors // 4
        self._stopped = False
        self._due = 0.0
        self._listening.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)

    def stop(self) -> None:
        """Let `serve` release all snapshots and return."""
        self._stopped = True
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as own:
            own.connect(self._listening.getsockname())

    @property
    def kept(self) -> int:
        """Number of snapshots that exist or are being made."""
        return len(self._kept)

    def serve(self) -> None:
        """Answer processes until another thread calls `stop`."""
        try:
            while not self._stopped:
                for ready, _ in self._selector.select(_TICK_S if self._clients else None):
                    if ready.data is None:
                        self._accept()
                    elif ready.data in self._clients:
                        self._read(ready.data)
                self._tick()
        finally:
            self._listening.close()
            self._selector.close()
            for client in self._clients:
                client.connection.close()
            for key in [key for key, kept in self._kept.items() if kept.memory >= 0]:
                self._release(key)

    # --- connections ----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_MAX_ACCEPTS):
            try:
                connection = self._listening.accept()[0]
            except BlockingIOError:
                return
            except OSError:  # the system has too many open files: this thread must not spin
                time.sleep(0.01)
                return
            client = _Client(connection, *protocol.peer(connection), time.monotonic() + protocol.ANSWER_S)
            is_served = os.geteuid() == 0 or client.user in (0, os.geteuid())
            if is_served and self._admits(client):
                connection.setblocking(False)
                self._selector.register(connection, selectors.EVENT_READ, client)
                self._clients[client] = None
            else:
                connection.close()

    def _admits(self, new: _Client) -> bool:
        """Return whether a process may have another connection, after closing one that has not sent the key."""
        of_user = [one for one in self._clients if one.user == new.user]
        of_process = [one for one in of_user if one.pid == new.pid]
        for found, most in (of_process, MAX_OF_PROCESS), (of_user, self._most_clients // 2):
            if len(found) >= most:
                stranger = next((one for one in found if not one.is_known), None)
                if stranger is None:
                    return False
                self._drop(stranger)
        return len(self._clients) < self._most_clients

    def _read(self, client: _Client) -> None:
        descriptor = -1
        try:
            message, descriptor = protocol.receive(client.connection)
            self._answer(client, message, descriptor)
        except BlockingIOError:
            pass
        except Exception:  # any: a message of one process must not end the run of the others
            self._drop(client)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _answer(self, client: _Client, message: bytes, descriptor: int) -> None:
        if not client.is_known and hmac.compare_digest(message, self._key):
            client.is_known, client.deadline = True, time.monotonic() + protocol.PAUSE_S
            self._send(client, self._proof)
        elif client.is_known and message == protocol.LOG:
            self._send(client, b"%s %d" % (protocol.HAVE, client.pid), self._calls)
            self._drop(client)
        elif client.is_known and message[:3] in (protocol.GET, protocol.GET_REMOTE) and not client.wants:
            self._get(client, descriptor, int(message[3:]), is_remote=message[:3] == protocol.GET_REMOTE)
        elif client.may_make and message == protocol.MADE:
            self._made(client, descriptor)
        else:
            self._drop(client)

    def _send(self, client: _Client, message: bytes, descriptor: int = -1) -> bool:
        """Send a message; drop a process that does not read or has ended."""
        try:
            protocol.send(client.connection, message, descriptor)
        except OSError:
            self._drop(client)
            return False
        return True

    def _drop(self, client: _Client) -> None:
        """Close a connection; if its process was making a snapshot, ask the next one that waits."""
        if client not in self._clients:
            return
        del self._clients[client]
        self._selector.unregister(client.connection)
        client.connection.close()
        if client.wants in self._kept and self._kept[client.wants].maker is client:
            self._ask_next(client.wants)

    def _tick(self) -> None:
        """Close idle connections, replace makers without progress, and send `WAIT` to processes that wait."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _TICK_S
        for client in [one for one in self._clients if one.wants is None and now > one.deadline]:
            self._drop(client)
        for key, kept in list(self._kept.items()):
            if kept.maker is None:
                continue
            if (progress := _progress_of(kept.maker.pid)) != kept.progress:
                kept.progress, kept.since = progress, now
            waiting = self._waiting(key)
            if waiting and now - kept.since > STALLED_S:
                self._ask_next(key)
            for client in waiting:
                if not client.may_make:
                    self._send(client, protocol.WAIT)

    # --- snapshots ------------------------------------------------------------------------------------------------

    def _get(self, client: _Client, file: int, lead: int, *, is_remote: bool) -> None:
        # The process has just asked the file system: one that does not answer now must not block other processes.
        contents = FileIdentity(*_core.content_identity(file, ask=False))
        key = client.wants = _Key(client.user, contents, lead)
        if key not in self._kept:
            if not self._make_room(contents.nbytes):
                self._send(client, protocol.FULL)
                return
            self._kept[key] = _Kept(os.readlink(f"/proc/self/fd/{file}"), is_remote)  # noqa: PTH115 - text
        kept = self._kept[key] = self._kept.pop(key)  # now the most recently used
        if kept.memory >= 0:
            self._send(client, protocol.HAVE, kept.memory)
        elif kept.maker is None:
            self._ask_next(key)
        else:
            self._send(client, protocol.WAIT)

    def _waiting(self, key: _Key) -> list[_Client]:
        """List the processes that wait for a snapshot and were not asked to make it, oldest first."""
        return [one for one in self._clients if one.wants == key and not one.may_make]

    def _ask_next(self, key: _Key) -> None:
        """Let the process that has waited longest make a snapshot; if none waits, forget the snapshot."""
        kept = self._kept[key]
        kept.maker = None
        for client in self._waiting(key):
            client.may_make = True
            if self._send(client, protocol.MAKE):
                kept.maker, kept.progress, kept.since = client, "", time.monotonic()
                return
        del self._kept[key]

    def _made(self, client: _Client, memory: int) -> None:
        kept = self._kept.get(client.wants) if client.wants else None
        if kept is None or kept.memory >= 0 or not client.wants:  # another process was faster
            return self._drop(client)
        if not is_sealed(memory) or os.fstat(memory).st_size != client.wants.contents.nbytes + client.wants.lead:
            return self._drop(client)
        # A descriptor of its own, because `_is_used` tells whether the memory is open elsewhere.
        kept.memory = os.open(f"/proc/self/fd/{memory}", os.O_RDONLY | os.O_CLOEXEC)
        fcntl.fcntl(kept.memory, fcntl.F_SETSIG, signal.SIGURG)
        kept.maker = None
        self._drop(client)
        for other in self._waiting(client.wants):
            self._send(other, protocol.HAVE, kept.memory)
        return None

    def _make_room(self, nbytes: int) -> bool:
        """Release changed snapshots, and unused ones until a new one fits; return False if there are too many."""
        for key in [key for key, kept in self._kept.items() if kept.memory >= 0 and _has_changed(kept, key.contents)]:
            self._release(key)
        wanted, fits = {one.wants for one in self._clients}, fits_in_memory(nbytes)
        for key, kept in list(self._kept.items()):
            if len(self._kept) < MAX_KEPT and fits:
                break
            if kept.memory >= 0 and key not in wanted and not _is_used(kept.memory):
                self._release(key)
                fits = fits_in_memory(nbytes)
        return len(self._kept) < self._most_kept

    def _release(self, key: _Key) -> None:
        os.close(self._kept.pop(key).memory)


def _progress_of(pid: int) -> str:
    """Return the kernel's counters of a process, among them CPU time and page faults."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123 - without pathlib
            return file.read()
    except OSError:
        return ""


def _has_changed(kept: _Kept, identity: FileIdentity) -> bool:
    """Return whether a file on this machine has changed."""
    try:
        return not kept.is_remote and file_identity(kept.path) != identity
    except OSError:
        return True


def _is_used(memory: int) -> bool:
    """Return whether memory is open or mapped elsewhere, in which case the kernel refuses a write lease.

    A process that opens it during the lease waits for its end, and the kernel sends SIGURG, which is ignored.
    """
    try:
        fcntl.fcntl(memory, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:  # in use, or leases are disabled
        return True
    fcntl.fcntl(memory, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
