"""Build once per machine, map everywhere: one process builds a file, the others wait for it and map it.

    import onecopy as oc

    store = oc.Store()                                          # ~/.cache/onecopy, unless the environment sets a folder
    index = store.get_or_build(oc.file_key("genome.fa"), build_index, source="genome.fa")
    data = oc.open(index)                                       # or any other reader of the file

The store calls the build function, here `build_index`, with a path. The function writes a file there, which must appear
complete or not at all (as with `oc.save`, or `os.replace` on a temporary file). If several processes or threads on the
machine request the same key, one of them builds the file; the others wait, and the logger "onecopy" names the process
that builds. If that process is killed, a waiting process builds the file instead. If the build function raises an
exception, each waiting process tries its own build. Later runs find the file in less than a millisecond.

There is no daemon. The builder of a key holds a file lock, which the kernel releases when the process ends, so a killed
process does not block others. `Store.ls` lists files that killed builders left behind, and `Store.prune` removes them.
Files that are being built are never removed, and processes that have mapped a removed file can still use it.

**When not to use it.** Machines cannot share a store: its folder must be on a local disk or in memory, because locks on
network file systems are not reliable. Users share a store only if each of them lists other users whose artefacts may be
used (`trust`).

**Threads and forks.** All methods are thread-safe. A Store can be pickled and used in forked children; a child that was
forked during a build does not own that build.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union

from onecopy import _core
from onecopy.base.text import byte_count, path_text, size
from onecopy.errors import NotEnoughMemory
from onecopy.store.fork import call_in_child
from onecopy.store.protocol import HOLDS

if TYPE_CHECKING:
    import logging
    from builtins import bytes as bytes_type
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "Artefact",
    "OnWait",
    "Place",
    "PruneReport",
    "State",
    "Store",
    "Waiting",
    "Where",
    "announce",
    "choose_place",
    "default_folder",
    "report_progress",
]

State: TypeAlias = Literal["ready", "building", "partial", "stale claim", "leftover", "damaged", "foreign"]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file in a store. `Store.ls` also returns unfinished builds, and files that killed builders left behind."""

    key: str
    """Key of the artefact; empty if unknown."""
    path: Path
    """Absolute path of the file in the store's folder."""
    bytes: int
    """Size of the file in bytes."""
    created: float
    """Time of the build, in seconds since 1970."""
    last_used: float
    """Time of the last use, in seconds since 1970."""
    source: str | None
    """Path of the file or folder from which the artefact was built, or None if it was not given."""
    source_present: bool | None
    """Whether the source exists and is unchanged (in inode, size, time of the last write), or None without a source."""
    place: Place
    """Kind of file system of the store: "disk" or "memory"."""
    state: State = "ready"
    """State of the file. Only `Store.ls` returns states other than "ready"."""
    built: bool = False
    """Whether this call built the file."""
    waited: float = 0.0
    """Seconds that this call waited for other processes that were building."""
    seconds: float = 0.0
    """Duration of the whole call in seconds."""
    reason: str = ""
    """Explanation of the result or of the state, as a sentence."""
    handle: _core.FileHandle | None = field(default=None, repr=False, compare=False)
    """The open file, which stays readable even if the file at `path` is removed or replaced; None from `Store.ls`."""

    def __fspath__(self) -> str:
        """Return the path. `onecopy.open` and `onecopy.open_records` use `handle`, even after the path was removed."""
        return str(self.path)

    def read_bytes(self) -> bytes_type:
        """Return a copy of the file's contents."""
        if self.handle is None:
            return self.path.read_bytes()
        pieces: list[bytes_type] = []
        while piece := os.pread(self.handle.fileno(), self.bytes, sum(map(len, pieces))):
            pieces.append(piece)
        return b"".join(pieces)

    def without_handle(self) -> Artefact:
        """Return a copy without the open file, so that it keeps no file descriptor."""
        return replace(self, handle=None)

    def __reduce__(self) -> tuple[object, ...]:  # a file descriptor cannot be pickled
        return type(self), tuple(getattr(self, name) for name in self.__slots__ if name != "handle")


@dataclass(frozen=True, slots=True)
class Waiting:
    """The state of another process's build, as passed to `on_wait`."""

    key: str
    """Key of the artefact that is being built."""
    pid: int
    """Process id of the builder, or 0 if it is not known yet."""
    since: float
    """Time at which the build began, in seconds since 1970."""
    bytes: int
    """Number of bytes built so far, as reported by `report_progress`, or 0 if nothing was reported."""
    seconds: float
    """Seconds waited so far."""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The artefacts that `Store.prune` removed, or would remove with ``dry_run=True``."""

    removed: list[Artefact]
    """Removed artefacts, each with a ``reason``."""
    kept: list[Artefact]
    """Artefacts that matched but were kept, because they are being built or were just used, each with a ``reason``."""
    bytes: int
    """Total size of the removed files; the space of a mapped file is freed when it is unmapped."""


Place: TypeAlias = Literal["disk", "memory"]

_RESERVED_BYTES = 64 << 20  # of memory, for other processes


def choose_place(nbytes: int, wanted: Literal["auto", "disk", "memory"] = "auto") -> tuple[Place, str]:
    """Return the place for an artefact of `nbytes` bytes, and the reason as a sentence.

    "auto" chooses the disk, because the pages of files on disk are shared and cached too, and the kernel can reclaim
    them. It chooses memory only if the artefact does not fit on the disk. "memory": the artefact must fit into the free
    space of ``/dev/shm`` (64 MB in most containers) and into the available memory of the machine and of the control
    group. "disk": the artefact must fit on the disk.

    Raises
    ------
    OSError
        ENOSPC: the artefact does not fit; the message states the free bytes of each place.
    NotEnoughMemory
        The artefact does not fit into memory.

    Examples
    --------
    >>> import onecopy as oc
    >>> from onecopy import store
    >>> store.choose_place(1000)[0]
    'disk'
    """
    if wanted not in ("auto", "disk", "memory"):
        raise ValueError(f"place must be 'auto', 'disk' or 'memory', not {wanted!r}")
    if nbytes < 0:
        raise ValueError(f"nbytes must not be negative: {nbytes}")
    if wanted == "memory":
        if obstacle := _obstacle("memory", nbytes):
            reason = f"not enough memory for {nbytes} bytes: {obstacle}; a store on disk has more space"
            raise NotEnoughMemory(errno.ENOMEM, reason, _core.default_folder(memory=True)[0])
        return "memory", "in memory, as requested"
    obstacle = _obstacle("disk", nbytes)
    if not obstacle and wanted == "disk":
        return "disk", "on disk, as requested"
    if not obstacle:
        return "disk", "on disk, where the kernel can reclaim the pages when memory is short"
    if wanted == "auto":
        if not (other := _obstacle("memory", nbytes)):
            return "memory", f"in memory, because {obstacle}"
        obstacle += f"; {other}"
    reason = f"not enough space for {nbytes} bytes: {obstacle}"
    raise OSError(errno.ENOSPC, reason, _core.default_folder(memory=False)[0])


def _obstacle(place: Place, nbytes: int) -> str:
    """Return why an artefact does not fit into a place, or "" if it fits."""
    folder = _core.default_folder(memory=place == "memory")[0]
    free = free_on(Path(folder))
    if free is None:
        return f"this system cannot create {folder}"
    if free < nbytes:
        return f"the file system of {folder} has {free} bytes free"
    if place == "memory" and (left := _core.available_memory()) is not None and left[0] < nbytes + _RESERVED_BYTES:
        return f"{left[1]} has {left[0]} bytes available"
    return ""


def free_on(folder: Path) -> int | None:
    """Return the free bytes on a folder's file system (the folder need not exist), or None without ``/dev/shm``."""
    for at in (folder, *folder.parents):
        if at == Path("/dev"):
            return None
        try:
            facts = os.statvfs(at)
        except OSError:
            continue
        return facts.f_bavail * facts.f_frsize
    return None


Where: TypeAlias = Literal["here", "fork"]
OnWait: TypeAlias = Union["Callable[[Waiting], None]", Literal["announce"], None]

MAX_BYTES = "ONECOPY_MAX_BYTES"
"""Environment variable with the default value of `Store.max_bytes`."""
VIEWS = "views"
"""Name of the folder with links to artefacts, in a store's folder; `Store.ls` does not list it."""
DEFAULT_MAX_BYTES = "25%"

_logged: set[str] = set()
_FIRST_WARNING_S, _WARNING_INTERVAL_S = 2.0, 5.0


def announce() -> Callable[[Waiting], None]:
    """Return the `on_wait` function for "announce": the logger "onecopy" warns after 2 seconds, then every 5 seconds.

    If logging is not configured, Python writes the warnings to stderr.
    """
    due = _FIRST_WARNING_S

    def on_wait(waiting: Waiting) -> None:
        nonlocal due
        if waiting.seconds < due:
            return
        due = waiting.seconds + _WARNING_INTERVAL_S
        builder = f"process {waiting.pid}" if waiting.pid else "another process"
        so_far = f", {waiting.bytes / 1e6:.1f} MB so far" if waiting.bytes else ""
        _log().warning("onecopy: %s is building %r%s; waited %.0f s", builder, waiting.key, so_far, waiting.seconds)

    return on_wait


def _log() -> logging.Logger:
    import logging  # most processes do not need it

    return logging.getLogger("onecopy")


class Store:
    """A folder of files that are built once per machine and mapped by all its processes.

    Parameters
    ----------
    folder
        A folder that belongs to this user alone. It is created with mode 0700. It must not be a symbolic link, belong
        to another user or be accessible to others. None with ``place="disk"``: ``$ONECOPY_CACHE``, or
        ``$XDG_CACHE_HOME/onecopy``, or ``~/.cache/onecopy`` if it can be written, or ``/var/tmp/onecopy-<uid>`` if the
        home folder does not exist or is on a network file system. None with ``place="memory"``:
        ``/dev/shm/onecopy-<uid>``. If another user has taken one of the last two names, the next free one of
        ``onecopy-<uid>-1``, ... is used; `reason` and the logger report this. With `trust`: a folder that several users
        share.
    place
        Which of the two default folders is used if `folder` is None: "disk" or "memory".
    where
        The process that calls build functions. "here": this process. "fork": a forked child, so that all of the build's
        memory is freed afterwards, and a crash ends only the child. Use "fork" only if this process has no other
        threads, not even of libraries (OpenBLAS, torch): if a thread holds a lock at the fork, the child never releases
        it.
    durable
        False: builds do not wait until the file is on disk, and build functions need not flush it
        (``onecopy.save(durable=False)``, ``Scratch.save(durable=False)``). The artefact is then valid until the machine
        restarts. It becomes permanent when it is used at least half a minute after the build, because it is on the disk
        by then. On network file systems and without a boot identity, artefacts are always flushed.
    max_bytes
        Maximum size of the store: a number of bytes, text such as "50 GiB", "10%" of the file system, or "unlimited".
        After a build that exceeds it, the least recently used artefacts are removed, except those that a process has
        open or mapped through onecopy. None: ``$ONECOPY_MAX_BYTES``, or "25%".
    trust
        None: no other user has access to the folder. Otherwise, the names or ids of users whose artefacts are used as
        if this user had built them, although these users can change the files, and their pickles run code as this user.
        Each user has a folder in `folder`, named after the user's id (ID-1, ... if another user has taken that name),
        which only that user may write and its group may read (mode 0750, whatever the umask). This user builds in its
        own folder, `Store.folder`; `ls`, `prune` and `max_bytes` apply only to that folder. An empty list: others may
        use the artefacts of this user, but not vice versa. `folder` must exist, belong to root, this user or one of the
        users in `trust`, and be sticky (``chmod +t``) if others may write to it.
    timeout
        Maximum number of seconds to wait while another process builds; None: ``$ONECOPY_TIMEOUT``, or no limit.
    on_wait
        Called with a `Waiting`, at most every 100 ms, while another process builds. An exception that it raises ends
        the wait. "announce": the logger "onecopy" warns after 2 seconds, then every 5 seconds. None: nothing is called.

    Raises
    ------
    OSError
        The folder cannot be used; ``strerror`` states the reason.
    ValueError
        An option has an invalid value, or `trust` contains an unknown user.

    Examples
    --------
    >>> import onecopy as oc, tempfile
    >>> store = oc.Store(tempfile.mkdtemp())
    >>> report = store.get_or_build("squares of 2024", lambda path: path.write_bytes(b"0149"))
    >>> report.built, report.path.read_bytes()
    (True, b'0149')
    >>> store.get_or_build("squares of 2024", lambda path: path.write_bytes(b"0149")).built
    False
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        place: Place = "disk",
        where: Where = "here",
        durable: bool = True,
        max_bytes: int | str | None = None,
        trust: Iterable[str | int] | None = None,
        timeout: float | None = None,
        on_wait: OnWait = "announce",
    ) -> None:
        self._set(where, timeout, max_bytes, durable=durable, on_wait=on_wait)
        _check_place(place)
        self.trust = None if trust is None else _user_ids(trust)
        """Ids of the other users whose artefacts are used, or None if only this user has access to the folder."""
        if folder is None and trust is not None:
            raise ValueError("trust requires a folder that the users share: pass folder=...")
        if folder is None:
            chosen, reason = default_folder(place)
            path = os.fspath(chosen)
        else:
            path, reason = path_text(folder), "the caller chose it"
        if self.trust is not None:
            path = _own_folder_in(path, self.trust)
        self._core = _core.open_store(path, shared=self.trust is not None)
        self.folder = Path(self._core.folder)
        """Absolute path of the folder."""
        if self.trust is not None and self.folder.name != os.path.basename(path):  # noqa: PTH119 - text
            reason = f"{reason}; another user has taken the name {path}"
        self.reason = reason
        """Why this folder was chosen, as text."""
        self.place: Place = "memory" if _core.is_in_memory(path) else "disk"
        """Kind of the folder's file system: "disk" or "memory"."""
        self.is_default = folder is None
        """Whether the folder is one of the two default folders."""

    def _set(
        self, where: Where, timeout: float | None, max_bytes: int | str | None, *, durable: bool, on_wait: OnWait
    ) -> None:
        if where not in ("here", "fork"):
            raise ValueError(f"where must be 'here' or 'fork', not {where!r}")
        self.where: Where = where
        self.timeout = _limited_seconds("timeout", timeout)
        if max_bytes is not None:
            parse_limit("max_bytes", max_bytes)
        self._max_bytes = max_bytes
        self.durable = durable
        self.on_wait: OnWait = on_wait

    @classmethod
    def of(cls, store: Store | str | os.PathLike[str] | None) -> Store:
        """Return `store` if it is a Store, or else a Store for that folder (None: the default folder)."""
        return store if isinstance(store, Store) else cls(store)

    def with_options(self, **options: Any) -> Store:
        """Return a store with the same folder and other options: where, durable, max_bytes, timeout, on_wait."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)  # copy() would pickle, and open the folder again
        other._set(**(self.options() | options))
        return other

    def options(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `Store`: where, durable, max_bytes, timeout, on_wait."""
        names = ("where", "durable", "timeout", "on_wait")
        return {name: getattr(self, name) for name in names} | {"max_bytes": self._max_bytes}

    @property
    def max_bytes(self) -> int | None:
        """Size in bytes above which a build removes unused artefacts, or None for no limit."""
        if self._max_bytes is not None:
            share, limit = parse_limit("max_bytes", self._max_bytes)
        else:
            share, limit = parse_limit(MAX_BYTES, os.environ.get(MAX_BYTES) or DEFAULT_MAX_BYTES)
        if share is None:
            return limit
        disk = os.statvfs(self.folder)
        return int(disk.f_blocks * disk.f_frsize * share)

    def get_or_build(
        self, key: str, build: Callable[[Path], object], *, source: str | os.PathLike[str] | None = None
    ) -> Artefact:
        """Return a key's artefact. Build it unless a process on this machine has built it or is building it.

        Parameters
        ----------
        key
            Any text that identifies everything on which the contents depend, such as the source's `file_key` and a
            version of the build function.
        build
            Called with the path at which it must create the file, complete or not at all. It may run in a child process
            (see `where`), so its return value and other side effects are lost.
        source
            The file or folder from which the artefact is built. It is recorded for `ls` and `prune`, and a change
            during the build raises FileChanged.

        Raises
        ------
        TimeoutError
            Another process is still building after `timeout` seconds; the message names the process.
        FileChanged
            The source changed during the build.
        OSError
            The folder or the artefact's path cannot be used. EDEADLK: a build requests its own key.
        FormatError
            The description file of the artefact is damaged, or belongs to another key with the same digest.
        ChildProcessError
            The child process was killed, or exited, during the build.

        Exceptions raised by `build` propagate. The unfinished file is removed, and the next call builds again.
        """
        if self.trust and (found := self.find(key)) is not None:
            return found
        call = announce() if self.on_wait == "announce" else self.on_wait
        timeout = self.timeout
        if timeout is None:
            timeout = _limited_seconds("ONECOPY_TIMEOUT", os.environ.get("ONECOPY_TIMEOUT"))

        def report(pid: int, since_ns: int, nbytes: int, waited: float) -> None:
            if call is not None:
                call(Waiting(key, pid, since_ns / 1e9, nbytes, waited))

        def build_here_or_in_child(path: Path) -> None:
            _ = self.max_bytes  # an invalid limit raises before the build, not after it
            if self.where == "fork":
                call_in_child(lambda: build(path), str(path))
            else:
                build(path)

        made = self._core.get_or_build(
            key,
            build_here_or_in_child,
            source=path_text(source or ""),
            on_wait=None if call is None else report,
            timeout=timeout,
            durable=self.durable,
        )
        if made.built:
            self._limit_size()
        return self._artefact(made)

    def _limit_size(self) -> None:
        """Remove files of killed builders, and artefacts beyond the limit. The new artefact is open, so it stays."""
        try:
            limit = self.max_bytes
            freed = sum(artefact.bytes for artefact in self.prune(max_bytes=limit).removed)
        except OSError as error:  # the build itself succeeded
            _log().warning("onecopy: cannot limit the size of %s: %s", self.folder, error)
            return
        if freed and limit is not None:
            _log().info("onecopy: removed %s from %s, which is limited to %s", size(freed), self.folder, size(limit))

    def find(self, key: str) -> Artefact | None:
        """Return a key's artefact and record its use, or return None if it does not exist or was modified."""
        found = self._core.find(key)
        for user in self.trust or ():
            if found is None:
                with suppress(OSError, ValueError):  # a folder that is missing, damaged, or open to other users
                    found = _core.open_store(str(self.folder.parent / str(user)), shared=True, owner=user).find(key)
        return None if found is None else self._artefact(found)

    def path(self, key: str) -> Path:
        """Return the path of a key's artefact. The file need not exist."""
        return Path(self._core.path(key))

    def ls(self) -> list[Artefact]:
        """List all artefacts, most recently used first, including unfinished builds and files of killed builders."""
        return sorted(map(self._artefact, self._core.list()), key=lambda artefact: -artefact.last_used)

    def prune(
        self,
        *,
        max_age: float | None = None,
        max_bytes: int | str | None = None,
        missing_source: bool = False,
        keys: Iterable[str] | None = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> PruneReport:
        """Remove artefacts that match any of the conditions, and files that killed builders left behind.

        Files that are being built are never removed. Processes that have mapped a removed file can still use it.

        Parameters
        ----------
        max_age
            Remove artefacts that were not used for this number of seconds.
        max_bytes
            Remove the least recently used artefacts until the rest has at most this size, a number of bytes or text
            such as "20 GiB". Artefacts that a process has open or mapped through onecopy are kept.
        missing_source
            Remove artefacts whose source is missing or has changed.
        keys
            Remove the artefacts of these keys.
        everything
            Remove all artefacts.
        dry_run
            Report what would be removed, without removing it.
        """
        limit = None if max_bytes is None else byte_count("max_bytes", max_bytes)
        age = _limited_seconds("max_age", max_age)
        report = self._core.prune(
            max_age=age,
            max_bytes=limit,
            missing_source=missing_source,
            keys=list(keys or ()),
            everything=everything,
            dry_run=dry_run,
        )
        if not dry_run:
            from onecopy.store import servers  # programs that never prune do without it

            sweep_views(self.folder)
            servers.sweep(self.folder)
        return PruneReport(
            [self._artefact(artefact) for artefact in report.removed],
            [self._artefact(artefact) for artefact in report.kept],
            report.bytes,
        )

    def _artefact(self, found: _core.Artefact) -> Artefact:
        return Artefact(
            key=found.key,
            path=Path(found.path),
            bytes=found.bytes,
            created=found.created,
            last_used=found.last_used,
            source=found.source or None,
            source_present=found.source_present if found.source else None,
            place=self.place,
            state=found.state,  # type: ignore[arg-type]  # any str in the compiled module
            built=found.built,
            waited=found.waited,
            seconds=found.seconds,
            reason=found.reason,
            handle=found.handle,
        )

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[Any, ...]]:
        return reopened, (os.fspath(self.folder), self.trust, self.is_default, self.options())

    def __repr__(self) -> str:
        return f"<onecopy.Store {os.fspath(self.folder)!r}, {self.place}>"


def reopened(folder: str, trust: Iterable[int] | None, is_default: bool, options: dict[str, Any]) -> Store:
    """Recreate a store that another process pickled."""
    store = Store(folder if trust is None else Path(folder).parent, trust=trust, **options)
    store.is_default = is_default
    return store


def _own_folder_in(shared: str, trust: tuple[int, ...]) -> str:
    """Return the path of this user's folder in a shared folder, in which no other user may replace folders."""
    found = os.lstat(shared)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder (symbolic links are not followed)", shared)
    if (owner := _core.owner_at(shared)) not in (0, os.geteuid(), *trust):
        user = "a user who has no id in this user namespace" if owner is None else f"user {owner}, who is not trusted"
        raise PermissionError(errno.EACCES, f"it belongs to {user}", shared)
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        reason = f"other users can rename folders in it (mode {found.st_mode & 0o7777:o}); chmod +t prevents that"
        raise PermissionError(errno.EACCES, reason, shared)
    return os.path.join(shared, str(os.geteuid()))  # noqa: PTH118 - text


def _user_ids(users: Iterable[str | int]) -> tuple[int, ...]:
    """Return the ids of users in order, without this user's own id. Raise ValueError if a name is unknown."""
    import pwd

    if isinstance(users, str):
        raise TypeError(f"trust must be a list, not one user: pass [{users!r}]")
    found = dict[int, None]()
    for user in users:
        try:
            found[user if isinstance(user, int) else pwd.getpwnam(user).pw_uid] = None
        except KeyError:
            raise ValueError(f"trust names an unknown user: {user!r}") from None
    return tuple(user for user in found if user != os.geteuid())


def default_folder(place: Place = "disk") -> tuple[Path, str]:
    """Return the default folder of a `Store`, which need not exist, and why it was chosen."""
    _check_place(place)
    path, reason, obstacle = _core.default_folder(memory=place == "memory")
    if obstacle and obstacle not in _logged:
        _logged.add(obstacle)
        _log().warning("onecopy: the store is in %s, because of %s", path, obstacle)
    return Path(path), f"{reason}; not {obstacle}" if obstacle else reason


def _check_place(place: str) -> None:
    if place not in ("disk", "memory"):
        raise ValueError(f"place must be 'disk' or 'memory', not {place!r}")


def parse_limit(name: str, given: int | str) -> tuple[float | None, int | None]:
    """Return a limit as a share of the file system or in bytes. Both values are None for "unlimited".

    >>> parse_limit("max_bytes", "10%"), parse_limit("max_bytes", "1 KiB"), parse_limit("max_bytes", "unlimited")
    ((0.1, None), (None, 1024), (None, None))
    """
    if given == "unlimited":
        return None, None
    try:
        if not isinstance(given, str) or not given.strip().endswith("%"):
            return None, byte_count(name, given)
        percent = float(given.strip().removesuffix("%"))
        if not 0 < percent <= 100:
            raise ValueError("not a share of the file system")
    except ValueError:
        raise ValueError(
            f"{name} must be a size such as 50 GiB, a share of the file system such as 10%, or unlimited, not {given!r}"
        ) from None
    return percent / 100, None


def _limited_seconds(name: str, seconds: float | str | None) -> float | None:
    """Limit a duration so that it fits into 64 bits in ns. Raise ValueError for NaN and negative numbers."""
    if seconds is None or seconds == "":
        return None
    try:
        number = float(seconds)
    except ValueError:
        raise ValueError(f"{name} must be a number of seconds, not {seconds!r}") from None
    if not number >= 0:
        raise ValueError(f"{name} must not be negative: {seconds}")
    return min(number, 9e9)  # 285 years


def report_progress(done: int) -> None:
    """Report the number of bytes built so far to processes that wait. Has no effect outside of a build function."""
    _core.report_progress(done)


def sweep_views(store: Path) -> None:
    """As far as possible, remove links to artefacts and holders that no longer exist, and empty folders of links."""
    sweep_holds(store)
    views = store / VIEWS
    if not views.is_dir():
        return
    with suppress(OSError), locked_folder(views, fcntl.LOCK_EX):
        for folder, _, names in os.walk(views, topdown=False):
            for path in (Path(folder, name) for name in names):
                if path.is_symlink() and not path.exists():
                    with suppress(OSError):
                        path.unlink()
            if folder != str(views):
                with suppress(OSError):  # not empty
                    Path(folder).rmdir()


def sweep_holds(store: Path) -> None:
    """Remove the files and links of killed holders. A holder was killed if no process has its lock."""
    for lock in (store / HOLDS).glob(".[!-]*"):
        with suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), lock.lstat()):
                    for name in (lock.name[1:], f".-{lock.name[1:]}", lock.name):
                        lock.with_name(name).unlink(missing_ok=True)
            finally:
                os.close(descriptor)


@contextmanager
def locked_folder(views: Path, how: int) -> Iterator[None]:
    """Hold the lock on a store's folder of links, so that no links are created while others are removed."""
    views.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(views, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, how)
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
    finally:
        os.close(fd)
