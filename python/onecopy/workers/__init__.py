"""Worker processes that start fast and share memory: a preloaded fork server, and an assertion for tests.

`preload` makes the fork server of multiprocessing import modules once, instead of in each worker; the fork
server is the default start method on Linux since Python 3.14. `assert_shared` raises AssertionError with a table if a
worker holds a private copy of data that all workers should share.

**When not to use it.** `preload` has no effect with the start methods fork (children inherit all imports) and spawn
(children inherit none). `assert_shared` walks page tables (see `onecopy.memory.proc`): use it in tests, not in loops.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import mmap
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.arguments import byte_count
from onecopy.memory import proc
from onecopy.memory.explaining import files_under
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

    from onecopy.files import Identity

__all__ = ["READERS", "MemoryOfWorker", "PreloadReport", "Sharing", "WorkerStart", "assert_shared", "preload"]

POOLS = {  # thread pools: part of the file name of a library, and the variable that limits it to one thread
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "omp": "OMP_NUM_THREADS",
    "numexpr": "NUMEXPR_NUM_THREADS",
}
READERS = ("onecopy.records.rows",)
"""What a worker imports to read shared rows: half a megabyte that the preload shares."""


@dataclass(frozen=True)
class WorkerStart:
    """Start time and private memory of one worker that imports the modules."""

    seconds: float
    """Seconds from starting the process until the modules are imported."""
    uss: int
    """Private bytes of the worker (USS), while another worker is running."""


@dataclass(frozen=True)
class PreloadReport:
    """Result of `preload`, with ``measure=True`` also the savings; values that were not measured are None."""

    modules: tuple[str, ...]
    """Names of the preloaded modules."""
    effective: bool
    """False if the fork server was running already with another preload."""
    without: WorkerStart | None = None
    """Start of a worker without the preload."""
    preloaded: WorkerStart | None = None
    """Start of a worker with the preload."""
    missing: tuple[str, ...] | None = None
    """Modules that the server could not import, so that every worker imports them."""
    server_threads: int | None = None
    """Number of threads of the server after the imports."""
    threads_at_fork: int | None = None
    """Number of threads of the server at a fork; OpenBLAS ends its threads before. More than 1 can hang workers."""

    def __str__(self) -> str:
        names = ", ".join(self.modules)
        if not self.effective:
            return f"the fork server is running already: {names} will not be preloaded"
        if self.without is None or self.preloaded is None:
            return f"the fork server will import {names} before the first worker; measure=True measures the savings"
        text = (
            f"a worker with {names} starts in {self.preloaded.seconds:.2f} s instead of {self.without.seconds:.2f} s, "
            f"and has {size(self.preloaded.uss)} of private memory instead of {size(self.without.uss)}"
        )
        return f"{text}; the server could not import {', '.join(self.missing)}" if self.missing else text


def preload(modules: Iterable[str] = ("torch",), *, measure: bool = False) -> PreloadReport:
    """Make the fork server of multiprocessing import modules once, before the first worker is forked.

    Call it before the first process, pool or DataLoader. Workers of the start method "forkserver" then have them, the
    main module and modules for shared rows from the start, and share their memory. multiprocessing ignores modules that
    its server cannot import: the server has ``PYTHONPATH`` and installed packages, but not additions to ``sys.path``;
    `measure` reports such modules as missing.

    Parameters
    ----------
    modules
        Names of modules, such as "torch" or "torch.utils.data".
    measure
        Start workers in two temporary interpreters, with and without the preload, which runs the imports about four
        times. It warns with RuntimeWarning if the imports start threads in the server: a fork copies the locks that
        they hold, but not the threads. The warning names variables that prevent them.

    Raises
    ------
    ModuleNotFoundError
        A module is not installed.
    """
    names = tuple(modules)
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise ModuleNotFoundError(f"cannot preload {name!r}: no such module is installed", name=name)
    from multiprocessing import forkserver

    wanted = ["__main__", *names, *READERS]
    server: Any = getattr(forkserver, "_forkserver", None)
    running = getattr(server, "_forkserver_pid", None) is not None
    effective = not running or getattr(server, "_preload_modules", None) == wanted
    forkserver.set_forkserver_preload(wanted)
    report = PreloadReport(names, effective)
    if not effective:
        warnings.warn(f"{report}; call preload before the first process", RuntimeWarning, stacklevel=2)
    if not measure:
        return report
    without, preloaded = (_start_workers(names, preloaded=one) for one in (False, True))
    if preloaded["threads"] > 1 or preloaded["threads_at_fork"] > 1:
        warnings.warn(_about_threads(names, preloaded), RuntimeWarning, stacklevel=2)
    return PreloadReport(
        names,
        effective,
        WorkerStart(without["seconds"], without["uss"]),
        WorkerStart(preloaded["seconds"], preloaded["uss"]),
        tuple(preloaded["missing"]),
        preloaded["threads"],
        preloaded["threads_at_fork"],
    )


def _start_workers(modules: tuple[str, ...], *, preloaded: bool) -> dict[str, Any]:
    """Start two workers of a new interpreter; return what `_work` sends of the second."""
    program = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); import {__name__} as of; of._report()"
    read_end, write_end = os.pipe()
    order = json.dumps({"modules": modules, "preloaded": preloaded, "to": write_end})
    command = [sys.executable, "-c", program, json.dumps(sys.path), order]
    with os.fdopen(read_end, "rb") as answer:
        try:
            done = subprocess.run(command, pass_fds=[write_end], capture_output=True, text=True, check=False)
        finally:
            os.close(write_end)
        if done.returncode:
            raise RuntimeError(f"measuring a worker failed: {done.stderr.strip()[-2000:]}")
        found: dict[str, Any] = json.loads(answer.read())
        return found


def _report() -> None:
    """Run the temporary interpreter: start two workers in turn, and write the report of the second."""
    order = json.loads(sys.argv[2])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [__name__, *(order["modules"] if order["preloaded"] else []), "onecopy.workers._census"]
    )
    workers = []
    for _ in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, order["modules"], time.monotonic()))
        process.start()
        theirs.close()
        workers.append((ours, process, ours.recv()))
    for end, process, _ in workers:
        end.close()
        process.join()
    os.write(order["to"], json.dumps(workers[-1][2]).encode())


def _work(connection: Connection, modules: list[str], begun: float) -> None:
    """Run a worker: import, send a report on itself and its server, and wait until the other end is closed."""
    missing = [name for name in modules if name not in sys.modules]
    for name in modules:
        importlib.import_module(name)
    seconds = time.monotonic() - begun
    threads = proc.status(os.getppid()).threads
    census = sys.modules.get("onecopy.workers._census")  # None: the server could not import it
    connection.send(
        {
            "seconds": seconds,
            "uss": proc.rollup(os.getpid()).uss,
            "missing": missing,
            "threads": getattr(census, "THREADS", threads),
            "threads_at_fork": threads,
            "files": sorted({Path(region.path).name for region in proc.maps(os.getpid()) if region.path}),
        }
    )
    connection.poll(None)


def _about_threads(modules: tuple[str, ...], server: dict[str, Any]) -> str:
    """Return the warning about threads in the server, with the variables that prevent them."""
    found = [variable for part, variable in POOLS.items() if any(part in file.lower() for file in server["files"])]
    danger = (
        "forking a process with threads can hang the worker"
        if server["threads_at_fork"] > 1
        else "they end before each fork, and start again in every worker that computes"
    )
    count = max(server["threads"], server["threads_at_fork"]) - 1
    variables = ", ".join(f"{variable}=1" for variable in found or POOLS.values())
    return (
        f"importing {', '.join(modules)} started {count} threads in the fork server; {danger}: set {variables} "
        "before the first process starts"
    )


GROWTH = 64 << 20  # bytes; a forked worker copies about as much of torch's objects by counting references


@dataclass(frozen=True)
class MemoryOfWorker:
    """Memory of one process in mappings of the files and outside, in bytes."""

    pid: int
    """Process ID."""
    regions: int
    """Number of mappings of the files."""
    mapped: int
    """Resident bytes of the mappings: pages that the process has touched."""
    pss: int
    """Proportional share of the resident bytes (PSS)."""
    private: int
    """Bytes of private copies of mapped pages, made by writing (copy on write)."""
    elsewhere: int
    """Private dirty bytes outside the mappings, mainly heap."""


@dataclass(frozen=True)
class Sharing:
    """Snapshot of the memory of processes that map the same files. `str` gives a table."""

    paths: tuple[str, ...]
    """Paths of the files."""
    bytes: int
    """Size of the files in bytes, rounded up to pages."""
    workers: tuple[MemoryOfWorker, ...]
    """Memory of each process."""
    since: Sharing | None = field(default=None, repr=False)
    """An earlier snapshot to compare with; None without one."""

    @property
    def pss(self) -> int:
        """Sum of the proportional shares in bytes: resident bytes of the files, with shared pages counted once."""
        return sum(worker.pss for worker in self.workers)

    def growth(self, worker: MemoryOfWorker) -> int:
        """Return the growth of a worker's `elsewhere` since the earlier snapshot, in bytes; 0 without one."""
        before = {w.pid: w.elsewhere for w in self.since.workers} if self.since else {}
        return worker.elsewhere - before.get(worker.pid, worker.elsewhere)

    def faults(self, written: int, grown: int) -> list[str]:
        """Return one sentence per finding: private copies above `written` bytes, growth above `grown` bytes."""
        found = [f"process {worker.pid} does not map the files" for worker in self.workers if not worker.regions]
        found += [
            f"process {worker.pid} has {size(worker.private)} of private pages in the mapping: it wrote to them"
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
    """Raise AssertionError with a table unless processes share one copy of the data.

    Each process must map the files of the data and must not have written to them (copy on write), and the proportional
    shares must not exceed the size of the files. With `since`, an earlier result, no process may have grown: this finds
    data that is copied by reading or unpickling.

    Parameters
    ----------
    data
        An object with a `path` (`ArrayFile`, `Mapping`, `List`, `Table`, `Dict`), a dataset after `share_dataset`, or a
        session of `onecopy.onnxruntime` or a torch module, whose mapped files in this process are taken.
    processes
        PIDs or Process objects, a pool of multiprocessing or concurrent.futures, or the iterator of a DataLoader.
    since
        Result of an earlier call for the same processes.
    allowance
        Bytes that each process may have written in the mappings, and may have grown by outside, as a number or text
        such as "4 MiB". None: a tenth of the data, and for growth at least 64 MiB, because a forked worker copies about
        as much of torch's objects by counting references. Test with larger data, or give a smaller allowance.

    Returns
    -------
    Sharing
        The snapshot; `str` gives a table.

    Raises
    ------
    AssertionError
        The processes do not share one copy.
    TypeError
        The data is in no file.
    ValueError
        There are no processes.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib, os
    >>> from onecopy.workers import assert_shared
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
    tenth = seen.bytes // 10
    allowed = (tenth, max(tenth, GROWTH)) if allowance is None else (byte_count("allowance", allowance),) * 2
    if faults := seen.faults(*allowed):
        raise AssertionError("\n".join(["not one copy: " + "; ".join(faults), str(seen)]))
    return seen


def _files_of(data: Any) -> dict[Identity, str]:
    """Return the paths of the files of some data by identity; unnamed files may share a path."""
    from onecopy.arrays import ArrayFile

    session: Any = getattr(data, "onecopy", None)
    mapped = [file.path for file in session.mapped] if hasattr(session, "mapped") else []
    if hasattr(data, "named_parameters"):
        mapped += files_under(data.parameters())
    files = {_identity_of(path): path for path in mapped}
    report = getattr(data, "onecopy_report", None)
    whole = [data] if report is None else report.parts
    for part in (file for one in whole for file in (one.files if isinstance(one, ArrayFile) else [one])):
        if path := getattr(part, "path", None):
            opened = getattr(part, "file", part)  # a container of records
            files[getattr(opened, "identity", None) or _identity_of(path)] = os.fspath(path)
    if not files:
        raise TypeError(f"cannot find shared files of this {type(data).__name__}: no part of it is in a file")
    return files


def _identity_of(path: str | os.PathLike[str]) -> Identity:
    file = Path(path).stat()
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def _pids_of(processes: Any) -> list[int]:
    """Return the PIDs of processes, or of the processes of a pool."""
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
