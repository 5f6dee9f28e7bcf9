"""Share Python data: built once per machine, mapped by all processes.

    anns = oc.share(lambda: load("instances.json"), key=oc.file_key("instances.json"))

The first process of the machine that gets here builds; all others, however they were started (fork, spawn, forkserver,
torchrun, another terminal), map the result within milliseconds, and so does the next run. There is no process group and
no server; `onecopy store prune` frees the disk.

Without a key the data has no name: it belongs to this process and to those that it passes the result to, as an argument
or in a Dataset, and is freed with the last of them, even if they are killed.

The modules that build are imported only where data is built, mostly in a child: other ranks of a job do not pay for
them.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from onecopy import _core
from onecopy.records.opening import of_path
from onecopy.store import Store, choose_place, report_progress
from onecopy.store.fork import call_in_child, can_fork, free_unused_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onecopy.records.dicts import Dict
    from onecopy.records.rows import List
    from onecopy.store import Artefact

__all__ = ["share"]

K = TypeVar("K")
T = TypeVar("T")
Codec = Literal["records", "pickle"]


_OF_JOB = ", pickled by job "
_LONG_UNUSED = 7 * 24 * 3600.0  # seconds


class _NoRoom(Exception):
    """The memory store has no room for what was built; the message has the reason."""


@overload
def share(  # type: ignore[overload-overlap]  # a mapping can be iterated too, and is a dict nevertheless
    data: Mapping[K, T] | Callable[[], Mapping[K, T]],
    key: str | None = None,
    *,
    codec: Codec = "records",
    store: Store | str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Dict[K, T]: ...


@overload
def share(
    data: Iterable[T] | Callable[[], Iterable[T]],
    key: str | None = None,
    *,
    codec: Codec = "records",
    store: Store | str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> List[T]: ...


def share(
    data: Iterable[T] | Mapping[Any, T] | Callable[[], Any],
    key: str | None = None,
    *,
    codec: Codec = "records",
    store: Store | str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> List[T] | Dict[Any, T]:
    """Hold a list or dict of Python values once for all processes of the machine.

    Parameters
    ----------
    data
        A list, any iterable of rows, or a dict; or a function without arguments that returns one, which is called only
        if the data has to be built. Rows are strings, bytes, numbers, None, tuples, lists, dicts, numpy arrays and the
        types of `onecopy.records.types`, nested in any way.
    key
        Processes that pass the same key get the same data, in this run and in later ones. It names what the data is
        made from: see `onecopy.file_key`. The function belongs to the identity too: its code, its defaults and the
        values that it closes over, but not the functions that it calls. Two functions with one key make two artefacts.
        None: the data has no name; this process, and those that it passes the result to, share it until all have ended.
    codec
        "records": values are stored by type; others are NotShareable. "pickle": values of other types are pickled one
        by one, for processes of this job alone: the job becomes part of the key.
    store
        Where the data is built, and how: a `onecopy.Store` with its options, or a folder. None, with a key: the default
        folder on disk, whose pages are in memory and can be dropped by the kernel; without a key: memory while that is
        plentiful (a quarter of what is available), else a nameless file on disk. ``Store(place="memory")``: memory that
        is never written to a disk and is charged to this control group; where it does not fit, the default disk store.
    source
        The file the data is made from, for `onecopy store ls` and `prune`; checked for changes after the build.
    progress
        Called now and then with (rows done, rows in total or 0 if unknown) where the data is built, which may be a
        child process; it may raise, which ends the build.

    Raises
    ------
    NotShareable
        A value of a type that cannot be stored exactly, with its path: ``[12].bbox[3]: ...``.
    TypeError
        With a key: the function closes over a value without a stable identity; the message names it.
    ValueError
        The artefact of this key has another number of rows than `data`.
    OSError
        ENOSPC: there is no room. Others: the folder cannot be used.
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
    if codec not in ("records", "pickle"):
        raise ValueError(f"codec must be 'records' or 'pickle', not {codec!r}")
    job = _Job(data, codec, progress)
    shared: List[T] | Dict[Any, T]
    if key is None:
        shared, report = _nameless(job, None if store is None else Store.of(store)), None
    else:
        shared, report = _named(job, _whole_key(job, key), Store.of(store), source)
        given = len(data) if isinstance(data, Sized) and not report.built else len(shared)
        if given != len(shared):
            found = len(shared)
            shared.close()
            raise ValueError(
                f"key {key!r} names data with {found} rows, but {given} were given: the key must name what the data is "
                "made from"
            )
    shared.report = report
    return shared


class _Job:
    """The data of one call of `share`, and how it is built."""

    def __init__(self, data: Any, codec: Codec, progress: Callable[[int, int], object] | None) -> None:
        self.data = data
        self.codec = codec
        self.progress = progress
        self.built: _core.RecordBuilder | None = None  # kept, because an iterator gives its rows only once

    @property
    def in_heap(self) -> bool:
        """Whether the data is in the memory of this process already."""
        return not callable(self.data)

    def build(self, spool: str) -> _core.RecordBuilder:
        """Consume the rows, once: a second call returns the same builder."""
        if self.built is not None:
            return self.built
        from onecopy.records import types, writing

        container, rows = writing.rows_of(self.data() if callable(self.data) else self.data)
        metadata = {types.CODEC: self.codec} if self.codec == "pickle" else {}
        builder = _core.RecordBuilder(spool, container, metadata)

        total = len(rows) if isinstance(rows, Sized) else 0

        def report(done: int) -> None:
            report_progress(builder.bytes)
            if self.progress is not None:
                self.progress(done, total)

        writing.fill(builder, rows, types.plain_of if self.codec == "records" else types.plain_or_pickle, report)
        self.built = builder
        return builder


def _whole_key(job: _Job, key: str) -> str:
    """Return the key of an artefact: the key of the caller and the identity of the function."""
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


def _named(job: _Job, key: str, store: Store, source: str | os.PathLike[str] | None) -> tuple[Any, Artefact]:
    if job.in_heap:
        store = store.with_options(where="here")
    report = _in_memory(job, key, store, source) if store.is_default and store.place == "memory" else None
    if report is None:
        store = _on_disk(store)
        report = store.get_or_build(
            key, lambda path: job.build(_spool_folder(path.parent)).save(str(path)), source=source
        )
    if report.built and job.codec == "pickle":
        _forget_gone_jobs(Store(report.path.parent))
    # Only what this call asked to be pickled is unpickled, from a file of this user that is marked so (`types.CODEC`).
    shared = of_path(str(report.path), trusted=job.codec == "pickle", handle=report.handle)
    return shared, report.without_handle()


def _on_disk(store: Store) -> Store:
    """Return the default store on disk, with the same options, for the default store in memory; others as they are."""
    return Store(**store.options()) if store.is_default and store.place == "memory" else store


def _in_memory(job: _Job, key: str, memory: Store, source: str | os.PathLike[str] | None) -> Artefact | None:
    """Return an artefact of the memory store; None where it does not fit there."""
    disk = _on_disk(memory).with_options(where="here")
    if memory.find(key) is None and (found := disk.find(key)) is not None:  # it did not fit into memory before
        return found

    def build(path: Path) -> None:
        builder = job.build(_spool_folder(path.parent))
        chosen, reason = choose_place(builder.bytes, "memory")
        if chosen != "memory":  # written to the disk here: this may be a child, and its rows end with it
            disk.get_or_build(key, lambda target: builder.save(str(target)), source=source)
            raise _NoRoom(reason)
        builder.save(str(path))

    try:
        return memory.get_or_build(key, build, source=source)
    except _NoRoom:
        return None


def _nameless(job: _Job, store: Store | None) -> Any:
    """Build a file without a name, in this process or in a child, and open it."""
    where = "auto" if store is None else store.where

    def build() -> int:
        builder = job.build(_spool_folder(Path("/dev/shm")))  # noqa: S108 - the spool is in memory
        if _fits_in_memory(builder.bytes, store):
            return builder.save_to_memory("onecopy")
        on_disk = store is not None and store.place == "disk"
        folder = store.folder if store is not None and on_disk else Path(_core.default_folder(False)[0])
        return builder.save_nameless(_spool_folder(folder))

    if job.in_heap or where == "here" or (where == "auto" and not can_fork()):
        descriptor = build()
        if not job.in_heap:
            free_unused_memory()
    else:
        descriptor = _descriptor_from_child(build)
    try:
        return of_path(f"/proc/self/fd/{descriptor}", trusted=True)
    finally:
        os.close(descriptor)  # the mapping keeps the file


def _spool_folder(beside: Path) -> str:
    from onecopy.records.writing import spool_folder

    return spool_folder(beside)


def _descriptor_from_child(build: Callable[[], int]) -> int:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        call_in_child(lambda _: socket.send_fds(theirs, [b"."], [build()]), Path("nameless data"))
        received = socket.recv_fds(ours, 1, 1)[1]
    return received[0]


def _fits_in_memory(nbytes: int, store: Store | None) -> bool:
    if store is not None and store.place == "disk":
        return False
    left = _core.available_memory()
    if left is None:
        return True
    return nbytes < left[0] // (4 if store is None else 1)


def _forget_gone_jobs(store: Store) -> None:
    """Remove what was pickled for jobs that have ended: their keys are never used again."""
    gone = [artefact.key for artefact in store.ls() if artefact.state == "ready" and _is_of_gone_job(artefact)]
    if gone:
        store.prune(keys=gone)


def _is_of_gone_job(artefact: Artefact) -> bool:
    _, found, job = artefact.key.rpartition(_OF_JOB)
    if not found:
        return False
    name, number, *started = job.split()
    if name != "session":  # of a batch system: removed after a week without use
        return time.time() - artefact.last_used > _LONG_UNUSED
    return started != _start_of(number).split()


def _start_of(process: str | int) -> str:
    """Return when a process was started, in clock ticks since boot as text; empty where it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


def _this_job() -> str:
    """Return the name of this process's job: of torchrun or a batch system, else the session of the terminal."""
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID"):
        if os.environ.get(name, "none") not in ("", "none"):  # torchrun sets "none" where it has no id
            return f"{name} {os.environ[name]}"
    session = os.getsid(0)
    return f"session {session} {_start_of(session)}"
