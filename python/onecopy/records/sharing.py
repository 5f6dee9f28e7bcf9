"""One line for data that every process needs: built once per host, mapped by all.

    anns = oc.share(lambda: load("instances.json"), key=oc.file_key("instances.json"))

The first process of the machine that comes here builds; all others, however they were started (fork, spawn, forkserver,
torchrun, another terminal), map what it built, and so does the next run, in milliseconds. No process group is needed,
no server, and nothing has to be cleaned up (`onecopy store prune` does if disks run full).

Without a key the data has no name: it belongs to this process and those it hands it to, as an argument or in a Dataset,
and is gone with the last of them, whoever is killed.

What builds is imported where something is built, in the forked child mostly: each rank of a job would keep it for
nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from onecopy import _core, store
from onecopy.records.opening import of_path
from onecopy.store.fork import call_in_child, can_fork, give_back_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onecopy.records.dicts import Dict
    from onecopy.records.rows import List
    from onecopy.store import Artefact, Where

__all__ = ["share"]

K = TypeVar("K")
T = TypeVar("T")
Codec = Literal["records", "pickle"]
WherePlaced = Literal["auto", "disk", "memory"]


_OF_JOB = ", pickled by job "
_LONG_UNUSED = 7 * 24 * 3600.0  # seconds


class _NoRoom(Exception):
    """The memory store has no room for what was built; the message says why."""


@overload
def share(  # type: ignore[overload-overlap]  # a mapping can be iterated too, and is a dict nevertheless
    data: Mapping[K, T] | Callable[[], Mapping[K, T]],
    key: str | None = None,
    *,
    place: WherePlaced = "auto",
    codec: Codec = "records",
    where: Where = "auto",
    warm: bool = False,
    pin: bool = False,
    source: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> Dict[K, T]: ...


@overload
def share(
    data: Iterable[T] | Callable[[], Iterable[T]],
    key: str | None = None,
    *,
    place: WherePlaced = "auto",
    codec: Codec = "records",
    where: Where = "auto",
    warm: bool = False,
    pin: bool = False,
    source: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> List[T]: ...


def share(
    data: Iterable[T] | Mapping[Any, T] | Callable[[], Any],
    key: str | None = None,
    *,
    place: WherePlaced = "auto",
    codec: Codec = "records",
    where: Where = "auto",
    warm: bool = False,
    pin: bool = False,
    source: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> List[T] | Dict[Any, T]:
    """Hold a list or dict of Python values once for all processes of the machine.

    Parameters
    ----------
    data
        A list, any iterable of rows, or a dict; or a function without arguments that returns one, which is called only
        where the data has to be built. Rows are strings, bytes, numbers, None, tuples, lists, dicts, numpy arrays and
        what `onecopy.records.types` tells, nested in any way.
    key
        Whoever asks for the same key gets the same data, in this run and the next. It says what the data is made from:
        see `onecopy.file_key`. The function that makes it belongs to its name too: its code, its defaults and the
        values that it closes over, but not the functions that it calls. Two functions under one key are two artefacts.
        None: no name, for this process and those it hands the result to.
    place
        "disk": a file in the cache folder of this host; its pages are in memory, and the kernel can take them back.
        "memory": memory that is never written to a disk, and counts as memory of this control group; kept to where
        there is room. "auto": disk with a key; without one memory while it is plentiful (a quarter of what is left),
        else a nameless file on disk.
    codec
        "pickle": values of other types are pickled one by one, for processes of this job alone: the key is made this
        job's own.
    where
        A function may be called in a forked child, so that nothing it allocated stays in this process: "auto" does when
        this process has one thread, those of libraries included, and has imported no framework with devices (torch,
        tensorflow, jax), "child" always, "here" never.
    warm, pin
        Bring everything into memory now; lock it there (see `onecopy.pin`).
    source
        The file the data is made from, for `onecopy store ls` and `prune`; checked for changes after the build.
    folder
        Another folder for keys: see `onecopy.Store`.
    timeout
        Seconds to wait while another process builds; None: for as long as one lives.
    progress
        Gets the number of rows so far, now and then, where this process builds; may raise. In a child it runs there.

    Raises
    ------
    NotShareable
        A value of a type that cannot be stored exactly, with its path: ``[12].bbox[3]: ...``.
    TypeError
        With a key: the function closes over a value that cannot be told from another one; the message names it.
    ValueError
        Other rows than these have that key, by their number.
    OSError
        ENOSPC: there is no room; others where the folder will not do.
    TimeoutError, FileChanged, ChildProcessError
        See `onecopy.Store.get_or_build`.

    Examples
    --------
    >>> import onecopy as oc
    >>> names = oc.share(["Ada", "Grace", "Edsger"])
    >>> names[1], names[-1], len(names[::2])
    ('Grace', 'Edsger', 2)
    >>> oc.share({"a": (1, 2.5)})["a"]
    (1, 2.5)
    """
    if place not in ("auto", "disk", "memory"):
        raise ValueError(f"place must be 'auto', 'disk' or 'memory', not {place!r}")
    if codec not in ("records", "pickle"):
        raise ValueError(f"codec must be 'records' or 'pickle', not {codec!r}")
    job = _Job(data, codec, progress)
    shared: List[T] | Dict[Any, T]
    if key is None:
        shared, report = _nameless(job, place, where), None
    else:
        shared, report = _named(job, _whole_key(job, key), place, where, source, folder, timeout)
        given = len(data) if isinstance(data, Sized) and not report.built else len(shared)
        if given != len(shared):
            found = len(shared)
            shared.close()
            raise ValueError(
                f"the key {key!r} names {found} rows, and {given} were given: it must say what the data is made from"
            )
    shared.report = report
    if warm:
        shared.warm()
    if pin:
        shared.pin()
    return shared


class _Job:
    """What there is to build."""

    def __init__(self, data: Any, codec: Codec, progress: Callable[[int], object] | None) -> None:
        self.data = data
        self.codec = codec
        self.progress = progress
        self.built: _core.RecordBuilder | None = None  # in this process; an iterator gives its rows only once

    @property
    def in_heap(self) -> bool:
        """The data is in this process's memory already."""
        return not callable(self.data)

    def build(self, spool: str) -> _core.RecordBuilder:
        """Take the rows; what was taken before and found no room is used again."""
        if self.built is not None:
            return self.built
        from onecopy.records import types, writing

        container, rows = writing.rows_of(self.data() if callable(self.data) else self.data)
        metadata = {types.CODEC: self.codec} if self.codec == "pickle" else {}
        builder = _core.RecordBuilder(spool, container, metadata)

        def tell(done: int) -> None:
            store.progress(builder.bytes)
            if self.progress is not None:
                self.progress(done)

        writing.fill(builder, rows, types.plain_of if self.codec == "records" else types.plain_or_pickle, tell)
        self.built = builder
        return builder


def _whole_key(job: _Job, key: str) -> str:
    """Return the key of an artefact: what was given, and what makes the data of it."""
    from onecopy.records import _makers
    from onecopy.records.sources import RowSource

    words = [key]
    if callable(job.data):
        words.append(f"by {_makers.name_of(job.data)}")
    elif isinstance(job.data, RowSource):
        words.append(f"of {_makers.name_of_source(job.data)}")
    if job.codec == "pickle":
        return ", ".join(words) + _OF_JOB + _this_job()
    return ", ".join(words)


def _named(
    job: _Job,
    key: str,
    place: WherePlaced,
    where: Where,
    source: str | os.PathLike[str] | None,
    folder: str | os.PathLike[str] | None,
    timeout: float | None,
) -> tuple[Any, Artefact]:
    disk = store.Store(folder)
    options: Any = {"source": source, "where": "here" if job.in_heap else where, "timeout": timeout}

    def onto_disk(path: Path) -> None:
        job.build(_spool_folder(path.parent)).save(str(path))

    def into_memory(path: Path) -> None:
        builder = job.build(_spool_folder(path.parent))
        chosen, reason = store.choose_place(builder.bytes, "memory")
        if chosen != "memory":  # it is written where there is room now: this may be a child, and its rows end with it
            disk.get_or_build(key, lambda target: builder.save(str(target)), **options | {"where": "here"})
            raise _NoRoom(reason)
        builder.save(str(path))

    def find_or_build() -> Artefact:
        if place != "memory" or folder is not None:
            return disk.get_or_build(key, onto_disk, **options)
        memory = store.Store(place="memory")
        found = disk.find(key) if memory.find(key) is None else None  # which had no room in memory once
        try:
            return found or memory.get_or_build(key, into_memory, **options)
        except _NoRoom:
            return disk.get_or_build(key, onto_disk, **options)

    report = find_or_build()
    if report.built and job.codec == "pickle":
        _forget_gone_jobs(store.Store(report.path.parent))
    # Unpickled is what this call asked to be pickled, in a file that was found open, ours, and made so (`types.CODEC`).
    shared = of_path(str(report.path), trusted=job.codec == "pickle", handle=report.handle)
    return shared, report.without_handle()


def _nameless(job: _Job, place: WherePlaced, where: Where) -> Any:
    """Build into a file without a name, here or in a child, and open it."""

    def build() -> int:
        builder = job.build(_spool_folder(Path("/dev/shm")))  # noqa: S108 - to say that it will be in memory
        if _fits_in_memory(builder.bytes, place):
            return builder.save_to_memory("onecopy")
        return builder.save_nameless(_spool_folder(Path(_core.default_folder(False)[0])))

    if job.in_heap or where == "here" or (where == "auto" and not can_fork()):
        descriptor = build()
        if not job.in_heap:
            give_back_memory()
    else:
        descriptor = _descriptor_from_child(build)
    try:
        return of_path(f"/proc/self/fd/{descriptor}", trusted=True)
    finally:
        os.close(descriptor)  # the mapping has its own


def _spool_folder(beside: Path) -> str:
    from onecopy.records.writing import spool_folder

    return spool_folder(beside)


def _descriptor_from_child(build: Callable[[], int]) -> int:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        call_in_child(lambda _: socket.send_fds(theirs, [b"."], [build()]), Path("nameless data"))
        received = socket.recv_fds(ours, 1, 1)[1]
    return received[0]


def _fits_in_memory(nbytes: int, place: WherePlaced) -> bool:
    if place == "disk":
        return False
    left = _core.available_memory()
    if left is None:
        return True
    return nbytes < left[0] // (1 if place == "memory" else 4)


def _forget_gone_jobs(where: store.Store) -> None:
    """Remove what was pickled for jobs that are gone: nobody will ever ask for it again."""
    gone = [artefact.key for artefact in where.ls() if artefact.state == "ready" and _is_of_gone_job(artefact)]
    if gone:
        where.prune(keys=gone)


def _is_of_gone_job(artefact: Artefact) -> bool:
    _, found, job = artefact.key.rpartition(_OF_JOB)
    if not found:
        return False
    name, number, *started = job.split()
    if name != "session":  # of a batch system, which alone knows: after a week without use
        return time.time() - artefact.last_used > _LONG_UNUSED
    return started != _start_of(number).split()


def _start_of(process: str | int) -> str:
    """Return when a process was started, in the words of the kernel; empty where it is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


def _this_job() -> str:
    """Name the job this process belongs to: of torchrun or a batch system, else the session of the terminal."""
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID"):
        if os.environ.get(name, "none") not in ("", "none"):  # torchrun says "none" where it was given no id
            return f"{name} {os.environ[name]}"
    session = os.getsid(0)
    return f"session {session} {_start_of(session)}"
