"""Twins: the tensors of the file under test in the container of a rival that cannot read a safetensors file.

Written once before the first round, each by a fresh process with the rival's own writer, into a temporary folder
on the disk of the file under test: beside it, or where the user says. The folder goes with the run; what a killed run
left, known by a lock that no process holds, is swept by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from onecopy_bench.engine.crew import SampleError, crew_of
from onecopy_bench.engine.record import Absent
from onecopy_bench.files import loading as worker
from onecopy_bench.files.loaders import Job, Loader

PREFIX = ".onecopy-bench-"
TIMEOUT_S = 900.0


@contextlib.contextmanager
def written(
    loaders: Sequence[Loader],
    job: Job,
    folder: Path | None = None,
    watch: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[dict[str, Job], tuple[Absent, ...]]]:
    """Write the twins that some loaders read; hold them until the block is left.

    Parameters
    ----------
    loaders
        Any; those without a twin are passed over. Two that read the same container share one file.
    job
        The file under test.
    folder
        Where to write; the file's own folder if None.
    watch
        Called with a few words before each file is written.

    Yields
    ------
    tuple
        The job of each loader that reads a twin, by name, and those whose twin could not be written.
    """
    jobs: dict[str, Job] = {}
    absent: list[Absent] = []
    with contextlib.ExitStack() as stack:
        place: str | None = None
        twins: dict[str, Job | str] = {}
        for loader in loaders:
            if loader.twin is None:
                continue
            if loader.twin.suffix not in twins:
                watch(f"writing the tensors as {loader.twin.suffix}")
                try:
                    if place is None:
                        where = folder or Path(job.path).parent
                        sweep(where)
                        place = stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX, dir=where))
                        stack.enter_context(locked(place))
                    twins[loader.twin.suffix] = _write(loader, job, Path(place, "twin" + loader.twin.suffix))
                except SampleError as error:
                    twins[loader.twin.suffix] = f"its file could not be written: {error.reason}"
                except OSError as error:
                    twins[loader.twin.suffix] = f"its file could not be written: {error.strerror or error}"
            twin = twins[loader.twin.suffix]
            if isinstance(twin, str):
                absent.append(Absent(loader.name, twin))
            else:
                jobs[loader.name] = twin
        yield jobs, tuple(absent)


@contextlib.contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Hold the lock of a folder, which ends with this process; raises BlockingIOError where another one holds it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def sweep(where: Path) -> None:
    """Remove the folders of runs that were killed."""
    for folder in where.glob(PREFIX + "*"):
        with contextlib.suppress(OSError), locked(folder):
            shutil.rmtree(folder)


def _write(loader: Loader, job: Job, target: Path) -> Job:
    """Write one twin in a process of its own and return the job of loading it; raises SampleError."""
    with crew_of(worker, 1, TIMEOUT_S, loader=loader, job=job, twin=str(target)) as crew:
        crew.step("written")
        crew.dismiss()
    return replace(job, path=str(target), size=target.stat().st_size)
