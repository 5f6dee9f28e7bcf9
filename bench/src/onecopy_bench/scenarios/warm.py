"""The scenario `warm`: each mechanism of bringing a mapped file into memory, alone, from a cold cache.

The rows of `passes.mechanisms.MECHANISMS`, and O_DIRECT and the first-touch control beside them, each in a fresh
process; then every page is touched, twice. The file is measured where it is, and on a loop device for each read-ahead
asked for, all places in the same rounds.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.memory import cgroup
from onecopy_bench.ceilings import CEILINGS, CONTROLS
from onecopy_bench.passes import cells, disks
from onecopy_bench.passes.limits import Unavailable
from onecopy_bench.passes.mechanisms import MECHANISMS
from onecopy_bench.passes.series import Options, Place, Series
from onecopy_bench.scenarios.open import layout_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from onecopy_bench.runner import Progress

NAME = "warm"

BESIDE = tuple(c for c in CEILINGS if c.name in {"o_direct-fresh-1", "o_direct-fresh-8", "o_direct-reused-8"})
"""The ceilings that are taken in each round; `bench open` has them all."""


def run(
    path: str | os.PathLike[str],
    options: Options,
    read_aheads: Sequence[int | None] = (None,),
    watch: Callable[[Progress], None] = lambda _: None,
) -> Series:
    """Measure every mechanism and return the record.

    Parameters
    ----------
    path
        Any file that is not empty.
    options
        Rounds, orders, limits.
    read_aheads
        Bytes, each on a loop device beside the file; None is the file where it is.

    Raises
    ------
    Unavailable
        If a loop device cannot be made: the message says why.
    OSError, ValueError
        If the file cannot be read, or is empty.
    """
    source = Path(path).absolute()
    layout_of(source)
    with contextlib.ExitStack() as stack:
        spots = [spot_of(source, ahead, stack) for ahead in read_aheads]
        found = []
        for spot in spots:
            for work in cells.works(spot, options.shares, options.orders, options.seed):
                found += [cells.Cell(spot, work, entry) for entry in MECHANISMS]
            whole = cells.works(spot, (1.0,), ("file",), options.seed)[0]
            found += [cells.Cell(spot, whole, entry) for entry in (*BESIDE, *(CONTROLS if spot is spots[0] else ()))]
        return cells.run(NAME, source, found, options, missing={}, watch=watch)


def spot_of(source: Path, read_ahead: int | None, stack: contextlib.ExitStack) -> cells.Spot:
    """Return the place of a file, or of a copy on a loop device that reads so far ahead; raises Unavailable.

    The device goes with the stack; None is the file where it is.
    """
    size = source.stat().st_size
    if read_ahead is None:
        return here(source)
    disk = stack.enter_context(disks.loop_disk(source.parent, size, read_ahead))
    copied = disk / source.name
    disks.copy(source, copied, size)
    told = cgroup.read_ahead(copied.stat().st_dev)
    if told != read_ahead:
        raise Unavailable(f"a read-ahead of {read_ahead} bytes was asked for, the kernel made it {told}")
    return cells.Spot(Place(f"{read_ahead >> 10}K", "a loop device", size, told), copied)


def here(source: Path) -> cells.Spot:
    """Return the place of the file itself."""
    status = source.stat()
    return cells.Spot(Place("disk", "where the file is", status.st_size, cgroup.read_ahead(status.st_dev)), source)
