"""Every public function of onecopy in small actions, errors included: run them many times, and count what is left.

    python -m tests.support.api_actions --times 50             # each action 50 times: for sanitizers
    python -m tests.support.api_actions --measure out.json     # what each leaves behind, for test_leak_loop.py

Actions are in api_arrays.py, api_records.py and api_memory.py; api_table.py says what an action is.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support import api_arrays, api_memory, api_records
from tests.support.api_table import ACTIONS, Action, World, use_folder
from tests.support.children import children_of

from onecopy.memory.proc import rollup
from onecopy.store.fork import free_unused_memory

__all__ = ["ACTIONS", "GROUPS", "Action", "World", "covered", "leaks", "main", "measured", "use_folder"]

GROUPS = {
    module.__name__.rpartition("api_")[2]: [one for one in ACTIONS.values() if one.run.__module__ == module.__name__]
    for module in (api_arrays, api_records, api_memory)
}
"""The actions by their modules."""
WARM_UP, LOOPS = 20, 8
PATIENCE = 3.0
"""Seconds that a thread or child may take to end on request."""


def covered() -> set[str]:
    """Return the public names that actions use: "open", "records.save", ..."""
    return set().union(*(one.covers for one in ACTIONS.values()))


def held(folder: Path) -> dict[str, int]:
    """Count what this process holds now, after a collection; memory is anonymous pages, in bytes."""
    free_unused_memory()
    with open("/proc/self/maps") as file:  # noqa: PTH123
        mappings = sum(1 for _ in file)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "mappings": mappings,
        "tasks": len(os.listdir("/proc/self/task")),  # noqa: PTH208
        "threads": threading.active_count(),
        "children": len(children_of(os.getpid())),
        "files": sum(len(names) for top in (folder, Path("/dev/shm")) for _, _, names in os.walk(top)),
        "objects": sys.getallocatedblocks(),
        "memory": rollup(os.getpid()).anonymous,
    }


def settled(folder: Path, before: dict[str, int]) -> dict[str, int]:
    """Return what is held once threads and children that end have ended, or after `PATIENCE`."""
    end = time.monotonic() + PATIENCE
    while True:
        now = held(folder)
        if all(now[kind] <= before[kind] for kind in ("tasks", "threads", "children")) or time.monotonic() > end:
            return now
        time.sleep(0.01)


def measured(run: Callable[[World], object], times: int, world: World) -> dict[str, int]:
    """Run an action in loops until one leaves no more than is allowed; return the least growth of each kind in a loop.

    A leak grows in all loops; caches of libraries (tifffile, imagecodecs, re) still fill in the first few.
    """
    for _ in range(min(WARM_UP, times)):
        run(world)
    before = settled(world.folder, dict.fromkeys(held(world.folder), 10**18))
    least = dict.fromkeys(before, sys.maxsize)
    for _ in range(LOOPS):
        for _ in range(times):
            run(world)
        after = settled(world.folder, before)
        least = {kind: min(least[kind], after[kind] - before[kind]) for kind in after}
        if not leaks(least, times):
            break
        before = after
    return least


def limits(times: int) -> dict[str, int]:
    """Return how much of each kind may grow in a loop; 1 KiB a call is above the limit of memory from 22 times on."""
    none = dict.fromkeys(("descriptors", "tasks", "threads", "children", "files"), 0)
    return {**none, "mappings": 2, "objects": 150, "memory": (16 << 10) + 256 * times}


def leaks(grown: dict[str, int], times: int) -> dict[str, int]:
    """Return what grew beyond its limit."""
    allowed = limits(times)
    return {kind: amount for kind, amount in grown.items() if amount > allowed[kind]}


def main(arguments: list[str] | None = None) -> int:
    """Run actions in a temporary folder; print their names, or write what each left behind as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="actions; none: all")
    parser.add_argument("--group", choices=GROUPS, help="the actions of one module only")
    parser.add_argument("--times", type=int, help="times for each action; with --measure its own number")
    parser.add_argument("--measure", type=Path, metavar="FILE", help="write growth by action and kind as JSON")
    options = parser.parse_args(arguments)
    found = {}
    with tempfile.TemporaryDirectory(prefix="onecopy-actions-") as folder:
        world = use_folder(Path(folder))
        groups = GROUPS.values() if options.group is None else [GROUPS[options.group]]
        for one in (one for some in groups for one in some if one.name in (options.names or ACTIONS)):
            if one.lacking:
                print(f"{one.name}: skipped, no {', '.join(one.lacking)}", flush=True)
                continue
            begun = time.monotonic()
            if options.measure:
                found[one.name] = measured(one.run, options.times or one.times, world)
            else:
                for _ in range(options.times or 1):
                    one.run(world)
            print(f"{one.name}: {time.monotonic() - begun:.2f} s", flush=True)
    if options.measure:
        options.measure.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
