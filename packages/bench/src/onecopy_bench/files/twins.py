"""Twins: the tensors of the file under test in the container of a rival that cannot read a safetensors file.

Written once before the first round, each by a fresh process with the rival's own writer, into a temporary folder
beside the file under test, so on the same disk. The folder goes with the run.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from onecopy_bench.engine.crew import SampleError, once
from onecopy_bench.engine.record import Absent
from onecopy_bench.files import loading as worker
from onecopy_bench.files.loaders import Job, Loader

PREFIX = ".onecopy-bench-"
TIMEOUT_S = 900.0


@contextlib.contextmanager
def written(
    loaders: Sequence[Loader], job: Job, watch: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[dict[str, Job], tuple[Absent, ...]]]:
    """Write the twins that some loaders read; two that read the same container share one file.

    Yields the job of each loader that reads a twin, by name, and those whose twin could not be written.
    """
    jobs: dict[str, Job] = {}
    absent: list[Absent] = []
    with contextlib.ExitStack() as stack:
        place: str | None = None
        twins: dict[str, Job | str] = {}
        for loader in loaders:
            if loader.twin is None:
                continue
            suffix = loader.twin.suffix
            if suffix not in twins:
                watch(f"writing the tensors as {suffix}")
                try:
                    if place is None:
                        beside = tempfile.TemporaryDirectory(prefix=PREFIX, dir=Path(job.path).parent)
                        place = stack.enter_context(beside)
                    twins[suffix] = _write(loader, job, Path(place, f"twin{suffix}"))
                except (SampleError, OSError) as error:
                    reason = error.reason if isinstance(error, SampleError) else error.strerror or error
                    twins[suffix] = f"its file could not be written: {reason}"
            twin = twins[suffix]
            if isinstance(twin, str):
                absent.append(Absent(loader.name, twin))
            else:
                jobs[loader.name] = twin
        yield jobs, tuple(absent)


def _write(loader: Loader, job: Job, target: Path) -> Job:
    """Write one twin in a process of its own and return the job of loading it; raises SampleError."""
    once(worker, TIMEOUT_S, "written", loader=loader, job=job, twin=str(target))
    return replace(job, path=str(target), size=target.stat().st_size)
