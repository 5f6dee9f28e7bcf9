"""Twins: the tensors of the file under test in the container of a peer that cannot read a safetensors file.

Written once before the first round, each by a fresh process with the peer's own writer, into a temporary folder
on the disk of the file under test: beside it, or where the user says. The folder goes with the run; what a killed run
left, known by a lock that no process holds, is swept by the next.

    python -P -m onecopy_bench.files.twins SOURCE TARGET      # one of these processes; the configuration comes by stdin
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from onecopy_bench.engine.record import Absent
from onecopy_bench.files.configurations import Configuration, Job

PREFIX = ".onecopy-bench-"


@contextlib.contextmanager
def written(
    configurations: Sequence[Configuration],
    job: Job,
    folder: Path | None = None,
    watch: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[dict[str, Job], tuple[Absent, ...]]]:
    """Write the twins that some configurations read; hold them until the block is left.

    Parameters
    ----------
    configurations
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
        The job of each configuration that reads a twin, by name, and those whose twin could not be written.
    """
    jobs: dict[str, Job] = {}
    absent: list[Absent] = []
    with contextlib.ExitStack() as stack:
        place: str | None = None
        twins: dict[str, Job | str] = {}
        for entry in configurations:
            if entry.twin is None:
                continue
            if entry.twin.suffix not in twins:
                watch(f"writing the tensors as {entry.twin.suffix}")
                try:
                    if place is None:
                        where = folder or Path(job.path).parent
                        sweep(where)
                        place = stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX, dir=where))
                        stack.enter_context(locked(place))
                    twins[entry.twin.suffix] = _write(entry, job, Path(place, "twin" + entry.twin.suffix))
                except OSError as error:
                    twins[entry.twin.suffix] = f"its file could not be written: {error.strerror or error}"
            twin = twins[entry.twin.suffix]
            if isinstance(twin, str):
                absent.append(Absent(entry.name, twin))
            else:
                jobs[entry.name] = twin
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


def _write(configuration: Configuration, job: Job, target: Path) -> Job:
    """Write one twin in a process of its own and return the job of loading it; raises OSError."""
    command = [sys.executable, "-P", "-m", "onecopy_bench.files.twins", job.path, str(target)]
    done = subprocess.run(command, input=pickle.dumps(configuration), capture_output=True, check=False)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        raise OSError(lines[-1][:200] if lines else f"exit status {done.returncode}")
    return replace(job, path=str(target), size=target.stat().st_size)


def main(arguments: list[str]) -> None:
    """Write the twin that a configuration reads."""
    source, target = arguments
    configuration: Configuration = pickle.load(sys.stdin.buffer)  # noqa: S301 - by the parent
    assert configuration.twin is not None
    for module in configuration.modules:
        importlib.import_module(module)
    configuration.twin.write(source, target)


if __name__ == "__main__":
    main(sys.argv[1:])
