"""Snapshots: the current contents of a file, kept once per machine in memory that no process can change.

A mapping is not a copy: a write to the file changes the mapped data, and reading beyond the end of a truncated file
causes SIGBUS. Calls that must behave as if they had read the file, such as ``numpy.load`` under ``onecopy run``, map a
snapshot instead. `take` returns one of the following:

* The file itself, if nobody can change it, because its file system is read-only, it has the immutable or verity flag,
  or `onecopy hold` keeps it in sealed memory.
* A sealed memory file from the run's server (`onecopy.run.snapshot_server`), which all processes in the run map.
* An artefact in the default store on disk, if there is no such server, or if the file is larger than half of the
  available memory. On file systems with reflinks, the artefact shares blocks with the file.

**Identity.** Processes get the same snapshot if the file has the same device, inode, size, time of the last write and
time of the last change. These identify the contents, because a snapshot is taken only when any later write will change
the last of these times: the clock has advanced, no write is in progress, and dirty pages have been written back, so
that the kernel notices the next write through a mapping. Files on file systems that do not record the times of writes
in this way are refused (`NoSnapshot`).

**Names.** `copy` makes a snapshot for `onecopy hold NAME=FILE`, and `held` opens the snapshot of a name: the link
``holds/NAME`` in the default store in memory leads to a descriptor of the holding process. Only processes of that
user can follow the link, and only while the holding process is alive.

**Threads.** All functions may be called from any thread.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from onecopy import _core, store
from onecopy.base.run_constants import KEEPER, MEMORY_NAME, RUN
from onecopy.errors import Error, FileChanged
from onecopy.files.direct_mapping import is_sealed, may_map_directly
from onecopy.files.identity import FileIdentity, identify_open
from onecopy.files.mapping import Closeable
from onecopy.store import protocol, servers

if TYPE_CHECKING:
    import _socket
    from pathlib import Path

__all__ = ["NoSnapshot", "Snapshot", "copy", "fits_in_memory", "handle_of", "held", "take"]

HELD_NAME = "onecopy-hold:"
"""Prefix of the names of memory files of `onecopy hold`; the name follows."""

_MARKS = str.maketrans("_-.", "aaa")


class NoSnapshot(Error):
    """No snapshot of a file can be taken; the message states the reason."""


@dataclass(slots=True, eq=False)
class Snapshot(Closeable):
    """An open file whose bytes do not change. `close` closes the descriptor; existing mappings stay valid."""

    descriptor: int
    """An open descriptor, for reading."""
    path: str
    """Path of the original file."""
    identity: FileIdentity
    """Identity of the contents."""
    place: str
    """The place of the bytes: "file", "memory" or "store"."""
    lead: int = 0
    """Number of zero bytes before the contents."""

    @property
    def nbytes(self) -> int:
        """Size of the contents in bytes, without the zeros before them."""
        return self.identity.nbytes

    def close(self) -> None:
        """Close the descriptor. Further calls do nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


class _Source(NamedTuple):
    """An open file, and the identity of the contents of which a snapshot is taken."""

    descriptor: int
    path: str
    is_remote: bool
    identity: FileIdentity
    lead: int = 0

    @classmethod
    def of(cls, descriptor: int, path: str, lead: int = 0) -> _Source:
        return cls(descriptor, path, _core.is_remote(descriptor), _identity_of(descriptor), lead)

    def snapshot(self, descriptor: int, place: str) -> Snapshot:
        return Snapshot(descriptor, self.path, self.identity, place, self.lead)

    def has_changed(self) -> bool:
        return _identity_of(self.descriptor) != self.identity


def _identity_of(descriptor: int) -> FileIdentity:
    return FileIdentity(*_core.content_identity(descriptor, ask=True))


def take(file: str | int, lead: int = 0) -> Snapshot:
    """Return a snapshot of a file, given its path or an open descriptor. The descriptor's position does not change.

    If the snapshot is a copy, it begins with `lead` zero bytes, to align data that is not aligned in the file.

    The times of a file on a network or user-space file system come from its server: the file must not have changed
    within the last minute, and both clocks must agree to within a minute.

    Raise NoSnapshot if the contents cannot be identified (tmpfs, or a server whose clock differs), the file changed in
    the meantime, or neither memory nor disk has space for it. Raise OSError if the file cannot be opened.
    """
    name = file if isinstance(file, str) else f"/proc/self/fd/{file}"
    # Open the file again, so that the position is not shared with the caller's descriptor.
    descriptor = _open(name)
    try:
        path = os.path.abspath(file) if isinstance(file, str) else os.readlink(name)  # noqa: PTH100, PTH115 - text
        source = _Source.of(descriptor, path, lead)
        if may_map_directly(descriptor):
            return Snapshot(descriptor, path, source.identity, "file")
        taken = _take_from_server(source) or _take_from_store(source)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return taken


def copy(path: str, name: str) -> tuple[_core.Mapping, FileIdentity]:
    """Copy a file into sealed memory of this process, to hold it under a name. Also return the file's identity.

    The copied pages of the file are dropped from the page cache, unless a process maps them. Raise the same
    errors as `take`, and MemoryError if there is too little memory.
    """
    descriptor = _open(path)
    try:
        source = _Source.of(descriptor, path)
        return _copy_to_memory(source, HELD_NAME + name, drop_source=True), source.identity
    finally:
        os.close(descriptor)


def held(name: str) -> tuple[str, _core.FileHandle]:
    """Return the path of the memory that `onecopy hold NAME=FILE` holds under a name, and the open memory.

    The path leads to the newest generation while that process is alive; the open memory never changes.

    Raise FileNotFoundError if no process of this user holds the name, BlockingIOError if the process has not read the
    file yet, and PermissionError if the process has capabilities that this process lacks.
    """
    path, process = link_of(name), ""
    try:
        process = os.readlink(path).split("/")[2]  # noqa: PTH115 - text
        descriptor = _open(path)
    except (FileNotFoundError, NoSnapshot):
        gone = f"process {process}, which held this name, has ended" if process else "no process holds this name"
        advice = "`onecopy hold NAME=FILE` holds a file for processes of the same user and PID namespace"
        raise FileNotFoundError(errno.ENOENT, f"{gone}; {advice}", f"hold:{name}") from None
    except PermissionError:
        reason = f"process {process}, which holds this name, belongs to another user or has more capabilities"
        raise PermissionError(errno.EACCES, reason, f"hold:{name}") from None
    handle = _core.FileHandle(descriptor)
    label = os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")  # noqa: PTH115
    # The id of a process that has ended may belong to another process now.
    if label != f"/memfd:{HELD_NAME}{name}" or _core.owner_of(descriptor) != os.geteuid():
        raise FileNotFoundError(errno.ENOENT, f"process {process}, which held this name, has ended", f"hold:{name}")
    if not is_sealed(descriptor):
        reason = f"process {process} has not read the file yet; look for errors in its output"
        raise BlockingIOError(errno.EAGAIN, reason, f"hold:{name}")
    return path, handle


def link_of(name: str) -> str:
    """Return the path of the link for a name given to `onecopy hold`. Raise ValueError if the name is invalid."""
    if not (name.isascii() and name.translate(_MARKS).isalnum() and name[0] not in "-." and len(name) <= 100):
        raise ValueError(f"invalid name: {name!r}; use letters, digits and '_-.', and do not start with '-' or '.'")
    return os.path.join(_core.default_folder(memory=True)[0], protocol.HOLDS, name)  # noqa: PTH118


def _open(path: str) -> int:
    """Open a regular file. Raise NoSnapshot for other kinds of files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise NoSnapshot("not a regular file")


_PLACES = {
    "file": "the file itself, which cannot be written",
    "memory": "a snapshot in the memory of onecopy run",
    "store": "a snapshot in the store",
}


def handle_of(path: str) -> tuple[_core.FileHandle | None, str]:
    """Return an open snapshot of a file and a description of its place, or None and the reason for its absence."""
    try:
        taken = take(path)
    except NoSnapshot as error:
        return None, f"copied into private memory, because no snapshot can be taken: {error}"
    return _core.FileHandle(taken.descriptor), _PLACES[taken.place]


# --- in the memory of a run -------------------------------------------------------------------------------------------


def _take_from_server(source: _Source) -> Snapshot | None:
    """Get a snapshot from the run's server, or make it. Return None without a server, or with too little memory.

    Outside of a run, use any server of this user that answers.
    """
    server = os.environ.get(KEEPER)
    try:
        found = (server, protocol.connected(server)) if server else None if RUN in os.environ else servers.connected()
    except (OSError, ValueError) as error:
        raise NoSnapshot(f"cannot connect to onecopy run: {getattr(error, 'strerror', error)}") from None
    if found is None:
        return None
    name, connection = found
    nbytes = source.identity.nbytes
    with closing(connection):
        try:
            memory = _request(connection, source, math.inf if server else protocol.most_seconds(nbytes))
        except NoSnapshot:
            if server:
                raise
            protocol.mark_silent(name)
            return None
        if memory is not None:
            # Open it again before the connection closes, so that the server sees the snapshot in use.
            return source.snapshot(_open(f"/proc/self/fd/{memory.fileno()}"), "memory")
        return _make_for_server(connection, source) if fits_in_memory(nbytes) else None


def _request(connection: _socket.socket, source: _Source, most_seconds: float) -> _core.FileHandle | None:
    """Return a server's snapshot, or None if this process has to make it. Raise NoSnapshot on failure."""
    reply, memory, end = protocol.WAIT, None, time.monotonic() + most_seconds
    try:
        request = protocol.GET_REMOTE if source.is_remote else protocol.GET
        protocol.send(connection, b"%s %d" % (request, source.lead), source.descriptor)
        while reply == protocol.WAIT and memory is None and time.monotonic() < end:
            reply, memory = _received(connection, source)
            protocol.limit(connection, protocol.PAUSE_S)
            if reply.startswith(protocol.ASK):
                memory = _search(connection, reply, source)
                found = (protocol.NONE, -1) if memory is None else (protocol.HAVE, memory.fileno())
                protocol.send(connection, *found)
                reply = protocol.WAIT
        if memory is not None and source.has_changed():
            raise NoSnapshot("the file changed while a snapshot was requested")
    except OSError as error:
        raise NoSnapshot(f"onecopy run did not answer: {error.strerror}") from None
    if memory is None and reply != protocol.MAKE:
        raise NoSnapshot("onecopy run keeps too many snapshots" if reply else "onecopy run has ended")
    return memory


def _search(server: _socket.socket, request: bytes, source: _Source) -> _core.FileHandle | None:
    """Ask the other servers of this user for a snapshot, as `server` requested. Return None if none has it."""
    now = time.monotonic()
    end, memory = now + protocol.most_seconds(source.identity.nbytes), None
    asked = list(servers.connections(own=request.rpartition(b"-")[2].decode()))
    for _, connection in asked:
        with suppress(OSError):
            protocol.send(connection, request, source.descriptor)
    for name, connection in asked:
        reply = protocol.WAIT
        with closing(connection), suppress(NoSnapshot, OSError):
            # All servers have the same deadline for their first answers.
            protocol.limit(connection, max(now + protocol.OTHER_ANSWER_S - time.monotonic(), 0.001))
            while reply == protocol.WAIT and memory is None and time.monotonic() < end:
                try:
                    reply, memory = _received(connection, source)
                except BlockingIOError:
                    protocol.mark_silent(name)
                    break
                if reply == protocol.WAIT:  # a process makes it
                    protocol.limit(connection, protocol.OTHER_PAUSE_S)
                    protocol.send(server, protocol.WAIT)
    return memory


def _received(connection: _socket.socket, source: _Source) -> tuple[bytes, _core.FileHandle | None]:
    """Return a server's message and any snapshot sent with it. Raise NoSnapshot if it is not the requested one."""
    reply, received = protocol.receive(connection)
    if received < 0:
        return reply, None
    memory = _core.FileHandle(received)
    nbytes = source.identity.nbytes + source.lead
    if reply != protocol.HAVE or not is_snapshot(received, nbytes, os.geteuid()):
        raise NoSnapshot("the server sent something other than the requested snapshot")
    return reply, memory


def _make_for_server(connection: _socket.socket, source: _Source) -> Snapshot | None:
    """Make a snapshot in memory and send it to the server. Return None if there is too little memory."""
    name = MEMORY_NAME + source.path
    try:
        memory = _copy_to_memory(source, name[-200:] if len(source.path) > 200 else name)
    except MemoryError:
        return None
    try:
        with suppress(OSError):  # the server has ended, or another process was faster: this copy is private then
            protocol.send(connection, protocol.MADE, memory.fileno())
        return source.snapshot(os.dup(memory.fileno()), "memory")
    finally:
        memory.close()


def _copy_to_memory(source: _Source, name: str, *, drop_source: bool = False) -> _core.Mapping:
    """Copy a file into sealed memory once no write is in progress. Raise MemoryError if there is too little memory."""
    _wait_until_identified(source)
    try:
        memory = _core.take_snapshot(source.descriptor, name, drop_source=drop_source, lead=source.lead)
    except MemoryError:
        raise
    except TimeoutError as error:  # the file system no longer answers
        raise TimeoutError(error.errno, error.strerror, source.path) from None
    except OSError as error:
        raise NoSnapshot(f"cannot make a snapshot in memory: {error}") from None
    if source.has_changed():
        memory.close()
        raise NoSnapshot("the file changed while the snapshot was taken")
    return memory


def is_snapshot(memory: int, nbytes: int, user: int) -> bool:
    """Return whether a descriptor refers to sealed memory of a user (or of root) with this size."""
    return (
        memory >= 0 and is_sealed(memory) and os.fstat(memory).st_size == nbytes and _core.owner_of(memory) in (user, 0)
    )


def fits_in_memory(nbytes: int) -> bool:
    """Return whether a snapshot needs at most half of the available memory, and so may be kept in memory."""
    available = _core.available_memory()
    return available is None or nbytes <= available[0] // 2


def _wait_until_identified(source: _Source) -> None:
    """Wait until every later write would change a file's identity. Raise NoSnapshot if some writes would not."""
    _, why = identify_open(source.descriptor, expected=source.identity)
    if why:
        raise NoSnapshot(f"{why}, so its contents cannot be identified")


# --- in the store -----------------------------------------------------------------------------------------------------


def _take_from_store(source: _Source) -> Snapshot:
    def build(target: Path) -> None:
        _wait_until_identified(source)
        _copy_to_file(source, target)
        if source.has_changed():
            raise FileChanged(f"{source.path}: the file changed while the snapshot was taken")

    try:
        key = (*source.identity, source.lead) if source.lead else source.identity
        found = store.Store(on_wait=None).get_or_build("snapshot " + " ".join(map(str, key)), build)
        if found.handle is None:
            raise NoSnapshot("the store returned no open file")
        return source.snapshot(os.dup(found.handle.fileno()), "store")
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:
        raise NoSnapshot(f"cannot make a snapshot in the store: {error}") from None


def _copy_to_file(source: _Source, target: Path) -> None:
    """Copy a file in the kernel, which shares blocks if possible; otherwise copy it through memory."""
    done, descriptor, lead, nbytes = 0, source.descriptor, source.lead, source.identity.nbytes
    with target.open("xb", buffering=0) as file:
        if not source.is_remote:
            with suppress(OSError):  # another file system, an old kernel
                while done < nbytes and (
                    copied := os.copy_file_range(descriptor, file.fileno(), nbytes - done, done, lead + done)
                ):
                    done += copied
        if done < nbytes:
            _core.copy_contents(descriptor, file.fileno(), nbytes, source.path, lead=lead)
