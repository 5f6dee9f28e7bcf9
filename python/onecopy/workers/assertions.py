"""A proof that workers share data: what each holds of its files, and what it holds by itself."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.arguments import byte_count
from onecopy.memory import proc
from onecopy.memory.explaining import files_under
from onecopy.text import size

if TYPE_CHECKING:
    from onecopy.files import Identity

__all__ = ["MemoryOfWorker", "Sharing", "assert_shared"]

GROWTH = 64 << 20  # bytes; what a forked worker writes to of torch's own objects, by counting references


@dataclass(frozen=True)
class MemoryOfWorker:
    """What one process has of the files, and beside them; in bytes."""

    pid: int
    regions: int
    """Mappings of the files; not bytes."""
    mapped: int
    """Resident of the files in this process: what it has touched."""
    pss: int
    """Its share of that."""
    private: int
    """Pages of the mappings that were written, and are copies."""
    elsewhere: int
    """What this process has written outside the mappings, and no other has: its own heap, most of all."""


@dataclass(frozen=True)
class Sharing:
    """The memory of some processes that map the same files, at one moment."""

    paths: tuple[str, ...]
    bytes: int
    """Of the files, in whole pages."""
    workers: tuple[MemoryOfWorker, ...]
    since: Sharing | None = field(default=None, repr=False)

    @property
    def pss(self) -> int:
        """All shares together: what the processes hold of the files, each page counted once."""
        return sum(worker.pss for worker in self.workers)

    def growth(self, worker: MemoryOfWorker) -> int:
        """Return by how much a worker's own memory has grown since the first look; 0 without one."""
        before = {w.pid: w.elsewhere for w in self.since.workers} if self.since else {}
        return worker.elsewhere - before.get(worker.pid, worker.elsewhere)

    def faults(self, written: int, grown: int) -> list[str]:
        """Return one sentence for each thing that is not shared, beyond so many bytes in each process."""
        found = [f"process {worker.pid} does not map it" for worker in self.workers if not worker.regions]
        found += [
            f"process {worker.pid} has {size(worker.private)} of its own in the mapping: it wrote there"
            for worker in self.workers
            if worker.private > written
        ]
        found += [
            f"process {worker.pid} has grown by {size(self.growth(worker))} elsewhere: it may hold a copy"
            for worker in self.workers
            if self.growth(worker) > grown
        ]
        if self.pss > self.bytes + written * len(self.workers):
            found.append(f"{size(self.pss)} are held of {size(self.bytes)}")
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
    """Raise AssertionError, with a table of figures, unless processes hold one copy of the data among them.

    Each process must map the files of the data, must not have written there (copy on write), and their shares of the
    mappings must not add up to more than the files. With `since`, an earlier result, none may have grown: a list that
    is copied by being read, or unpickled, is seen there.

    Parameters
    ----------
    data
        Anything with a `path`: `ArrayFile`, `Mapping`, `List`, `Table`, `Dict`; a dataset after
        `share_dataset`; a session of `onecopy.onnxruntime`, a torch module: the files that they have mapped in this
        process.
    processes
        Process ids or Process objects, a pool of multiprocessing or concurrent.futures, the iterator of a DataLoader.
    since
        What an earlier call returned, for the same processes.
    allowance
        Bytes that a process may have written in the mappings, and grown by elsewhere; "4MiB" also. None: a tenth of the
        data; to grow at least 64 MiB, because a forked worker writes to that much of what it inherits from a program
        that imported torch, by counting references. Test with data well above it, or give less.

    Returns
    -------
    Sharing
        The figures; printed they are a table.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib, os
    >>> from onecopy.workers import assert_shared
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> oc.save(path, {"weight": np.ones(1_000_000)})
    >>> model = oc.open(path)
    >>> before = assert_shared(model, [os.getpid()])  # in life the pids of workers
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
    tenth = seen.bytes // 10
    allowed = (tenth, max(tenth, GROWTH)) if allowance is None else (byte_count("allowance", allowance),) * 2
    if faults := seen.faults(*allowed):
        raise AssertionError("\n".join(["not one copy: " + "; ".join(faults), str(seen)]))
    return seen


def _files_of(data: Any) -> dict[Identity, str]:
    """Return the files of some data: what tells them from others, and their paths, which nameless ones share."""
    from onecopy.arrays import ArrayFile

    report = getattr(data, "onecopy_report", None)
    files = {}
    for mapped in _mapped_by(data):
        files[_identity_of(mapped)] = mapped
    whole = [data] if report is None else report.parts
    for part in (file for one in whole for file in (one.files if isinstance(one, ArrayFile) else [one])):
        if path := getattr(part, "path", None):
            opened = getattr(part, "file", part)  # of records
            files[getattr(opened, "identity", None) or _identity_of(path)] = os.fspath(path)
    if not files:
        raise TypeError(f"nothing of this {type(data).__name__} is in a file that processes could share")
    return files


def _mapped_by(data: Any) -> list[str]:
    """Return the files that the weights of a session or module lie in."""
    session: Any = getattr(data, "onecopy", None)
    if hasattr(session, "mapped"):
        return [file.path for file in session.mapped]
    return files_under(data.parameters()) if hasattr(data, "named_parameters") else []


def _identity_of(path: str | os.PathLike[str]) -> Identity:
    file = Path(path).stat()
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def _pids_of(processes: Any) -> list[int]:
    """Return the ids of what is processes, or has them."""
    if isinstance(processes, int) or hasattr(processes, "pid"):
        processes = [processes]
    for name in ("_pool", "_workers", "_processes"):  # Pool; DataLoader's iterator; ProcessPoolExecutor
        held = getattr(processes, name, None)
        if isinstance(held, dict | list):
            processes = list(held.values()) if isinstance(held, dict) else held
            break
    pids = [process if isinstance(process, int) else process.pid for process in processes]
    if not pids:
        raise ValueError("there are no processes to look at: have the workers been started?")
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
