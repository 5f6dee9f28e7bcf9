"""Worker processes that start fast and share what is shared: a warm fork server, and a proof for your own tests.

`preload` lets the fork server of multiprocessing import torch once, instead of each worker anew: since Python 3.14 the
fork server is how workers start on Linux. `assert_shared` fails with a table of figures where some workers hold a copy
of data that all should share.

**When not to use it.** `preload` does nothing for the start methods fork (what is imported is there) and spawn (nothing
can be). `assert_shared` walks page tables (see `onecopy.proc`): for tests, not for loops.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy import proc
from onecopy._sizes import parse_size, size
from onecopy.explaining import files_under

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

    from onecopy.files import Identity

__all__ = ["MemoryOfWorker", "PreloadReport", "Sharing", "assert_shared", "preload"]

GROWTH = 64 << 20  # bytes; what a forked worker writes to of torch's own objects, by counting references
POOLS = {  # of threads: a part of the library's file name, and the variable that keeps it to one thread
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "omp": "OMP_NUM_THREADS",
    "numexpr": "NUMEXPR_NUM_THREADS",
}
READERS = ("onecopy.records.opening", "onecopy.records.table", "onecopy.records.dicts")
"""What a worker imports that is given shared rows: half a megabyte that it need not have of its own."""


# --- a warm fork server ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerStart:
    """What it took to start one worker that imports the modules."""

    seconds: float
    """From asking for the process until it has them."""
    uss: int
    """Bytes that only this worker holds, while another is there too."""


@dataclass(frozen=True)
class PreloadReport:
    """What `preload` set, and after `measure` what it saves; what was not measured is None."""

    modules: tuple[str, ...]
    effective: bool
    """False: the fork server was running already, with what it had been told before."""
    without: WorkerStart | None = None
    preloaded: WorkerStart | None = None
    missing: tuple[str, ...] | None = None
    """Modules that the server could not import, and every worker imports itself."""
    server_threads: int | None = None
    """Threads of the server after the imports."""
    threads_at_fork: int | None = None
    """Threads that it had beside a fork: OpenBLAS ends its own before, and what is left is a danger."""

    def measure(self) -> PreloadReport:
        """Start workers in two throw-away interpreters, with and without the preload, and return what they took.

        This costs the imports, some four times. RuntimeWarning where the imports start threads in the server: a fork
        copies the locks that they hold, and not the threads. It names the variables that keep them away.
        """
        return self._measured()

    def _measured(self) -> PreloadReport:
        without, _ = _start_workers(self.modules, preloaded=False)
        preloaded, server = _start_workers(self.modules, preloaded=True)
        report = replace(
            self,
            without=without,
            preloaded=preloaded,
            missing=tuple(server["missing"]),
            server_threads=server["threads"],
            threads_at_fork=server["threads_at_fork"],
        )
        if server["threads"] > 1 or server["threads_at_fork"] > 1:
            warnings.warn(_about_threads(self.modules, server), RuntimeWarning, stacklevel=3)
        return report

    def __str__(self) -> str:
        names = ", ".join(self.modules)
        if not self.effective:
            return f"the fork server was running already: {names} will not be preloaded"
        if self.without is None or self.preloaded is None:
            return f"the fork server will import {names} before the first worker; measure() tells what it saves"
        text = (
            f"a worker with {names} starts in {self.preloaded.seconds:.2f} s instead of {self.without.seconds:.2f} s, "
            f"and has {size(self.preloaded.uss)} to itself instead of {size(self.without.uss)}"
        )
        return f"{text}; the server could not import {', '.join(self.missing)}" if self.missing else text


def preload(modules: Iterable[str] = ("torch",), *, main: bool = True, measure: bool = False) -> PreloadReport:
    """Let multiprocessing's fork server import modules once, before the first worker is forked.

    Call it before the first process, pool or DataLoader; then workers of the start method "forkserver" have the modules
    from the start and share their memory; likewise what reads shared rows. multiprocessing ignores a module that its
    server cannot import: the server has ``PYTHONPATH`` and what is installed, but not what a program adds to
    ``sys.path``; `measure` finds out.

    Parameters
    ----------
    modules
        Names, dotted or not.
    main
        Also preload the main module, as multiprocessing does by itself (Pythons that have cpython#126631 do not).
    measure
        Start workers in throw-away interpreters now, with and without, and report (see `PreloadReport.measure`); off by
        default, because it costs the imports, some four times.

    Raises
    ------
    ModuleNotFoundError
        No such module is installed.
    """
    names = tuple(modules)
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise ModuleNotFoundError(f"no module named {name!r}: it cannot be preloaded", name=name)
    from multiprocessing import forkserver

    wanted = [*(["__main__"] if main else []), *names, *READERS]
    server: Any = getattr(forkserver, "_forkserver", None)
    running = getattr(server, "_forkserver_pid", None) is not None
    effective = not running or getattr(server, "_preload_modules", None) == wanted
    forkserver.set_forkserver_preload(wanted)
    report = PreloadReport(names, effective)
    if not effective:
        warnings.warn(f"{report}; call preload before the first process", RuntimeWarning, stacklevel=2)
    return report._measured() if measure else report


def _start_workers(modules: tuple[str, ...], *, preloaded: bool) -> tuple[WorkerStart, dict[str, Any]]:
    """Start two workers of a fresh interpreter; return what the second took, and what it found in its server."""
    program = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from onecopy import workers; workers._report()"
    read_end, write_end = os.pipe()
    order = json.dumps({"modules": modules, "preloaded": preloaded, "to": write_end})
    command = [sys.executable, "-c", program, json.dumps(sys.path), order]
    with os.fdopen(read_end, "rb") as answer:
        try:
            done = subprocess.run(command, pass_fds=[write_end], capture_output=True, text=True, check=False)
        finally:
            os.close(write_end)
        if done.returncode:
            raise RuntimeError(f"no worker could be measured: {done.stderr.strip()[-2000:]}")
        told = json.loads(answer.read())
    return WorkerStart(told["seconds"], told["uss"]), told["server"]


def _report() -> None:
    """Be the throw-away interpreter: start two workers, one after the other, and write what the second says."""
    order = json.loads(sys.argv[2])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *(order["modules"] if order["preloaded"] else []), "onecopy._census"])
    processes, ends = [], []
    told: dict[str, Any] = {}
    for _ in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, order["modules"], time.monotonic()))
        process.start()
        theirs.close()
        told = ours.recv()
        processes.append(process)
        ends.append(ours)
    for end, process in zip(ends, processes, strict=True):
        end.close()
        process.join()
    os.write(order["to"], json.dumps(told).encode())


def _work(connection: Connection, modules: list[str], begun: float) -> None:
    """Be a worker: import, tell, and stay until the other end is closed."""
    missing = [name for name in modules if name not in sys.modules]
    for name in modules:
        importlib.import_module(name)
    seconds = time.monotonic() - begun
    files = {Path(region.path).name for region in proc.maps(os.getpid()) if region.path}
    threads = proc.status(os.getppid()).threads
    census = sys.modules.get("onecopy._census")  # None: the server could not import it
    server = {
        "missing": missing,
        "threads": getattr(census, "THREADS", threads),
        "threads_at_fork": threads,
        "files": sorted(files),
    }
    connection.send({"seconds": seconds, "uss": proc.rollup(os.getpid()).uss, "server": server})
    connection.poll(None)


def _about_threads(modules: tuple[str, ...], server: dict[str, Any]) -> str:
    """Say that imports left threads in the server, and what keeps them away."""
    found = [variable for part, variable in POOLS.items() if any(part in file.lower() for file in server["files"])]
    danger = (
        "forking a process with threads can hang the worker"
        if server["threads_at_fork"] > 1
        else "they end before each fork, and begin anew in every worker that computes"
    )
    count = max(server["threads"], server["threads_at_fork"]) - 1
    variables = ", ".join(f"{variable}=1" for variable in found or POOLS.values())
    return (
        f"importing {', '.join(modules)} started {count} threads in the fork server; {danger}: set {variables} "
        "before the first process starts"
    )


# --- a proof --------------------------------------------------------------------------------------------------------


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
        Anything with a `path`: `ArrayFile`, `ArraySet`, `Mapping`, `List`, `Table`, `Dict`; a dataset after
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
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> oc.save(path, {"weight": np.ones(1_000_000)})
    >>> model = oc.open(path)
    >>> before = oc.assert_shared(model, [os.getpid()])  # in life the pids of workers
    >>> float(model["weight"].sum())
    1000000.0
    >>> oc.assert_shared(model, [os.getpid()], since=before).pss <= 9_000_000
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
    allowed = (tenth, max(tenth, GROWTH)) if allowance is None else (parse_size(str(allowance)),) * 2
    if faults := seen.faults(*allowed):
        raise AssertionError("\n".join(["not one copy: " + "; ".join(faults), str(seen)]))
    return seen


def _files_of(data: Any) -> dict[Identity, str]:
    """Return the files of some data: what tells them from others, and their paths, which nameless ones share."""
    from onecopy.sets import ArraySet

    report = getattr(data, "onecopy_report", None)
    files = {}
    for mapped in _mapped_by(data):
        files[_identity_of(mapped)] = mapped
    whole = [data] if report is None else report.parts
    for part in (file for one in whole for file in (one.files if isinstance(one, ArraySet) else [one])):
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
