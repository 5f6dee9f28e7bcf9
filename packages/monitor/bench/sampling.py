"""What a sample of memory costs, and how far it is from the sum of PSS.

    python packages/monitor/bench/sampling.py [--processes 8] [--size-mb 256] [--forked] [--seconds 5] [--interval 0.1]

Fresh processes hold a mapped file, or anonymous memory that was shared by forking; this process samples them in each
way, at an interval, and sleeps in between, so that caches are as cold as they are in use. Times are CPU time of
this thread, with that of programs it starts. The truth is the sum of PSS, read after each sample.
"""

from __future__ import annotations

import argparse
import importlib.util
import mmap
import os
import resource
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from onecopy.memory import proc
from onecopy_monitor import Sampler

Look = Callable[[], int]


def sum_of_pss(pids: Sequence[int]) -> int:
    """Return what processes hold together: each page divided by those who map it."""
    return sum(proc.rollup(pid).pss for pid in pids)


def ways_of(pids: Sequence[int]) -> dict[str, Look]:
    """Return the ways to sample processes that are installed; a sum of RSS counts what is shared several times."""
    sampler = Sampler(pids)
    ways: dict[str, Look] = {
        "onecopy_monitor.Sampler": lambda: sampler.sample().totals.real,
        "sum of PSS": lambda: sum_of_pss(pids),
        "sum of RSS": lambda: sum(proc.status(pid).vm_rss or 0 for pid in pids),
        "ps": lambda: _by_ps(pids),
    }
    if importlib.util.find_spec("psutil") is not None:
        psutil: Any = importlib.import_module("psutil")
        processes = [psutil.Process(pid) for pid in pids]
        ways["psutil memory_full_info"] = lambda: sum(each.memory_full_info().pss for each in processes)
    return ways


def _by_ps(pids: Sequence[int]) -> int:
    command = ("ps", "-o", "rss=", "-p", ",".join(map(str, pids)))
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sum(map(int, output.split())) << 10


def holders(count: int, size: int, *, forked: bool) -> list[int]:
    """Start processes that hold memory of a size until they are killed; they end with this one."""
    with tempfile.TemporaryFile() as file:
        if forked:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory[:: mmap.PAGESIZE] = b"1" * len(range(0, size, mmap.PAGESIZE))
        else:
            file.truncate(size)
            memory = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
        pids, parent = [], os.getpid()
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                memory[:: mmap.PAGESIZE]
                while os.getppid() == parent:
                    time.sleep(0.2)
                os._exit(0)
            pids.append(pid)
        if forked:
            memory.close()
    time.sleep(1.0)
    return pids


def cpu_ns() -> int:
    """Return the CPU time of this thread and of programs that it has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time_ns() + round((used.ru_utime + used.ru_stime) * 1e9)


def measured(look: Look, pids: Sequence[int], seconds: float, interval: float) -> tuple[float, float]:
    """Return the median ms of CPU time of a sample, and its largest error as a share of the truth."""
    look()
    times, errors, end = [], [], time.monotonic() + seconds
    while time.monotonic() < end or not times:
        time.sleep(interval)
        start = cpu_ns()
        found = look()
        times.append((cpu_ns() - start) / 1e6)
        truth = sum_of_pss(pids)
        errors.append(abs(found - truth) / truth)
    return statistics.median(times), max(errors)


def main() -> None:
    """Print a table of all ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--size-mb", type=int, default=256)
    parser.add_argument("--forked", action="store_true", help="anonymous memory that was shared by forking")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each way")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between two samples")
    given = parser.parse_args()
    pids = holders(given.processes, given.size_mb * 1_000_000, forked=given.forked)
    try:
        print(f"{'':26} {'CPU ms a sample':>16} {'off by at most':>16}")
        for name, look in ways_of(pids).items():
            milliseconds, error = measured(look, pids, given.seconds, given.interval)
            print(f"{name:26} {milliseconds:16.3f} {error:15.1%}")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
