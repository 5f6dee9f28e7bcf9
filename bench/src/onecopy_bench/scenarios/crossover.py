"""The scenario `crossover`: from which share of a file, and how many passes, on which way of opening it wins.

Each sample opens the file cold in one of `passes.mechanisms.METHODS`, goes over a share of it, and again, and says when
each pass was done; so the cells of 1, 2, 8 and 32 passes are prefixes of one run. Places:

* "disk": the file where it is.
* "slow": a copy of its beginning on a loop device whose reads a control group throttles, as a network volume is.
* "tight": the file where it is, in a control group whose memory limit is half of the file.

A place that this machine cannot provide is left out, and the record says why.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onecopy.memory import cgroup
from onecopy_bench.ceilings import CEILINGS, CONTROLS
from onecopy_bench.passes import cells, disks, limits
from onecopy_bench.passes.mechanisms import METHODS
from onecopy_bench.passes.series import Options, Place, Series
from onecopy_bench.scenarios.open import layout_of
from onecopy_bench.scenarios.warm import here

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from onecopy_bench.runner import Progress

NAME = "crossover"

SHARES = (0.01, 0.05, 0.25, 0.5, 1.0)
PASSES = (1, 2, 8, 32)
DEFAULTS = Options(passes=PASSES[-1], shares=SHARES, orders=("shuffled", "file"), limit_s=3.0)

Where = Literal["disk", "slow", "tight"]
PLACES: tuple[Where, ...] = ("disk", "slow", "tight")

NAMES = tuple(method.name for method in METHODS)

DEVICE = tuple(c for c in CEILINGS if c.name == "o_direct-reused-4")
"""What a disk delivers at all: with it a throttle is proven."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """A slower disk: bytes and requests per second, read-ahead, and the most that is copied to it."""

    bytes_per_s: int = 250_000_000
    requests_per_s: int = 3000
    read_ahead: int = 128 << 10
    size: int = 256 << 20


def run(
    path: str | os.PathLike[str],
    options: Options = DEFAULTS,
    *,
    places: Sequence[Where] = PLACES,
    methods: Sequence[str] = NAMES,
    throttle: Throttle | None = None,
    watch: Callable[[Progress], None] = lambda _: None,
) -> Series:
    """Measure every method in every cell and return the record.

    Parameters
    ----------
    path
        Any file that is not empty.
    options
        Rounds, shares, orders, passes, limits.
    places, methods
        What is measured, by name; all if not given.
    throttle
        What "slow" is; None: as a network volume, see `Throttle`.
    watch
        Called before each sample and at the end.

    Raises
    ------
    OSError, ValueError
        If the file cannot be read, or is empty.
    Unavailable
        If not one of the places can be provided.
    """
    source = Path(path).absolute()
    layout_of(source)
    missing: dict[str, str] = {}
    spots = []
    with contextlib.ExitStack() as stack:
        for name in places:
            try:
                spots.append(_spot(name, source, throttle or Throttle(), stack))
            except limits.Unavailable as reason:
                missing[name] = str(reason)
        if not spots:
            raise limits.Unavailable("; ".join(f"{name}: {reason}" for name, reason in missing.items()))
        found = [cell for spot in spots for cell in _cells(spot, options, methods, first=spot is spots[0])]
        return cells.run(NAME, source, found, options, missing=missing, watch=watch)


def _cells(spot: cells.Spot, options: Options, methods: Sequence[str], *, first: bool) -> list[cells.Cell]:
    found = []
    for work in cells.works(spot, options.shares, options.orders, options.seed):
        wanted = [entry for entry in METHODS if entry.name in methods]
        found += [cells.Cell(spot, work, entry) for entry in wanted if entry.name != "part" or work.share < 1]
    whole = cells.works(spot, (1.0,), ("file",), options.seed)[0]
    device = DEVICE if spot.place.memory_bytes is None else ()
    return found + [cells.Cell(spot, whole, entry) for entry in (*device, *(CONTROLS if first else ()))]


def _spot(name: Where, source: Path, throttle: Throttle, stack: contextlib.ExitStack) -> cells.Spot:
    if name == "slow":
        return _slow(source, throttle, stack)
    spot = here(source)
    if name == "disk":
        return spot
    half = spot.place.size // 2
    group = stack.enter_context(limits.group(limits.memory(half)))
    detail = f"in a control group of {half / 1e6:.1f} MB"
    return cells.Spot(replace(spot.place, name=name, detail=detail, memory_bytes=half), source, (group,))


def _slow(source: Path, throttle: Throttle, stack: contextlib.ExitStack) -> cells.Spot:
    size = min(source.stat().st_size, throttle.size)
    disk = stack.enter_context(disks.loop_disk(source.parent, size, throttle.read_ahead))
    copied = disk / source.name
    disks.copy(source, copied, size)
    device = copied.stat().st_dev
    limit = limits.reading(device, throttle.bytes_per_s, throttle.requests_per_s)
    group = stack.enter_context(limits.group(limit))
    detail = f"a loop device, at most {throttle.bytes_per_s / 1e6:.0f} MB/s and {throttle.requests_per_s} requests/s"
    ahead = cgroup.read_ahead(device)
    return cells.Spot(Place("slow", detail, size, ahead, throttle.bytes_per_s), copied, (group,))
