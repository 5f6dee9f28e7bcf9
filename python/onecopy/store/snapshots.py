"""Snapshots: the contents that a file has now, once per machine, in memory that no process can change.

A mapping of a file is no copy of it: a write to the file changes what is mapped, and a process that reads where the
file was truncated ends. What must behave as if the file had been read, such as ``numpy.load`` under ``onecopy run``,
maps a snapshot instead. `take` returns one of three:

* The file itself, if it cannot be written where it is: on a read-only mount, with the flags immutable or verity, or
  what `onecopy hold` has in memory.
* A sealed memory file of the process that `KEEPER` names (`onecopy.store.snapshot_server`), which all processes of the
  run map.
* An artefact of the default store, on disk: without such a process, or if the file has more than half of the memory
  that may be used. File systems with reflinks share its blocks with the file.

**Identity.** Processes get the same snapshot if the file has the same device, inode, size, time of the last write and
time of the last change. That identifies the contents, because a snapshot is taken so that each later write changes the
last of these times: not within the clock's granularity after a write, after a write that has begun is complete, and
after dirty pages were written back, which makes the kernel notice the next write through a mapping. File systems that
do not date writes in this way are refused (`NoSnapshot`).

**Names.** `copy` makes a snapshot for `onecopy hold NAME=FILE`, and `held` opens the one that a name leads to: the link
``holds/NAME`` in the default store in memory leads to a descriptor of the process that holds it. The kernel lets only
processes of that user follow it, and only as long as that process lives.

**Threads.** All functions may be called from any thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from onecopy import _core, store
from onecopy.base.run_constants import KEEPER, MAP_WRITABLE
from onecopy.errors import Error, FileChanged
from onecopy.files.identity import FileIdentity, identify_open
from onecopy.files.mapping import Closeable
from onecopy.store import protocol, views

if TYPE_CHECKING:
    import _socket
    from pathlib import Path

__all__ = ["NoSnapshot", "Snapshot", "copy", "fits_in_memory", "handle_of", "held", "is_sealed", "take"]

MEMORY_NAME = "onecopy:"
"""How the names of memory files with snapshots begin; the path of the file follows."""
HELD_NAME = "onecopy-hold:"
"""How the names of memory files of `onecopy hold` begin; the name follows."""

_GET_SEALS, _SEALS = 1034, 0x2 | 0x4 | 0x8  # F_GET_SEALS; F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE
_MARKS = str.maketrans("_-.", "aaa")
_GET_FLAGS = 0x80086601
_UNCHANGEABLE = 0x10 | 0x100000  # FS_IMMUTABLE_FL, FS_VERITY_FL


class NoSnapshot(Error):
    """There is no snapshot of a file; the message has the reason."""


class Snapshot(Closeable):
    """An open file whose bytes do not change; `close` closes the descriptor, and mappings of it stay."""

    __slots__ = ("descriptor", "identity", "lead", "path", "place")

    def __init__(self, descriptor: int, path: str, identity: FileIdentity, place: str, lead: int = 0) -> None:
        self.descriptor = descriptor
        """An open descriptor, for reading."""
        self.path = path
        """Path of the file that it is a snapshot of."""
        self.identity = identity
        """What identifies the contents."""
        self.place = place
        """Where the bytes are: "file", "memory" or "store"."""
        self.lead = lead
        """How many zero bytes come before them."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.identity.nbytes

    def close(self) -> None:
        """Close the descriptor; further calls do nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


class _Source(NamedTuple):
    """An open file of which a snapshot is taken."""

    descriptor: int
    path: str
    is_remote: bool
    lead: int = 0
    """How many zero bytes the snapshot begins with."""

    def now(self) -> FileIdentity:
        """Return the identity of its contents now."""
        return FileIdentity(*_core.content_identity(self.descriptor, ask=True))


def take(file: str | int, lead: int = 0) -> Snapshot:
    """Return a snapshot of a file, of a path or an open descriptor; the position of the descriptor stays.

    A snapshot that is a copy begins with `lead` zero bytes, which aligns what is not aligned in the file.

    The times of a file on a network or user-space file system are those of a server, which is asked for them: the file
    must not have been changed within the last minute, and both clocks must agree to a minute.

    Raises
    ------
    NoSnapshot
        The contents cannot be identified (tmpfs; a server whose clock differs), or the file was changed meanwhile, or
        there is neither memory nor disk for a snapshot.
    OSError
        The file cannot be opened.
    """
    name = file if isinstance(file, str) else f"/proc/self/fd/{file}"
    # A descriptor of its own: its position is not shared with the caller's.
    descriptor = _open(name)
    try:
        path = os.path.abspath(file) if isinstance(file, str) else os.readlink(name)  # noqa: PTH100, PTH115 - text
        source = _Source(descriptor, path, _core.is_remote(descriptor), lead)
        identity = source.now()
        if may_map_directly(descriptor):
            return Snapshot(descriptor, path, identity, "file")
        taken = _of_keeper(source, identity) or _of_store(source, identity)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return taken


def copy(path: str, name: str) -> tuple[_core.Mapping, FileIdentity]:
    """Copy a file into sealed memory of this process, for the name of a holder; return it with the file's identity.

    The pages of the file leave the page cache as they are copied, unless a process maps them.

    Raises
    ------
    NoSnapshot, OSError
        As raised by `take`.
    MemoryError
        There is too little memory.
    """
    descriptor = _open(path)
    try:
        source = _Source(descriptor, path, _core.is_remote(descriptor))
        identity = source.now()
        return _sealed(source, HELD_NAME + name, identity, drop_source=True), identity
    finally:
        os.close(descriptor)


def held(name: str) -> tuple[str, _core.FileHandle]:
    """Return the path of the memory that a process holds under a name (`onecopy hold NAME=FILE`), and the open memory.

    The path leads to the newest generation, as long as that process lives; the open memory stays what it is.

    Raises
    ------
    FileNotFoundError
        No process of this user holds the name, or it has ended.
    BlockingIOError
        The process that holds the name has not read the file yet.
    PermissionError
        The process has capabilities that this one lacks.
    """
    path, process = link_of(name), ""
    try:
        process = os.readlink(path).split("/")[2]  # noqa: PTH115 - text
        descriptor = _open(path)
    except (FileNotFoundError, NoSnapshot):
        gone = f"process {process}, which held it, has ended" if process else "no process holds it"
        advice = "`onecopy hold NAME=FILE` holds a file, for processes of the same user and PID namespace"
        raise FileNotFoundError(errno.ENOENT, f"{gone}; {advice}", f"hold:{name}") from None
    except PermissionError:
        reason = f"process {process}, which holds it, has another user or capabilities that this process lacks"
        raise PermissionError(errno.EACCES, reason, f"hold:{name}") from None
    handle = _core.FileHandle(descriptor)
    label = os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")  # noqa: PTH115
    # The number of a process that has ended may be that of another one.
    if label != f"/memfd:{HELD_NAME}{name}" or _core.owner_of(descriptor) != os.geteuid():
        raise FileNotFoundError(errno.ENOENT, f"process {process}, which held it, has ended", f"hold:{name}")
    if not is_sealed(descriptor):
        reason = f"process {process} has not read the file yet; its output has the reason if it cannot"
        raise BlockingIOError(errno.EAGAIN, reason, f"hold:{name}")
    return path, handle


def link_of(name: str) -> str:
    """Return the path of the link to what is held under a name; ValueError if that is no name."""
    if not (name.isascii() and name.translate(_MARKS).isalnum() and name[0] not in "-." and len(name) <= 100):
        raise ValueError(f"not a name: {name!r}; names are letters, digits and '_-.', and begin with none of '-.'")

    return os.path.join(_core.default_folder(memory=True)[0], views.HOLDS, name)  # noqa: PTH118


def is_sealed(memory: int) -> bool:
    """Return whether a descriptor is that of memory which no process can change."""
    try:
        return fcntl.fcntl(memory, _GET_SEALS) & _SEALS == _SEALS
    except OSError:
        return False


def _open(path: str) -> int:
    """Open a regular file; NoSnapshot for another one."""
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
    """Return an open snapshot of a file, also of a remote one, and where it is; or None, and why there is none."""
    try:
        taken = take(path)
    except NoSnapshot as error:
        return None, f"copied into private memory, because there is no snapshot: {error}"
    return _core.FileHandle(taken.descriptor), _PLACES[taken.place]


def may_map_directly(descriptor: int) -> bool:
    """Return whether no process can change an open file: sealed memory, or a file that the file system itself protects.

    A mount that is read-only proves nothing: the file system below it may be mounted writable elsewhere. Neither does
    anything that a stacked file system or a server says, because others change the files behind it.
    """
    if os.environ.get(MAP_WRITABLE) == "1" or is_sealed(descriptor):
        return True
    if _core.is_stacked(descriptor) or _core.is_remote(descriptor):
        return False
    flags = bytearray(8)
    with suppress(OSError):  # a file system without flags
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
    if struct.unpack_from("i", flags)[0] & _UNCHANGEABLE:
        return True
    if not os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        return False
    with suppress(OSError):
        return is_superblock_read_only(_text(f"fdinfo/{descriptor}"), _text("mountinfo"))
    return False


def is_superblock_read_only(fdinfo: str, mountinfo: str) -> bool:
    """Return whether the file system of a descriptor is read-only, and not only the mount that it was opened through.

    >>> is_superblock_read_only("mnt_id: 7", "7 1 8:1 / /models ro,noatime - ext4 /dev/sda1 rw,errors=continue")
    False
    """
    found = dict(line.split(maxsplit=1) for line in fdinfo.splitlines())
    mounts = {line.split(maxsplit=1)[0]: line.split()[-1] for line in mountinfo.splitlines()}
    return "ro" in mounts.get(found.get("mnt_id:", ""), "").split(",")


def _text(name: str) -> str:
    """Return what the kernel says of this process in a file of /proc."""
    with open(f"/proc/self/{name}", errors="replace") as file:  # noqa: PTH123 - a kernel's file
        return file.read()


# --- in the memory of a run -------------------------------------------------------------------------------------------


def _of_keeper(source: _Source, identity: FileIdentity) -> Snapshot | None:
    """Return the snapshot that the keeper has, or make it; None if there is no keeper, or too little memory."""
    if not (server := os.environ.get(KEEPER)):
        return None
    try:
        keeper = protocol.connected(server)
    except (OSError, ValueError) as error:
        raise NoSnapshot(f"onecopy run cannot be asked: {getattr(error, 'strerror', error)}") from None
    with closing(keeper):
        reply, snapshot = _reply(keeper, source)
        if snapshot >= 0:
            return Snapshot(snapshot, source.path, identity, "memory", source.lead)
        if reply != protocol.MAKE:
            raise NoSnapshot("onecopy run keeps as many snapshots as it may" if reply else "onecopy run has ended")
        return _made(keeper, source, identity) if fits_in_memory(identity.nbytes) else None


def _reply(keeper: _socket.socket, source: _Source) -> tuple[bytes, int]:
    """Return what the keeper says about a file, and the descriptor of its snapshot or -1."""
    reply, received = protocol.WAIT, -1
    try:
        request = protocol.GET_REMOTE if source.is_remote else protocol.GET
        protocol.send(keeper, b"%s %d" % (request, source.lead), source.descriptor)
        while reply == protocol.WAIT:
            reply, received = protocol.receive(keeper)
        # Opened again before the connection is closed: so the keeper sees that the snapshot is in use.
        return reply, _open(f"/proc/self/fd/{received}") if received >= 0 else -1
    except OSError as error:
        raise NoSnapshot(f"onecopy run has not answered: {error.strerror}") from None
    finally:
        if received >= 0:
            os.close(received)


def _made(keeper: _socket.socket, source: _Source, identity: FileIdentity) -> Snapshot | None:
    """Make a snapshot in memory and give it to the keeper; None if there is too little memory."""
    name = MEMORY_NAME + source.path
    try:
        memory = _sealed(source, name[-200:] if len(source.path) > 200 else name, identity)
    except MemoryError:
        return None
    try:
        with suppress(OSError):  # the keeper has ended, or another process was faster: this one has the memory alone
            protocol.send(keeper, protocol.MADE, memory.fileno())
        return Snapshot(os.dup(memory.fileno()), source.path, identity, "memory", source.lead)
    finally:
        memory.close()


def _sealed(source: _Source, name: str, identity: FileIdentity, *, drop_source: bool = False) -> _core.Mapping:
    """Copy a file into sealed memory, when it is at rest; MemoryError if there is too little."""
    _settle(source, identity)
    try:
        memory = _core.take_snapshot(source.descriptor, name, drop_source=drop_source, lead=source.lead)
    except MemoryError:
        raise
    except TimeoutError as error:  # nothing else will be answered either
        raise TimeoutError(error.errno, error.strerror, source.path) from None
    except OSError as error:
        raise NoSnapshot(f"a snapshot cannot be made: {error}") from None
    if source.now() != identity:
        memory.close()
        raise NoSnapshot("changed while a snapshot was made")
    return memory


def fits_in_memory(nbytes: int) -> bool:
    """Return whether a snapshot may be in memory: it has at most half of the memory that may still be used."""
    available = _core.available_memory()
    return available is None or nbytes <= available[0] // 2


def _settle(source: _Source, identity: FileIdentity) -> None:
    """Wait until each further write would change the identity of a file; NoSnapshot if that cannot be known."""
    _, why = identify_open(source.descriptor, expected=identity)
    if why:
        raise NoSnapshot(f"{why}: its contents cannot be identified")


# --- in the store -----------------------------------------------------------------------------------------------------


def _of_store(source: _Source, identity: FileIdentity) -> Snapshot:
    def build(target: Path) -> None:
        _settle(source, identity)
        _copy(source, target, identity.nbytes)
        if source.now() != identity:
            raise FileChanged(f"{source.path}: changed while a snapshot was made")

    try:
        key = (*identity, source.lead) if source.lead else identity
        found = store.Store(on_wait=None).get_or_build("snapshot " + " ".join(map(str, key)), build)
        if found.handle is None:
            raise NoSnapshot("the store has no file")
        return Snapshot(os.dup(found.handle.fileno()), source.path, identity, "store", source.lead)
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:
        raise NoSnapshot(f"a snapshot cannot be stored: {error}") from None


def _copy(source: _Source, target: Path, nbytes: int) -> None:
    """Copy as many bytes as a file had in the kernel, which shares blocks where it can; else through memory."""
    done, descriptor, lead = 0, source.descriptor, source.lead
    with target.open("xb", buffering=0) as file:
        if not source.is_remote:
            with suppress(OSError):  # another file system, an old kernel
                while done < nbytes and (
                    copied := os.copy_file_range(descriptor, file.fileno(), nbytes - done, done, lead + done)
                ):
                    done += copied
        if done < nbytes:
            _core.copy_contents(descriptor, file.fileno(), nbytes, source.path, lead=lead)
