"""Watch, record, plot and serve the memory of processes and of the files they map, counting each page once.

    import onecopy_monitor

    with onecopy_monitor.Sampler([os.getpid()], children=True) as sampler:
        snapshot = sampler.sample()
    print(snapshot.totals.real, "and not", snapshot.totals.sum_of_rss)

    with onecopy_monitor.watch() as watched:          # a thread samples ten times a second
        train()
    watched.assert_peak(anonymous="200 MiB")
    print(watched.table())

The sum of RSS counts a file once for each process that maps it. The sum of PSS, which divides each page by the number
of processes that map it, is correct, but requires page-table walks that hold a lock of the sampled process: each walk
takes 6 ms per GiB of mapped files and 22 ms per GiB of anonymous memory. `Sampler` reads counters (8 us per process),
queries the page cache once per big file, and occasionally walks page tables, within a budget.

**When not to use it.** To find the line of code that allocates memory, use a profiler (memray, heaptrack).

Importing this package does not load its modules. Each module is loaded when one of its names is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_monitor.recording import End, Machine, Recorder, Recording, read_recording
    from onecopy_monitor.samples import COLUMNS, FileSample, ProcessSample, Sample, sample_of
    from onecopy_monitor.sampling.sampler import Sampler
    from onecopy_monitor.series import Curve, FilePeak, Height, Holder, Peaks, ProcessSeries, Series
    from onecopy_monitor.sharing import MemoryOfWorker, Sharing, assert_shared
    from onecopy_monitor.snapshots import Cost, FileReading, ProcessReading, Snapshot, Totals, Walk, WatchCost
    from onecopy_monitor.text_tables import ProcessMemory, memory_of, memory_table
    from onecopy_monitor.watching import Watch, watch

_HOMES = {
    "recording": ("End", "Machine", "Recorder", "Recording", "read_recording"),
    "samples": ("COLUMNS", "FileSample", "ProcessSample", "Sample", "sample_of"),
    "sampling.sampler": ("Sampler",),
    "series": ("Curve", "FilePeak", "Height", "Holder", "Peaks", "ProcessSeries", "Series"),
    "sharing": ("MemoryOfWorker", "Sharing", "assert_shared"),
    "snapshots": ("Cost", "FileReading", "ProcessReading", "Snapshot", "Totals", "Walk", "WatchCost"),
    "text_tables": ("ProcessMemory", "memory_of", "memory_table"),
    "watching": ("Watch", "watch"),
}
"""The public names of each module."""

__all__ = [
    "COLUMNS",
    "Cost",
    "Curve",
    "End",
    "FilePeak",
    "FileReading",
    "FileSample",
    "Height",
    "Holder",
    "Machine",
    "MemoryOfWorker",
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
    "Sharing",
    "Snapshot",
    "Totals",
    "Walk",
    "Watch",
    "WatchCost",
    "assert_shared",
    "memory_of",
    "memory_table",
    "read_recording",
    "sample_of",
    "watch",
]

if not TYPE_CHECKING:  # a type checker would accept every attribute name
    __getattr__ = lazy.attributes(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
