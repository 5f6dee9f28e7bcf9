"""Measure the memory of processes and of the files that they map, each page counted once, at a bounded cost.

    with Sampler([os.getpid()], children=True) as sampler:
        snapshot = sampler.sample()
    print(snapshot.totals.real, "and not", snapshot.totals.sum_of_rss)

    with watch() as watched:                          # a thread samples ten times a second
        train()
    watched.assert_peak(anonymous="200 MiB")
    print(watched.table())

The sum of RSS counts a file once for each process that maps it. The sum of PSS, which divides each page by the number
of processes that map it, is correct, but requires page-table walks under a lock of the sampled process: 6 ms per GiB of
mapped files and 22 ms per GiB of anonymous memory, each time. `Sampler` reads counters (8 us per process), queries the
page cache once per big file, and walks page tables rarely, within a budget, for what the counters do not contain.

**When not to use it.** To find the line of a program that allocates, use a profiler (memray, heaptrack).

Importing this package loads none of its modules, because other modules of the library use `proc`, `cgroup` and
`pressure`, the parsers of files of the kernel, alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecopy.memory import cgroup as cgroup
    from onecopy.memory import pressure as pressure
    from onecopy.memory import proc as proc
    from onecopy.memory.causes import Cause
    from onecopy.memory.containers import Container, container
    from onecopy.memory.explaining import Explanation, Finding, explain
    from onecopy.memory.proc import Key
    from onecopy.memory.recording import End, Machine, Recorder, Recording, read_recording
    from onecopy.memory.samples import COLUMNS, FileSample, ProcessSample, Sample, sample_of
    from onecopy.memory.sampling.sampler import Sampler
    from onecopy.memory.series import Curve, FilePeak, Height, Holder, Peaks, ProcessSeries, Series
    from onecopy.memory.snapshots import Cost, FileReading, ProcessReading, Snapshot, Totals, Walk, WatchCost
    from onecopy.memory.table import ProcessMemory, memory_of, memory_table
    from onecopy.memory.watching import Watch, watch

_HOMES = {
    "COLUMNS": "samples",
    "Cause": "causes",
    "Container": "containers",
    "Cost": "snapshots",
    "Curve": "series",
    "End": "recording",
    "Explanation": "explaining",
    "FileSample": "samples",
    "FilePeak": "series",
    "FileReading": "snapshots",
    "Finding": "explaining",
    "Height": "series",
    "Holder": "series",
    "Key": "proc",
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
}

_READERS = ("cgroup", "pressure", "proc")

__all__ = [
    "COLUMNS",
    "Cause",
    "Container",
    "Cost",
    "Curve",
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
]


if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name in _READERS:
            return import_module(f"onecopy.memory.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'onecopy.memory' has no attribute {name!r}")
        value = getattr(import_module(f"onecopy.memory.{_HOMES[name]}"), name)
        globals()[name] = value  # the next access does not call this function
        return value
