"""The child that looks: again and again for some seconds, as a monitor of a program does.

Times are CPU time of the thread that looks, with that of programs it starts; the first look, and all that is done
once, is apart. It sleeps between looks, and longer where a way asks for it: caches are as cold as in real use. The
truth is the sum of PSS, taken right after a look, outside of all clocks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Any

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.monitor.ways import WAYS, Looker, sum_of_pss


@dataclass(frozen=True, slots=True)
class Errand:
    """What a watcher has to do.

    Attributes
    ----------
    way
        How it looks.
    pids
        At whom.
    seconds, interval
        How long, after the first look, and the seconds between two.
    truth_every
        After every how many looks the truth is taken; 0: never.
    screen
        The module that draws, for the way that needs one.
    """

    way: str
    pids: tuple[int, ...]
    seconds: float
    interval: float
    truth_every: int = 0
    screen: str = ""


def with_programs() -> int:
    """Return the CPU time of this thread and of the programs that it has waited for, in ns.

    >>> with_programs() > 0
    True
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return thread_time_ns() + round((used.ru_utime + used.ru_stime) * 1e9)


@dataclass(frozen=True, slots=True)
class Look:
    """One look: CPU and wall time in ns, and what it said in bytes."""

    cpu_ns: int
    wall_ns: int
    said: int


def timed(look: Callable[[], int], clock: Callable[[], int]) -> Look:
    """Look once.

    >>> timed(lambda: 7, thread_time_ns).said
    7
    """
    wall, cpu = perf_counter_ns(), clock()
    said = look()
    return Look(clock() - cpu, perf_counter_ns() - wall, said)


def watch(errand: Errand) -> dict[str, Any]:
    """Look for the seconds that were asked for; return what it took and what was said."""
    way = named(WAYS, errand.way)
    clock = with_programs if way.program else thread_time_ns
    begun: list[Looker] = []

    def begin() -> int:
        begun.append(way.begin(errand.pids, errand.screen))
        return begun[0].look()

    first = timed(begin, clock)
    looks: list[Look] = []
    pairs = [(first.said, sum_of_pss(errand.pids))] if errand.truth_every else []
    start = perf_counter_ns()
    while not looks or perf_counter_ns() - start < errand.seconds * 1e9:
        time.sleep(max(errand.interval, begun[0].pause()))
        looks.append(timed(begun[0].look, clock))
        if errand.truth_every and len(looks) % errand.truth_every == 0:
            pairs.append((looks[-1].said, sum_of_pss(errand.pids)))
    took = perf_counter_ns() - start
    return summary(first, looks, took) | (errors(pairs) if pairs else {})


def summary(first: Look, looks: list[Look], took: int) -> dict[str, float]:
    """Return numbers of looks that took so many ns all together, sleeping included.

    >>> summary(Look(9, 9, 1), [Look(1, 2, 1), Look(3, 4, 1)], 40)["share"]
    0.1
    """
    cpu, wall = [look.cpu_ns for look in looks], [look.wall_ns for look in looks]
    return {
        "looks": len(looks),
        "first_ns": first.cpu_ns,
        "first_wall_ns": first.wall_ns,
        "median_ns": statistics.median(cpu),
        "least_ns": min(cpu),
        "most_ns": max(cpu),
        "mean_ns": statistics.fmean(cpu),
        "wall_ns": statistics.median(wall),
        "most_wall_ns": max(wall),
        "share": sum(cpu) / took,
        "said": looks[-1].said,
    }


def errors(pairs: list[tuple[int, int]]) -> dict[str, float]:
    """Return what was said, the truth, and the error of all moments, with its sign, as shares of the truth.

    >>> errors([(100, 100), (150, 100), (90, 100)])["worst_error"]
    0.5
    """
    found = [(said - truth) / truth for said, truth in pairs]
    return {
        "told": pairs[-1][0],
        "truth": pairs[-1][1],
        "first_error": found[0],
        "error": statistics.median(found),
        "worst_error": max(found, key=abs),
    }


def play(errand: Errand) -> Steps:
    """Look for some seconds."""
    for module in filter(None, (*named(WAYS, errand.way).needs, errand.screen)):
        importlib.import_module(module)
    with contextlib.suppress(OSError, ValueError):  # one file stays open for each process
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.collect()
    gc.freeze()
    yield "ready", {}
    yield "looked", watch(errand)
