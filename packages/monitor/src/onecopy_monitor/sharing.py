"""`assert_shared`: check that processes share one copy of data in files.

It walks page tables (see `onecopy.memory.proc`), so use it in tests, but not in loops.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.arrays import ArrayFile
from onecopy.base.text import byte_count, size
from onecopy.memory import proc
from onecopy.memory.copies import find
from onecopy.memory.proc import Regions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecopy.files.mapping import Identity

__all__ = ["MemoryOfWorker", "Sharing", "assert_shared"]

GROWTH = 64 << 20  # bytes; counting references copies about this much of torch's objects in a forked worker


@dataclass(frozen=True)
class MemoryOfWorker:
    """Memory of one process inside and outside of mappings of the files, in bytes."""

    pid: int
    """Process ID."""
    regions: int
    """Number of mappings of the files."""
    mapped: int
    """Resident bytes of the mappings, that is, pages that the process has accessed."""
    pss: int
    """Proportional share of the resident bytes (PSS)."""
    private: int
    """Bytes of private copies of mapped pages, caused by writing (copy on write)."""
    elsewhere: int
    """Private dirty bytes outside of the mappings, mainly heap."""


@dataclass(frozen=True)
class Sharing:
    """A snapshot of the memory of processes that map the same files. `str` returns a table."""

    paths: tuple[str, ...]
    """Paths of the files."""
    bytes: int
    """Size of the files in bytes, rounded up to pages."""
    workers: tuple[MemoryOfWorker, ...]
    """Memory of each process."""
    since: Sharing | None = field(default=None, repr=False)
    """An earlier snapshot to compare with, or None without one."""

    @property
    def pss(self) -> int:
        """Sum of the proportional shares in bytes: resident bytes of the files, with shared pages counted once."""
        return sum(worker.pss for worker in self.workers)

    def growth(self, worker: MemoryOfWorker) -> int:
        """Return the growth of a worker's `elsewhere` since the earlier snapshot in bytes, or 0 without one."""
        before = {w.pid: w.elsewhere for w in self.since.workers} if self.since else {}
        return worker.elsewhere - before.get(worker.pid, worker.elsewhere)

    def faults(self, written: int, grown: int) -> list[str]:
        """Return a sentence for each missing mapping, copy of over `written` bytes and growth by over `grown` bytes."""
        found = [f"process {worker.pid} does not map the files" for worker in self.workers if not worker.regions]
        found += [
            f"process {worker.pid} has {size(worker.private)} of private pages in the mapping, because it wrote to them"
            for worker in self.workers
            if worker.private > written
        ]
        found += [
            f"process {worker.pid} has grown by {size(self.growth(worker))} outside of the mappings, possibly by a copy"
            for worker in self.workers
            if self.growth(worker) > grown
        ]
        if self.pss > self.bytes + written * len(self.workers):
            found.append(f"the processes use {size(self.pss)} for files of only {size(self.bytes)}")
        return found

    def __str__(self) -> str:
        head = f"{', '.join(self.paths)}: {size(self.bytes)}, held by {len(self.workers)} processes: {size(self.pss)}"
        rows = [("pid", "mapped", "share", "written", "own elsewhere", "grown by")]
        rows += [
            (str(w.pid), size(w.mapped), size(w.pss), size(w.private), size(w.elsewhere), size(self.growth(w)))
            for w in self.workers
        ]
        return "\n".join([head, *("  ".join(f"{cell:>13}" for cell in row) for row in rows)])


def assert_shared(
    data: Any, processes: Any, *, since: Sharing | None = None, allowance: int | str | None = None
) -> Sharing:
    """Raise AssertionError, which includes a table, unless processes share one copy of the data.

    Each process must map the files of the data and must not have written to them (copy on write), and the sum of the
    proportional shares must not exceed the size of the files. Processes that were not forked must not have private
    copies of the files' bytes, which are found as in `onecopy.explain`. With `since`, an earlier result, no process may
    have grown; this detects data that is copied in another form when it is read or unpickled.

    Parameters
    ----------
    data
        An object with a `path` (`ArrayFile`, `Mapping`, `List`, `Table`, `Dict`), a dataset after `share_dataset`, or a
        session of `onecopy.onnxruntime` or a torch module, whose mapped files are checked.
    processes
        PIDs or Process objects, a pool from multiprocessing or concurrent.futures, or a DataLoader iterator.
    since
        The result of an earlier call for the same processes.
    allowance
        Maximum bytes that each process may have written in the mappings, and by which it may have grown outside of
        them, as a number or text such as "4 MiB". None: a tenth of the data, and for growth at least 64 MiB, because a
        forked worker copies about that much of torch's objects by changing reference counts. If the data is smaller
        than that, test with more data or a smaller allowance.

    Returns
    -------
    Sharing
        The snapshot; `str` returns a table.

    Raises
    ------
    AssertionError
        The processes do not share one copy.
    TypeError
        The data is not in a file.
    ValueError
        No processes were given.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib, os
    >>> from onecopy_monitor import assert_shared
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> oc.save(path, {"weight": np.ones(1_000_000)})
    >>> model = oc.open(path)
    >>> before = assert_shared(model, [os.getpid()])  # usually the PIDs of workers
    >>> float(model["weight"].sum())
    1000000.0
    >>> assert_shared(model, [os.getpid()], since=before).pss <= 9_000_000
    True
    """
    files = _files_of(data)
    seen = Sharing(
        tuple(dict.fromkeys(files.values())),
        sum(-(-length // mmap.PAGESIZE) * mmap.PAGESIZE for _, _, length, _ in files),
        tuple(_memory_of(pid, files) for pid in _pids_of(processes)),
        since,
    )
    # A forked worker also has pages that its parent has freed; they need no additional memory.
    regions = {worker.pid: proc.smaps(worker.pid) for worker in seen.workers}
    forked = {pid for pid, parts in regions.items() if sum(one.memory.shared_anonymous for one in parts) >= 1 << 20}
    copies = find({pid: regions[pid] for pid in regions.keys() - forked}, look_in=seen.paths, others=False).files
    tenth = seen.bytes // 10
    allowed = (tenth, max(tenth, GROWTH)) if allowance is None else (byte_count("allowance", allowance),) * 2
    faults = seen.faults(*allowed)
    held = [(one.path, pid, nbytes) for one in copies if one.path in seen.paths for pid, nbytes in one.held]
    faults += [f"process {pid} holds a copy of {size(n)} of {path}" for path, pid, n in held if n > allowed[0]]
    if faults:
        raise AssertionError("\n".join(["the processes do not share one copy: " + "; ".join(faults), str(seen)]))
    return seen


def _files_of(data: Any) -> dict[Identity, str]:
    """Return the paths of the data's files, keyed by identity. Unnamed files may have the same path."""
    session: Any = getattr(data, "onecopy", None)
    mapped = [file.path for file in session.mapped] if hasattr(session, "mapped") else []
    if hasattr(data, "named_parameters"):
        mapped += _files_under(data.parameters())
    files = {_identity_of(path): path for path in mapped}
    report = getattr(data, "onecopy_report", None)
    whole = [data] if report is None else report.parts
    for part in (file for one in whole for file in (one.files if isinstance(one, ArrayFile) else [one])):
        if path := getattr(part, "path", None):
            opened = getattr(part, "file", part)  # a container of records
            files[getattr(opened, "identity", None) or _identity_of(path)] = os.fspath(path)
    if not files:
        raise TypeError(f"this {type(data).__name__} has no shared files: no part of it is in a file")
    return files


def _identity_of(path: str | os.PathLike[str]) -> Identity:
    file = Path(path).stat()
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def _pids_of(processes: Any) -> list[int]:
    """Return the PIDs of processes, or of the processes in a pool."""
    if isinstance(processes, int) or hasattr(processes, "pid"):
        processes = [processes]
    for name in ("_pool", "_workers", "_processes"):  # Pool; DataLoader's iterator; ProcessPoolExecutor
        held = getattr(processes, name, None)
        if isinstance(held, dict | list):
            processes = list(held.values()) if isinstance(held, dict) else held
            break
    pids = [process if isinstance(process, int) else process.pid for process in processes]
    if not pids:
        raise ValueError("no processes were given: start the workers first")
    return pids


def _memory_of(pid: int, files: dict[Identity, str]) -> MemoryOfWorker:
    regions = proc.smaps(pid)
    mine = [r.memory for file, path in files.items() for r in proc.of_file(regions, file[:2], os.path.realpath(path))]
    return MemoryOfWorker(
        pid,
        regions=len(mine),
        mapped=sum(memory.rss for memory in mine),
        pss=sum(memory.pss for memory in mine),
        private=sum(memory.anonymous for memory in mine),
        elsewhere=sum(r.memory.private_dirty for r in regions) - sum(memory.private_dirty for memory in mine),
    )


def _files_under(tensors: Iterable[Any]) -> list[str]:
    """Return the paths of files whose pages contain tensors of this process."""
    regions = Regions()
    places = [regions.at(tensor.data_ptr()) for tensor in tensors if tensor.device.type == "cpu" and tensor.numel()]
    return list(dict.fromkeys(region.path for region in places if region is not None and region.inode))
