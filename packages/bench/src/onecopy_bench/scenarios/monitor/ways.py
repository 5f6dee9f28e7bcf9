"""Ways to tell what processes hold together, one entry each.

A way begins with the processes' numbers and gives a `Looker`, which is asked again and again. What it says is in bytes:
a sum of RSS and a sum of PSS are answers to the same question, and only one of them is right.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from onecopy.memory import proc
from onecopy_bench.engine.record import Absent
from onecopy_bench.engine.ways import installed
from onecopy_monitor import Sampler

COST, CROWD, ACCURACY, DISTURBANCE = QUESTIONS = ("cost", "crowd", "accuracy", "disturbance")
"""What is asked: what a look costs; of many processes; how right it is; what it does to the processes sampled."""

WIDTH = 110
"""Columns of the terminal that a screen is drawn for."""


@dataclass(frozen=True, slots=True)
class Looker:
    """Who looks.

    Attributes
    ----------
    look
        Looks once; returns the bytes that the processes hold together, by this way.
    pause
        Returns the seconds that it wants to wait before the next look.
    """

    look: Callable[[], int]
    pause: Callable[[], float] = float


@dataclass(frozen=True, slots=True)
class Way:
    """One way to look.

    Attributes
    ----------
    name, detail
        The row's name, and what it does in a few more words.
    begin
        Called with PIDs, and the name of the module that draws a screen.
    questions
        In the tables of which it is a row.
    ours
        Whether it is onecopy's.
    needs, program
        What it needs that may be missing: modules, a program. A program's CPU time counts too.
    once
        Whether it counts what is shared once, so that its answer is one to the question.
    """

    name: str
    detail: str
    begin: Callable[[Sequence[int], str], Looker]
    questions: tuple[str, ...]
    ours: bool = False
    needs: tuple[str, ...] = ()
    program: str = ""
    once: bool = True


def _sampler(pids: Sequence[int], _: str) -> Looker:
    sampler = Sampler(pids)
    return Looker(lambda: sampler.sample().totals.real, lambda: sampler.pause)


def _drawn(pids: Sequence[int], screen: str) -> Looker:
    """Look and draw as `onecopy top` does; the module of the screen is named by who may know it."""
    sampler, shown = Sampler(pids, huge=True, at_first=0.25), importlib.import_module(screen)
    view = shown.View(limit=20)

    def look() -> int:
        snapshot = sampler.sample()
        view.history.add(snapshot)
        shown.lines_of(snapshot, view, WIDTH, 1.0)
        return snapshot.totals.real

    return Looker(look, lambda: sampler.pause)


def sum_of_pss(pids: Iterable[int]) -> int:
    """Return what processes hold together, exactly: each page divided by those who map it.

    >>> import os
    >>> sum_of_pss([os.getpid()]) > 0
    True
    """
    return sum(proc.rollup(pid).pss for pid in pids)


def _pss(pids: Sequence[int], _: str) -> Looker:
    return Looker(lambda: sum_of_pss(pids))


def _rss(pids: Sequence[int], _: str) -> Looker:
    return Looker(lambda: sum(proc.status(pid).vm_rss for pid in pids))


def _uss(pids: Sequence[int], _: str) -> Looker:
    return Looker(lambda: proc.rollup(pids[0]).uss)


def _full_info(pids: Sequence[int], _: str) -> Looker:
    psutil: Any = importlib.import_module("psutil")
    processes = [psutil.Process(pid) for pid in pids]
    return Looker(lambda: sum(process.memory_full_info().pss for process in processes))


def _memory_maps(pids: Sequence[int], _: str) -> Looker:
    psutil: Any = importlib.import_module("psutil")
    processes = [psutil.Process(pid) for pid in pids]
    return Looker(lambda: sum(mapping.pss for process in processes for mapping in process.memory_maps()))


def _ps(pids: Sequence[int], _: str) -> Looker:
    command = ("ps", "-o", "rss=", "-p", ",".join(map(str, pids)))

    def look() -> int:
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return sum(map(int, told.split())) << 10

    return Looker(look)


def _nobody(_: Sequence[int], __: str) -> Looker:
    return Looker(lambda: 0)


OURS, DRAWN, PSS, RSS, USS, NOBODY = "onecopy", "onecopy, drawn", "sum of PSS", "sum of RSS", "USS of one", "nobody"

WAYS: tuple[Way, ...] = (
    Way(NOBODY, "wakes as often, and does not look", _nobody, (DISTURBANCE,)),
    Way(OURS, "onecopy_monitor.Sampler", _sampler, QUESTIONS, ours=True),
    Way(DRAWN, "the same, and the screen of `onecopy top`", _drawn, (CROWD,), ours=True),
    Way(PSS, "smaps_rollup, read by Python", _pss, (COST, CROWD, DISTURBANCE)),
    Way("psutil memory_full_info", "its PSS, added up", _full_info, (COST, CROWD), needs=("psutil",)),
    Way("psutil memory_maps", "PSS of each mapping", _memory_maps, (COST, CROWD, DISTURBANCE), needs=("psutil",)),
    Way("ps", "a process; a sum of RSS", _ps, (COST, CROWD), program="ps", once=False),
    Way(RSS, "status, read by Python", _rss, (ACCURACY,), once=False),
    Way(USS, "smaps_rollup of the first: what is its own", _uss, (ACCURACY,), once=False),
)
"""In the order of the tables."""

NAMES = tuple(way.name for way in WAYS)


def available(names: Iterable[str], screen: str) -> tuple[list[Way], list[Absent]]:
    """Return the ways of those names that this machine has, and the others with the reason.

    >>> [way.name for way in available(["onecopy"], "")[0]]
    ['onecopy']
    """
    found, absent = installed(WAYS, names)
    reasons = {
        way: f"there is no program {way.program!r}"
        if way.program and shutil.which(way.program) is None
        else "there is no screen: it is a row of the command only"
        for way in found
        if (way.program and shutil.which(way.program) is None) or (way.name == DRAWN and not screen)
    }
    return [way for way in found if way not in reasons], [*absent, *(Absent(w.name, r) for w, r in reasons.items())]
