"""Worker processes that start fast: `preload` makes the fork server of multiprocessing import modules once.

The fork server is the default start method on Linux since Python 3.14. `onecopy_monitor.assert_shared` checks that
workers share data.

**When not to use it.** With the start methods fork (children inherit all imports) and spawn (children inherit none).
"""

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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.base.text import size
from onecopy.memory import proc

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

__all__ = ["READERS", "PreloadReport", "WorkerStart", "preload"]

POOLS = {
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "omp": "OMP_NUM_THREADS",
    "numexpr": "NUMEXPR_NUM_THREADS",
}
"""Part of the file name of a library with a pool of threads, and the variable that limits the pool."""
READERS = ("onecopy.data.rows",)
"""Modules that a worker imports to read shared rows: half a megabyte that the preload shares."""


@dataclass(frozen=True)
class WorkerStart:
    """Start time and private memory of one worker that imports the modules."""

    seconds: float
    """Seconds from starting the process until the modules are imported."""
    uss: int
    """Private bytes of the worker (USS), while another worker is running."""


@dataclass(frozen=True)
class PreloadReport:
    """Result of `preload`; the savings are None unless it was called with ``measure=True``."""

    modules: tuple[str, ...]
    """Names of the preloaded modules."""
    effective: bool
    """False if the fork server was already running with another preload."""
    without: WorkerStart | None = None
    """Start of a worker without the preload."""
    preloaded: WorkerStart | None = None
    """Start of a worker with the preload."""
    missing: tuple[str, ...] | None = None
    """Modules that the server could not import, so that every worker imports them."""
    server_threads: int | None = None
    """Number of threads of the server after the imports."""
    threads_at_fork: int | None = None
    """Number of threads of the server at a fork, before which OpenBLAS ends its own. More than 1 can hang workers."""

    def __str__(self) -> str:
        names = ", ".join(self.modules)
        if not self.effective:
            return f"the fork server is already running: {names} will not be preloaded"
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
        times. A RuntimeWarning is issued if the imports start threads in the server, because a fork copies the locks
        that they hold, but not the threads. The warning names variables that prevent them.

    Raises
    ------
    ModuleNotFoundError
        A module is not installed.
    """
    names = tuple(modules)
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise ModuleNotFoundError(f"cannot preload {name!r}: the module is not installed", name=name)
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
    """Start two workers of a new interpreter; return what the second sends by `_work`."""
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
    """Run the temporary interpreter: start one worker after the other, and write the report of the second."""
    order = json.loads(sys.argv[2])
    context = multiprocessing.get_context("forkserver")
    preloaded = order["modules"] if order["preloaded"] else []
    context.set_forkserver_preload([__name__, *preloaded, "onecopy.frameworks._server_threads"])
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
    """Run a worker: import modules, send a report, and wait until the other end is closed."""
    missing = [name for name in modules if name not in sys.modules]
    for name in modules:
        importlib.import_module(name)
    seconds = time.monotonic() - begun
    threads = proc.status(os.getppid()).threads
    after_imports = sys.modules.get("onecopy.frameworks._server_threads")  # None: the server could not import it
    connection.send(
        {
            "seconds": seconds,
            "uss": proc.rollup(os.getpid()).uss,
            "missing": missing,
            "threads": getattr(after_imports, "THREADS", threads),
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
