"""Whose memory is it: processes and the files that they map, everything counted once, at a bounded price.

    with Sampler([os.getpid()], children=True) as sampler:
        snapshot = sampler.sample()
    print(snapshot.totals.real, "and not", snapshot.totals.sum_of_rss)

    with watch() as watched:                          # a thread looks ten times a second
        train()
    watched.assert_peak(anonymous="200 MiB")
    print(watched.table())

Adding up RSS counts a file once per process that maps it. PSS divides each page by its mappers and adds up rightly, but
walks through page tables under a lock of whoever is looked at: 6 ms per GiB of mapped files, 22 ms per GiB of anonymous
memory, each time. Here counters are read (8 us a process) and each big file is asked for once, in the page cache; walks
are made seldom, as far as a budget allows, and only for what nothing else can tell.

**When not to use it.** To find out which line of a program allocates: that is a profiler's work (memray, heaptrack).

Importing this package loads nothing else: `proc`, `cgroup` and `pressure`, which read the kernel's text, are used all
over the library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecopy.memory import cgroup as cgroup
    from onecopy.memory import pressure as pressure
    from onecopy.memory import proc as proc
    from onecopy.memory.containers import Container, container
    from onecopy.memory.diagnosis import Cause, Diagnosis, why
    from onecopy.memory.explaining import Explanation, Finding, explain
    from onecopy.memory.recording import End, Machine, Recorder, Recording, read_recording
    from onecopy.memory.samples import COLUMNS, FileSample, ProcessSample, Sample, sample_of
    from onecopy.memory.sampling.sampler import Sampler
    from onecopy.memory.series import Curve, FilePeak, Height, Holder, Peaks, ProcessSeries, Series
    from onecopy.memory.snapshots import Cost, FileReading, Key, ProcessReading, Snapshot, Totals, Walk, WatchCost
    from onecopy.memory.table import ProcessMemory, memory_of, memory_table
    from onecopy.memory.watching import Watch, watch

_HOMES = {
    "COLUMNS": "samples",
    "Cause": "diagnosis",
    "Container": "containers",
    "Cost": "snapshots",
    "Curve": "series",
    "Diagnosis": "diagnosis",
    "End": "recording",
    "Explanation": "explaining",
    "FileSample": "samples",
    "FilePeak": "series",
    "FileReading": "snapshots",
    "Finding": "explaining",
    "Height": "series",
    "Holder": "series",
    "Key": "snapshots",
    "Sample": "samples",
    "Machine": "recording",
    "Peaks": "series",
    "ProcessSample": "samples",
    "ProcessMemory": "table",
    "ProcessReading": "snapshots",
    "ProcessSeries": "series",
    "Recorder": "recording",
    "Recording": "recording",
    "Sampler": "sampling.sampler",
    "Series": "series",
    "Snapshot": "snapshots",
    "Totals": "snapshots",
    "Walk": "snapshots",
    "Watch": "watching",
    "WatchCost": "snapshots",
    "container": "containers",
    "explain": "explaining",
    "sample_of": "samples",
    "memory_of": "table",
    "memory_table": "table",
    "read_recording": "recording",
    "watch": "watching",
    "why": "diagnosis",
}

_READERS = ("cgroup", "pressure", "proc")

__all__ = [
    "COLUMNS",
    "Cause",
    "Container",
    "Cost",
    "Curve",
    "Diagnosis",
    "End",
    "Explanation",
    "FilePeak",
    "FileReading",
    "FileSample",
    "Finding",
    "Height",
    "Holder",
    "Key",
    "Machine",
    "Peaks",
    "ProcessMemory",
    "ProcessReading",
    "ProcessSample",
    "ProcessSeries",
    "Recorder",
    "Recording",
    "Sample",
    "Sampler",
    "Series",
    "Snapshot",
    "Totals",
    "Walk",
    "Watch",
    "WatchCost",
    "container",
    "explain",
    "memory_of",
    "memory_table",
    "read_recording",
    "sample_of",
    "watch",
    "why",
]


if not TYPE_CHECKING:  # to a type checker, this would have every name

    def __getattr__(name: str) -> Any:
        if name in _READERS:
            return import_module(f"onecopy.memory.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'onecopy.memory' has no attribute {name!r}")
        value = getattr(import_module(f"onecopy.memory.{_HOMES[name]}"), name)
        globals()[name] = value  # found at once the next time
        return value
