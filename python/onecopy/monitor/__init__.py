"""Whose memory is it: processes and the files that they map, everything counted once, at a bounded price.

    with Sampler([os.getpid()], children=True) as sampler:
        snapshot = sampler.look()
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
"""

from onecopy.monitor.containers import Container, container
from onecopy.monitor.diagnosis import Cause, Diagnosis, why
from onecopy.monitor.looking.sampler import Sampler
from onecopy.monitor.looks import COLUMNS, FileLook, Look, ProcessLook, look_of
from onecopy.monitor.readings import Cost, FileReading, Key, ProcessReading, Snapshot, Totals, Walk, WatchCost
from onecopy.monitor.recording import End, Machine, Recorder, Recording, read_recording
from onecopy.monitor.series import Curve, FilePeak, Height, Holder, Peaks, ProcessSeries, Series
from onecopy.monitor.table import ProcessMemory, memory_of, memory_table
from onecopy.monitor.watching import Watch, watch

__all__ = [
    "COLUMNS",
    "Cause",
    "Container",
    "Cost",
    "Curve",
    "Diagnosis",
    "End",
    "FileLook",
    "FilePeak",
    "FileReading",
    "Height",
    "Holder",
    "Key",
    "Look",
    "Machine",
    "Peaks",
    "ProcessLook",
    "ProcessMemory",
    "ProcessReading",
    "ProcessSeries",
    "Recorder",
    "Recording",
    "Sampler",
    "Series",
    "Snapshot",
    "Totals",
    "Walk",
    "Watch",
    "WatchCost",
    "container",
    "look_of",
    "memory_of",
    "memory_table",
    "read_recording",
    "watch",
    "why",
]
