"""A fork server of multiprocessing that has imported before the first worker is forked, and what that saves."""

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


__all__ = ["PreloadReport", "WorkerStart", "preload"]

POOLS = {  # of threads: a part of the library's file name, and the variable that keeps it to one thread
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "omp": "OMP_NUM_THREADS",
    "numexpr": "NUMEXPR_NUM_THREADS",
}
READERS = ("onecopy.records.opening", "onecopy.records.table", "onecopy.records.dicts")
"""What a worker imports that is given shared rows: half a megabyte that it need not have of its own."""


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
            raise RuntimeError(f"no worker could be measured: {done.stderr.strip()[-2000:]}")
        told = json.loads(answer.read())
    return WorkerStart(told["seconds"], told["uss"]), told["server"]


def _report() -> None:
    """Be the throw-away interpreter: start two workers, one after the other, and write what the second says."""
    order = json.loads(sys.argv[2])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [__name__, *(order["modules"] if order["preloaded"] else []), "onecopy.workers._census"]
    )
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
    """Warn that imports left threads in the server, and which variables prevent that."""
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
