"""`preload`: imports in the fork server of multiprocessing, and measurement of what they save."""

from __future__ import annotations

import importlib
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.memory import proc
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection


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
    """Result of `preload`, with the savings after `measure`; values that were not measured are None."""

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

    def measure(self) -> PreloadReport:
        """Start workers in two temporary interpreters, with and without the preload, and return a report with both.

        This runs the imports about four times. It warns with RuntimeWarning if the imports start threads in the server:
        a fork copies the locks that they hold, but not the threads. The warning names variables that prevent them.
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
            return f"the fork server is running already: {names} will not be preloaded"
        if self.without is None or self.preloaded is None:
            return f"the fork server will import {names} before the first worker; measure() measures the savings"
        text = (
            f"a worker with {names} starts in {self.preloaded.seconds:.2f} s instead of {self.without.seconds:.2f} s, "
            f"and has {size(self.preloaded.uss)} of private memory instead of {size(self.without.uss)}"
        )
        return f"{text}; the server could not import {', '.join(self.missing)}" if self.missing else text


def preload(modules: Iterable[str] = ("torch",), *, main: bool = True, measure: bool = False) -> PreloadReport:
    """Make the fork server of multiprocessing import modules once, before the first worker is forked.

    Call it before the first process, pool or DataLoader. Workers of the start method "forkserver" then have them,
    and modules for shared rows, from the start and share their memory. multiprocessing ignores modules that its
    server cannot import: the server has ``PYTHONPATH`` and installed packages, but not additions to ``sys.path``;
    `measure` reports such modules as missing.

    Parameters
    ----------
    modules
        Names of modules, such as "torch" or "torch.utils.data".
    main
        Also preload the main module, as multiprocessing does by default (Pythons with cpython#126631 do not).
    measure
        Measure the savings now (see `PreloadReport.measure`); this runs the imports about four times.

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
    """Start two workers of a new interpreter; return the start of the second, and facts about its fork server."""
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
        found = json.loads(answer.read())
    return WorkerStart(found["seconds"], found["uss"]), found["server"]


def _report() -> None:
    """Run the temporary interpreter: start two workers in turn, and write the report of the second."""
    order = json.loads(sys.argv[2])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [__name__, *(order["modules"] if order["preloaded"] else []), "onecopy.workers._census"]
    )
    processes, ends = [], []
    found: dict[str, Any] = {}
    for _ in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, order["modules"], time.monotonic()))
        process.start()
        theirs.close()
        found = ours.recv()
        processes.append(process)
        ends.append(ours)
    for end, process in zip(ends, processes, strict=True):
        end.close()
        process.join()
    os.write(order["to"], json.dumps(found).encode())


def _work(connection: Connection, modules: list[str], begun: float) -> None:
    """Run a worker: import, send the report, and wait until the other end is closed."""
    missing = [name for name in modules if name not in sys.modules]
    for name in modules:
        importlib.import_module(name)
    seconds = time.monotonic() - begun
    files = {Path(region.path).name for region in proc.maps(os.getpid()) if region.path}
    threads = proc.status(os.getppid()).threads
    census = sys.modules.get("onecopy.workers._census")  # None: the server could not import it
    server = {
        "missing": missing,
        "threads": getattr(census, "THREADS", threads),
        "threads_at_fork": threads,
        "files": sorted(files),
    }
    connection.send({"seconds": seconds, "uss": proc.rollup(os.getpid()).uss, "server": server})
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
