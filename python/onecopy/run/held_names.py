"""`HeldName`: a name such as "hold:NAME" under which one process at a time provides generations of a file."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy import _core
from onecopy.base.run_constants import memory_file
from onecopy.files.mapping import Closeable
from onecopy.store import Store, protocol, snapshots
from onecopy.store.store import sweep_holds

if TYPE_CHECKING:
    from onecopy.files.mapping import Mapping


class HeldName(Closeable):
    """A name that this process owns: a lock, and a link to a descriptor that other processes can open.

    A new generation atomically replaces the descriptor's file. If logind removes the lock in /dev/shm, an abstract
    socket still excludes other holders; the kernel reports its owner, so other users cannot fake it.
    """

    def __init__(self, name: str) -> None:
        self.name, self.generation, self._process = name, 0, os.getpid()
        self._link = Path(snapshots.link_of(name))
        self.made_of: tuple[int, ...] = ()
        """Identity of the file that was copied."""
        self._lock = self._descriptor = -1
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._take_socket(f"\0onecopy-hold-{os.geteuid()}-{name}")
            self._descriptor = memory_file(snapshots.HELD_NAME + name)  # empty until there is a generation
            self.restore()
        except BaseException:
            self.close()
            raise

    @property
    def _target(self) -> str:
        return f"/proc/{self._process}/fd/{self._descriptor}"

    def _lock_path(self) -> Path:
        return self._link.with_name(f".{self.name}")

    def restore(self) -> None:
        """Restore the lock and the link if logind has removed them. Raise EBUSY if another process holds the name."""
        with suppress(OSError):  # connections of processes that asked who owns the name
            while True:
                self._socket.accept()[0].close()
        self._link = Path(snapshots.link_of(self.name))  # the folder may have changed
        if self._has_lock() and self._has_link():
            return
        store = Store(place="memory").folder
        self._link.parent.mkdir(mode=0o700, exist_ok=True)
        sweep_holds(store)
        deadline = time.monotonic() + 0.2
        while not self._has_lock():
            try:
                self._open_lock()
            except BlockingIOError:  # perhaps held by a process that sweeps
                if time.monotonic() > deadline:
                    raise self._refusal() from None
                time.sleep(0.01)
        new = self._link.with_name(f".-{self.name}")  # cannot be the lock of a name, which never begins with "-"
        new.unlink(missing_ok=True)
        new.symlink_to(self._target)
        new.replace(self._link)

    def _take_socket(self, address: str) -> None:
        try:
            self._socket.bind(address)
            self._socket.listen()
            self._socket.setblocking(False)
        except OSError:
            if user_at(address) == os.geteuid():
                raise self._refusal() from None

    def _refusal(self) -> OSError:
        holder = "another process"
        with suppress(OSError, IndexError):
            holder = f"process {os.readlink(self._link).split('/')[2]}"  # noqa: PTH115 - text
        return OSError(errno.EBUSY, f"{holder} holds this name", f"hold:{self.name}")

    def _open_lock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1
        descriptor = os.open(self._lock_path(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        self._lock = descriptor

    def _has_lock(self) -> bool:
        """Return whether this process has locked the file that is now at the path of the lock."""
        with suppress(OSError):
            return os.path.samestat(os.fstat(self._lock), self._lock_path().lstat())
        return False

    def _has_link(self) -> bool:
        with suppress(OSError):
            return os.readlink(self._link) == self._target  # noqa: PTH115 - text
        return False

    def lead_to(self, generation: Mapping, made_of: tuple[int, ...]) -> None:
        """Make the name refer to a new generation, a copy of the file with the identity `made_of`."""
        os.dup2(generation.fileno(), self._descriptor, inheritable=False)
        self.generation, self.made_of = self.generation + 1, made_of

    def close(self) -> None:
        """Release the name. Processes that have opened a generation keep it."""
        if self._descriptor >= 0 and os.getpid() == self._process:
            for path, is_own in ((self._link, self._has_link()), (self._lock_path(), self._has_lock())):
                if is_own:  # unlink before the lock is released
                    with suppress(OSError):
                        path.unlink()
        self._socket.close()
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1


def user_at(address: str) -> int | None:
    """Return the user whose process listens at an address, or None if no process does or the user is unknown here."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as other:
        other.setblocking(False)
        other.connect(address)
        return _core.known_user(protocol.peer(other)[1])
    return None
