"""The server of one `onecopy run`. It owns the snapshots, which the processes of the run fill once and map.

`onecopy.store.protocol` describes the messages. Only one process at a time makes a given snapshot; other processes that
request it wait. If the maker closes its connection, or makes no progress for `STALLED_S` seconds, the process that has
waited longest makes the snapshot instead. Only processes of the maker's user receive the snapshot.

**Other servers.** Before a process makes a snapshot, it asks the other servers of its user for the same snapshot
(`onecopy.store.snapshots`), and waits while a process makes it for one of them. If processes of two servers search for
the same snapshot at the same time, the one whose search began first does not wait for the other. The server checks the
seals, owner and size of a snapshot from another server and keeps it, so that it outlives that server.

**No process blocks another.** The server never waits for a process: it closes the connection if the process does not
read, does not quickly prove that it belongs to the run, or sends anything unexpected. The number of connections is
limited per process and per user. Connections of users whom the run does not serve are closed before anything is read.

**Release.** The server drops snapshots whose file has changed. It releases unused ones, the least recently used first,
when there are many, or when a new one would not fit into half of the available memory. A snapshot is in use while any
process has it open or mapped; a lease detects this without a search in ``/proc``. On request, other servers close the
snapshots that they received. The kernel frees the memory when no process uses it any more.
"""

from __future__ import annotations

import _thread
import fcntl
import hmac
import json
import os
import selectors
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import Literal, NamedTuple

from onecopy import _core
from onecopy.files.direct_mapping import is_sealed
from onecopy.files.identity import FileIdentity, file_identity
from onecopy.memory.cgroup import parse_membership
from onecopy.memory.proc import process_text
from onecopy.store import Store, protocol, servers
from onecopy.store.snapshots import fits_in_memory, is_snapshot

MAX_KEPT = 400
"""Number of snapshots above which unused ones are released."""
STALLED_S = 5.0
"""Seconds without progress after which another process makes a snapshot."""
MAX_OF_PROCESS = 64
"""Maximum number of connections from one process."""
_MAX_DESCRIPTORS = 1 << 14
"""Maximum number of file descriptors to use: half for snapshots, a quarter for connections."""
_TICK_S = 0.25
_IDLE = ("stranger", "known", "has")
"""States in which a connection is closed at its deadline."""
ANOTHER_RUN = "the group of another run"
"""The control group that the report names for a snapshot that another server made."""
_MAX_ACCEPTS = 32
"""Maximum number of connections to accept before the existing ones are read again."""


class _Key(NamedTuple):
    """The values that identify a snapshot."""

    user: int
    contents: FileIdentity
    lead: int

    @property
    def nbytes(self) -> int:
        """Size of the snapshot."""
        return self.contents.nbytes + self.lead


@dataclass(eq=False)
class _Client:
    """A connection of a process."""

    connection: socket.socket
    pid: int
    user: int
    deadline: float
    """Time at which the connection is closed unless the process waits for a snapshot or makes one."""
    is_of_run: bool
    """Whether it connected to the run's socket, and not to the socket in the store."""
    state: Literal["stranger", "known", "waits", "only asks", "makes", "has"]
    """A "stranger" has not sent the key yet. A client that "makes" a snapshot may search other servers first. One that
    "only asks" belongs to another run, and never makes a snapshot. One that "has" a snapshot has received it."""
    wants: _Key | None = None
    """The snapshot that it requested."""


@dataclass
class _Kept:
    """A snapshot that exists or is being made."""

    path: str
    is_remote: bool
    memory: int = -1
    """Descriptor of the sealed memory; -1 until it is made."""
    maker: _Client | None = None
    progress: str = ""
    """The kernel's counters for the maker, which have not changed since the time `since`."""
    since: float = 0.0
    begin: str = ""
    """While the maker searches other servers: the time and name that order the searches. Otherwise empty."""
    is_borrowed: bool = False
    """Whether another server made it."""


class SnapshotServer:
    """Serves requests from the processes of one run, in a single thread.

    `protocol.listen` returns `listening` and `server`; `calls` is the descriptor of the call log. If `joins` is true,
    the server exchanges snapshots with the other servers of this user.
    """

    def __init__(self, listening: int, server: str, calls: int, *, joins: bool = True) -> None:
        self._listening, self._calls = list[socket.socket](), calls
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
        self._selector = selectors.DefaultSelector()
        self._listen(listening)
        self._address: servers.Address | None = None
        """The socket in the store, created at the first request; None before that, or if it cannot be created."""
        self._may_join = joins

    def stop(self) -> None:
        """Make `serve` release all snapshots and return."""
        self._stopped = True
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as own:
            own.connect(self._listening[0].getsockname())

    def leave(self) -> None:
        """Hide this server from other servers. Any thread may call this method."""
        if self._address is not None:
            self._address.close()

    @property
    def kept(self) -> int:
        """Number of snapshots that exist or are being made."""
        return len(self._kept)

    def serve(self) -> None:
        """Answer processes until another thread calls `stop`."""
        try:
            while not self._stopped:
                try:
                    for ready, _ in self._selector.select(_TICK_S if self._clients else None):
                        if isinstance(ready.data, _Client):
                            self._read(ready.data)
                        else:
                            self._accept(ready.data)
                    self._tick()
                except Exception:  # of any kind: one process must not end the run of the others
                    time.sleep(0.01)
        finally:
            self.leave()
            self._selector.close()
            for connection in (*self._listening, *(client.connection for client in self._clients)):
                connection.close()
            for key in [key for key, kept in self._kept.items() if kept.memory >= 0]:
                self._release(key)

    # --- connections ----------------------------------------------------------------------------------------------

    def _listen(self, descriptor: int) -> None:
        self._listening.append(socket.socket(fileno=descriptor))
        self._listening[-1].setblocking(False)
        self._selector.register(descriptor, selectors.EVENT_READ, self._listening[-1])

    def _accept(self, listening: socket.socket) -> None:
        is_of_run = listening is self._listening[0]
        for _ in range(_MAX_ACCEPTS):
            try:
                connection = listening.accept()[0]
            except BlockingIOError:
                return
            except OSError:  # the system has too many open files: this thread must not spin
                time.sleep(0.01)
                return
            try:
                self._admit(connection, is_of_run=is_of_run)
            except OSError:
                connection.close()

    def _admit(self, connection: socket.socket, *, is_of_run: bool) -> None:
        """Accept a connection from a process that this server serves, or raise PermissionError."""
        pid, user = protocol.peer(connection)
        deadline = time.monotonic() + protocol.ANSWER_S
        client = _Client(connection, pid, user, deadline, is_of_run, "stranger" if is_of_run else "known")
        is_served = 0 in (user, os.geteuid()) or user == os.geteuid() if is_of_run else servers.is_same_user(connection)
        if not is_served or not self._has_room(client):
            raise PermissionError
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, client)
        self._clients[client] = None

    def _has_room(self, new: _Client) -> bool:
        """Return whether a new connection is within the limits. If not, try to close one that has not sent the key."""
        if not new.is_of_run:  # connections from the run are counted separately
            return sum(not one.is_of_run for one in self._clients) < self._most_clients // 4
        of_user = [one for one in self._clients if one.user == new.user and one.is_of_run]
        of_process = [one for one in of_user if one.pid == new.pid]
        for found, most in (of_process, MAX_OF_PROCESS), (of_user, self._most_clients // 2):
            if len(found) >= most:
                stranger = next((one for one in found if one.state == "stranger"), None)
                if stranger is None:
                    return False
                self._drop(stranger)
        return len(self._clients) < self._most_clients

    def _read(self, client: _Client) -> None:
        if client not in self._clients:
            return
        descriptor = -1
        try:
            message, descriptor = protocol.receive(client.connection)
            self._answer(client, message, descriptor)
        except BlockingIOError:
            pass
        except Exception:  # of any kind: one message must not end the run of the other processes
            self._drop(client)
        finally:
            _close(descriptor)

    def _answer(self, client: _Client, message: bytes, descriptor: int) -> None:
        kind, _, rest = message.partition(b" ")
        is_known = client.state == "known"
        if client.state == "stranger" and hmac.compare_digest(message, self._key):
            client.state, client.deadline = "known", time.monotonic() + protocol.PAUSE_S
            self._send(client, self._proof)
        elif is_known and message == protocol.LOG and client.is_of_run:
            self._send(client, b"%s %d" % (protocol.HAVE, client.pid), self._calls)
            self._drop(client)
        elif is_known and kind in (protocol.GET, protocol.GET_REMOTE):
            self._get(client, descriptor, int(rest), is_remote=kind == protocol.GET_REMOTE)
        elif is_known and kind == protocol.ASK:
            lead, begin = rest.decode().split(" ")
            self._asked(client, descriptor, int(lead), begin)
        elif is_known and message == protocol.SHORT and not client.is_of_run:
            for key in [key for key, kept in self._kept.items() if kept.is_borrowed]:
                self._release(key)
            self._drop(client)
        elif client.state == "makes" and client.wants:
            self._made(client, client.wants, message, descriptor)
        else:
            self._drop(client)

    def _send(self, client: _Client, message: bytes, descriptor: int = -1) -> bool:
        """Send a message, or close the connection of a process that does not read or has ended."""
        try:
            protocol.send(client.connection, message, descriptor)
        except OSError:
            self._drop(client)
            return False
        if message == protocol.HAVE:
            client.state, client.deadline = "has", time.monotonic() + protocol.PAUSE_S
        return True

    def _drop(self, client: _Client) -> None:
        """Close a connection. If its process was making a snapshot, ask the next waiting process to make it."""
        if client not in self._clients:
            return
        del self._clients[client]
        self._selector.unregister(client.connection)
        client.connection.close()
        if client.wants in self._kept and self._kept[client.wants].maker is client:
            self._ask_next(client.wants)

    def _tick(self) -> None:
        """Close idle connections, replace makers that make no progress, and send `WAIT` to waiting processes."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _TICK_S
        for client in [one for one in self._clients if now > one.deadline and one.state in _IDLE]:
            self._drop(client)
        for key, kept in list(self._kept.items()):
            if kept.memory >= 0:
                continue
            waiting = self._waiting(key)
            for client in waiting:
                self._send(client, protocol.WAIT)
            if kept.maker is None:
                continue
            if (progress := _progress_of(kept.maker.pid)) != kept.progress:
                kept.progress, kept.since = progress, now
            if waiting and now - kept.since > (STALLED_S if progress else protocol.most_seconds(key.contents.nbytes)):
                self._ask_next(key)

    # --- snapshots ------------------------------------------------------------------------------------------------

    def _get(self, client: _Client, file: int, lead: int, *, is_remote: bool) -> None:
        """Send a snapshot, make the process wait for it, or ask the process to make it."""
        key = client.wants = _key_of(client, file, lead)
        client.state = "waits"
        if key in self._kept:
            kept = self._kept[key] = self._kept.pop(key)  # now the most recently used
            self._send(client, protocol.HAVE if kept.memory >= 0 else protocol.WAIT, kept.memory)
        else:
            path = os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115 - text
            self._kept[key] = _Kept(path, is_remote, maker=client, begin=self._begin_search(key))
            self._let_make(key)

    def _asked(self, client: _Client, file: int, lead: int, begin: str) -> None:
        """Answer a process of another run: send the snapshot, make it wait, or answer that there is no snapshot."""
        key = client.wants = _key_of(client, file, lead)
        kept = self._kept.get(key)
        if kept is not None and (kept.memory >= 0 or kept.begin < begin):
            client.state = "only asks"
            self._send(client, protocol.HAVE if kept.memory >= 0 else protocol.WAIT, kept.memory)
        else:
            self._send(client, protocol.NONE)
            self._drop(client)

    def _waiting(self, key: _Key) -> list[_Client]:
        """List the processes that wait for a snapshot, oldest first."""
        return [one for one in self._clients if one.wants == key and one.state in ("waits", "only asks")]

    def _let_make(self, key: _Key) -> None:
        """Let a process look for a snapshot in other servers, or make it if there is room for it."""
        if self._kept[key].begin or self._make_room(key.contents.nbytes):
            self._ask_next(key)
        else:
            self._refuse(key, protocol.FULL)

    def _ask_next(self, key: _Key) -> None:
        """Let the process that has waited longest find or make a snapshot. If no process waits, forget the snapshot."""
        kept = self._kept[key]
        kept.maker = None
        for client in self._waiting(key):
            if client.state == "only asks":
                continue
            client.state = "makes"
            ask = b"%s %d %s" % (protocol.ASK, key.lead, kept.begin.encode())
            if self._send(client, ask if kept.begin else protocol.MAKE):
                kept.maker, kept.progress, kept.since = client, "", time.monotonic()
                return
        self._refuse(key, protocol.NONE)

    def _refuse(self, key: _Key, message: bytes) -> None:
        """Forget a snapshot that has not been made, and send a message to all processes that wait for it."""
        del self._kept[key]
        for client in self._waiting(key):
            self._send(client, message)
            self._drop(client)

    def _made(self, client: _Client, key: _Key, message: bytes, memory: int) -> None:
        """Keep a process's snapshot, and send it to waiting processes. Let a process that found none make one."""
        kept = self._kept.get(key)
        if kept is None:
            self._drop(client)
        elif message == protocol.WAIT:  # it waits for a reply of another server
            if kept.maker is client:
                kept.since = time.monotonic()
        elif message == protocol.NONE:
            client.state = "waits"
            if kept.memory >= 0:  # another process was faster
                self._send(client, protocol.HAVE, kept.memory)
            elif kept.maker is client:
                kept.begin = ""
                self._let_make(key)
        else:
            is_right = message in (protocol.HAVE, protocol.MADE) and is_snapshot(memory, key.nbytes, key.user)
            if is_right and kept.memory < 0:
                kept.is_borrowed = message == protocol.HAVE
                group = ANOTHER_RUN if kept.is_borrowed else charged_group(client.pid)
                self._log({"charged": group, "path": kept.path})
                # Open it again, so that `_is_used` can check whether the memory is open elsewhere.
                kept.memory = os.open(f"/proc/self/fd/{memory}", os.O_RDONLY | os.O_CLOEXEC)
                fcntl.fcntl(kept.memory, fcntl.F_SETSIG, signal.SIGURG)
                kept.maker = None
                for waiting in self._waiting(key):
                    self._send(waiting, protocol.HAVE, kept.memory)
            self._drop(client)

    def _log(self, fields: dict[str, str]) -> None:
        """Append a line for the report to the call log."""
        with suppress(OSError):  # a report must not end the run
            os.write(self._calls, json.dumps(fields).encode() + b"\n")

    def _make_room(self, nbytes: int) -> bool:
        """Drop snapshots of changed files, then unused ones until a new one fits. Return False if too many remain."""
        for key in [key for key, kept in self._kept.items() if kept.memory >= 0 and _has_changed(kept, key.contents)]:
            self._release(key)
        wanted, fits = {one.wants for one in self._clients}, fits_in_memory(nbytes)
        if not fits and self._address is not None:  # `_is_used` is true for snapshots that they keep open
            self._address.send_to_others(protocol.SHORT)
        for key, kept in list(self._kept.items()):
            if len(self._kept) <= MAX_KEPT and fits:
                break
            if kept.memory >= 0 and key not in wanted and (kept.is_borrowed or not _is_used(kept.memory)):
                self._release(key)
                fits = fits_in_memory(nbytes)
        return len(self._kept) <= self._most_kept

    def _release(self, key: _Key) -> None:
        os.close(self._kept.pop(key).memory)

    # --- other servers --------------------------------------------------------------------------------------------

    def _begin_search(self, key: _Key) -> str:
        """Return text by which concurrent searches for a snapshot are ordered, or "" if there is no other server."""
        if self._may_join:  # at the first request
            self._may_join = False
            try:
                self._address = servers.Address(Store(on_wait=None).folder)
                self._listen(self._address.listening)
            except Exception as error:  # no store, or a file system without sockets
                self._log({"alone": str(error)})
        if self._address is None or key.user != os.geteuid() or not self._address.has_others():
            return ""
        return f"{time.monotonic_ns():020}-{self._address.name}"


def _key_of(client: _Client, file: int, lead: int) -> _Key:
    """Return the key of a file that a process sent. Raise PermissionError if its descriptor does not permit reading."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    if flags & os.O_PATH or flags & os.O_ACCMODE == os.O_WRONLY:
        raise PermissionError
    # The process has just queried the file system. Do not query it again: if it hangs, it would block other processes.
    return _Key(client.user, FileIdentity(*_core.content_identity(file, ask=False)), lead)


def _close(descriptor: int) -> None:
    """Close a received descriptor. If it is a file's, use another thread, because the file system may block."""
    if descriptor >= 0 and is_sealed(descriptor):
        os.close(descriptor)
    elif descriptor >= 0:
        _thread.start_new_thread(os.close, (descriptor,))


def charged_group(pid: int) -> str:
    """Return the memory control group that is charged for a process's copies, or "" if it is unknown."""
    with suppress(OSError, ValueError):
        groups = parse_membership(process_text(pid, "cgroup"))
        return groups.get("memory", groups.get("", ""))
    return ""


def _progress_of(pid: int) -> str:
    """Return the kernel's counters of a process, among them CPU time and page faults."""
    with suppress(OSError):
        return process_text(pid, "stat")
    return ""


def _has_changed(kept: _Kept, identity: FileIdentity) -> bool:
    """Return whether a local file has changed or, if it is not visible here, whether its snapshot is unused."""
    try:
        return not kept.is_remote and file_identity(kept.path) != identity
    except OSError:  # it may be visible to other mount namespaces only
        return not _is_used(kept.memory)


def _is_used(memory: int) -> bool:
    """Return whether memory is open or mapped elsewhere, in which case the kernel refuses a write lease.

    A process that opens the memory during the lease waits for its end. This process ignores the resulting SIGURG.
    """
    try:
        fcntl.fcntl(memory, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:  # in use, or leases are disabled
        return True
    fcntl.fcntl(memory, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
