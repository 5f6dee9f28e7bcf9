"""`share`: build Python data once per machine, and map it in all processes.

    anns = oc.share(lambda: load("instances.json"), key=oc.file_key("instances.json"))

The first process on the machine to call `share` builds the data. All other processes, however they were started (fork,
spawn, forkserver, torchrun, another terminal), and later runs map the result within milliseconds. No process group or
server is needed; `onecopy store prune` frees the disk space.

Data without a key has no name. It is shared by this process and any process that receives the result, as an argument or
in a Dataset. The data is freed when the last of these processes ends, even if they are killed.

The modules that build data are imported only in the process that runs the build, which is usually a child process.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from onecopy import _core
from onecopy.store import Store, choose_place, name_of, report_progress, text_of
from onecopy.store.fork import call_in_child, free_unused_memory
from onecopy_records.rows import of_descriptor, of_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onecopy.store import Artefact
    from onecopy_records.row_files import Container
    from onecopy_records.rows import Dict, List

K = TypeVar("K")
T = TypeVar("T")
Codec = Literal["records", "pickle"]

_BY_JOB = ", pickled by job "
_UNUSED_S = 7 * 24 * 3600.0


@overload
def share(  # type: ignore[overload-overlap]  # a mapping is an iterable too; it becomes a Dict
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
    """Return a list or dict of Python values in memory that all processes on the machine share.

    Parameters
    ----------
    data
        A list, a dict or an iterator of rows, or a function without arguments that returns one of these and is called
        only if the data must be built. Other containers, including subclasses of list and dict, raise an error; for
        these, use `onecopy.share_object`, which returns an object of the same type. Rows are strings, bytes, numbers,
        None, tuples, lists, dicts, NumPy arrays and the types of `onecopy_records.types`, nested in any way.
    key
        Processes that pass the same key get the same data, in this run and in later ones. The key must identify the
        source of the data; see `onecopy.file_key`. As with `onecopy.cached`, the data is also built again if the
        function, or any of the program's code that it uses, changes. None: the data has no name. This process and any
        process that receives the result share the data until all of them have ended.
    codec
        "records": values are stored by type; unsupported types raise NotShareable. "pickle": values of unsupported
        types are pickled individually, for processes of this job only; the job becomes part of the key.
    store
        Where to keep the data: a `onecopy.Store` or a folder. None with a key: the default folder on disk, whose cached
        pages the kernel can reclaim. None without a key: memory, if the data takes at most a quarter of the available
        memory, or otherwise an unnamed file on disk. ``Store(place="memory")``: memory that is charged to this
        process's control group; a build needs twice the data's size. The data is not written to a file on
        disk, but the kernel may swap it.
    source
        The file from which the data is built. `onecopy store ls` shows it. A change during the build raises an error.
    progress
        Called from time to time with (rows done, rows in total or 0 if unknown) in the process that builds the data,
        which may be a child process. An exception that it raises ends the build and is passed on.

    Returns
    -------
    List, Table or Dict
        A Dict for a dict, a Table if all rows are dicts with str keys, or otherwise a List.

    Raises
    ------
    NotShareable
        The data has an unsupported container type, or a value has a type that cannot be stored exactly; the message
        begins with the path of the value: ``[12].bbox[3]: ...``.
    TypeError
        The key is not text, or, with a key, the function uses a value without a stable identity; the message names it.
    ValueError
        The number of rows stored under this key differs from the number of rows in `data`.
    NotEnoughMemory
        The data does not fit into a store in memory.
    OSError
        ENOSPC: there is not enough space. Other errors: the folder cannot be used.
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
    rows = None
    if not callable(data):
        from onecopy_records.row_files import rows_of  # here, as below: a process that finds the data needs no writer

        rows = rows_of(data)  # raises for other containers, even if the artefact exists
    request = _Request(data, rows, codec, progress)
    if key is None:
        return _share_unnamed(request, None if store is None else Store.of(store))  # type: ignore[no-any-return]
    shared: List[T] | Dict[Any, T] = _share_named(request, _full_key(request, key), Store.of(store), source)
    built = shared.report is not None and shared.report.built
    given = len(data) if isinstance(data, Sized) and not built else len(shared)
    if given != len(shared):
        found = len(shared)
        shared.close()
        raise ValueError(
            f"key {key!r} refers to data with {found} rows, but `data` has {given} rows: the key must change with "
            "the data"
        )
    return shared


def stored_rows(
    make: Callable[[], Any],
    key: str,
    store: Store,
    source: str | None,
    progress: Callable[[int, int], object] | None,
) -> Any:
    """Return the rows that `make` builds, or load them from the store, where `key` identifies them."""
    return _share_named(_Request(make, None, "records", progress), key, store, source)


@dataclass(frozen=True, slots=True)
class _Request:
    """A call of `share`: its data, and how to store it."""

    data: Any
    rows: tuple[Container, Iterable[Any]] | None
    """The container and rows of the data, or None if the data is a function that returns them."""
    codec: Codec
    progress: Callable[[int, int], object] | None

    def collect_rows(self, spool: str) -> _core.RecordBuilder:
        """Return a builder that keeps all rows in a file in the folder `spool`, or in memory if `spool` is ""."""
        from onecopy_records.row_files import fill, rows_of
        from onecopy_records.types import CODEC, plain_of, plain_or_pickle

        container, rows = self.rows or rows_of(self.data())
        is_plain = self.codec == "records"
        builder = _core.RecordBuilder(spool, container, {} if is_plain else {CODEC: self.codec})
        total = len(rows) if isinstance(rows, Sized) else 0

        def report(done: int) -> None:
            report_progress(builder.bytes)
            if self.progress is not None:
                self.progress(done, total)

        fill(builder, rows, plain_of if is_plain else plain_or_pickle, report)
        if self.rows is None:
            del rows
            free_unused_memory()
        return builder


def _full_key(request: _Request, key: str) -> str:
    """Extend the caller's key with the identity of the function or source, and for pickles with the job."""
    text = text_of(key)
    if request.rows is None:
        text += f", by {name_of(request.data)}"
    else:
        from onecopy_records.row_files import RowSource

        text += f", of {request.data.name()}" if isinstance(request.data, RowSource) else ""
    return text + _BY_JOB + _this_job() if request.codec == "pickle" else text


def _share_named(request: _Request, key: str, store: Store, source: str | os.PathLike[str] | None) -> Any:
    if request.rows is not None:
        store = store.with_options(where="here")

    def build(path: Path) -> None:
        builder = request.collect_rows("" if store.place == "memory" else str(store.folder))
        if store.is_default and store.place == "memory":
            choose_place(builder.bytes, "memory")  # may raise NotEnoughMemory
        builder.save(str(path))

    report = store.get_or_build(key, build, source=source)
    if report.built and request.codec == "pickle":
        _remove_ended_jobs(store)
    # Values are unpickled only if this call has codec="pickle" and the file is marked with it. The file belongs to this
    # user, or to a user whom the caller trusts.
    shared = of_path(str(report.path), trusted=request.codec == "pickle", handle=report.handle)
    shared.report = report.without_handle()
    return shared


def _share_unnamed(request: _Request, store: Store | None) -> Any:
    """Build an unnamed file, in this process or in a child, and open it."""
    if store is not None and store.where == "fork" and request.rows is None:
        descriptor = _descriptor_from_child(lambda: _save_unnamed(request, store))
    else:
        descriptor = _save_unnamed(request, store)
    return of_descriptor(descriptor, trusted=request.codec == "pickle")


def _save_unnamed(request: _Request, store: Store | None) -> int:
    """Save the rows and return a descriptor. Without a store, small data is saved in memory, and other data on disk."""
    if store is not None and store.place == "disk":
        return request.collect_rows(str(store.folder)).save_nameless(str(store.folder))
    import tempfile

    builder = request.collect_rows(
        _temporary_on_disk(tempfile.tempdir or tempfile.gettempdir()) if store is None else ""
    )
    try:
        if (descriptor := builder.save_to_memory("onecopy", 4 if store is None else 0)) is not None:
            return descriptor
    except OSError:  # NotEnoughMemory, or a sandbox where /dev/shm is small
        if store is not None:
            raise
    from onecopy_records.row_files import spool_folder

    return builder.save_nameless(spool_folder(Path(_core.default_folder(memory=False)[0])))


@functools.cache  # without it, a small `share` would spend most of its time on the search for a folder
def _temporary_on_disk(folder: str) -> str:
    """Return the folder for temporary files, or a folder on disk if that folder is in memory."""
    from onecopy_records.row_files import spool_folder

    return spool_folder(Path(folder))


def _descriptor_from_child(build: Callable[[], int]) -> int:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        call_in_child(lambda: socket.send_fds(theirs, [b"."], [build()]), "unnamed data")
        return socket.recv_fds(ours, 1, 1)[1][0]


def _remove_ended_jobs(store: Store) -> None:
    """Remove artefacts with pickles from jobs that have ended, because their keys are never used again."""
    gone = [artefact.key for artefact in store.ls() if artefact.state == "ready" and _job_has_ended(artefact)]
    if gone:
        store.prune(keys=gone)


def _job_has_ended(artefact: Artefact) -> bool:
    _, found, job = artefact.key.rpartition(_BY_JOB)
    if not found:
        return False
    name, number, *started = job.split()
    if name != "session":  # a job of a batch system: removed after a week without use
        return time.time() - artefact.last_used > _UNUSED_S
    return started != start_of(number).split()


def _this_job() -> str:
    """Return the name of this process's job in torchrun or a batch system, or else of its terminal session."""
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID"):
        if os.environ.get(name, "none") not in ("", "none"):  # torchrun sets "none" if it has no id
            return f"{name} {os.environ[name]}"
    session = os.getsid(0)
    return f"session {session} {start_of(session)}"


def start_of(process: str | int) -> str:
    """Return a process's start time in clock ticks since boot, which makes its PID unique, or "" if it has ended."""
    try:
        with open(f"/proc/{process}/stat", errors="replace") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
