"""Why a process holds what it holds, in sentences: `why`.

    print(oc.why(4711))

    process 4711 (python train.py): RSS says 1.09 GB, 67.5 MB of it are its own
    - 1.00 GB of this is clean cache of big.bin; the kernel can drop it without writing anything
    ...

Where `onecopy.explain` tells which weights are private, this tells what the numbers of other tools mean here, and what
is wrong, if anything is: `Diagnosis.bad` is for scripts.

**When not to use it.** In loops: it walks the page tables of the process (see `onecopy.memory.proc`); `Sampler` is
for that.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from onecopy.memory import proc
from onecopy.memory.containers import container
from onecopy.memory.labels import label_of
from onecopy.memory.sampling.mapped import kind_of
from onecopy.memory.sampling.processes import children_of
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy.memory.snapshots import Key

__all__ = ["Cause", "Code", "Diagnosis", "why"]

Code: TypeAlias = Literal[
    "cache",
    "dirty",
    "shmem",
    "written",
    "heap",
    "kept",
    "forked",
    "peak",
    "page-tables",
    "swap",
    "growing",
    "refaults",
    "container",
]

_WORTH_IT = 1 << 20
"""Bytes that are worth a sentence, and a hundredth of what the process has."""
_COPIED = 16 << 20
"""Bytes of an inheritance that were copied, before that is called wrong."""
_GROWS = 1 << 20
"""Bytes a second of growth that are called wrong, and of pages that are read again."""
_MOST = 6
"""Files that get a sentence."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One sentence about the memory of a process."""

    code: Code
    """What it is about: for scripts."""
    text: str
    bytes: int
    """It is about so many; a second, where it is about growth."""
    bad: bool = False
    """Whether something should be done."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `why` found. Printed, it is a list of sentences."""

    pid: int
    name: str
    rss: int
    own: int
    """Bytes that this process alone holds, and that go when it ends: anonymous memory that it shares with nobody."""
    causes: tuple[Cause, ...]
    """What is wrong first, then the largest."""

    @property
    def bad(self) -> tuple[Cause, ...]:
        """What is wrong: empty, and all is well."""
        return tuple(one for one in self.causes if one.bad)

    def __str__(self) -> str:
        lines = [f"process {self.pid} ({self.name}): RSS says {size(self.rss)}, {size(self.own)} of it are its own"]
        return "\n".join(lines + [f"{'!' if one.bad else '-'} {one.text}" for one in self.causes])


def why(pid: int | None = None, *, seconds: float = 0.0) -> Diagnosis:
    """Explain the memory of a process in sentences, and what is wrong with it.

    Parameters
    ----------
    pid
        The process; None: this one, which knows more of itself: what its allocator keeps.
    seconds
        Sample a second time after so long, and tell what grew, and what was read again.

    Raises
    ------
    ProcessLookupError, PermissionError
        There is no such process, or it is somebody else's.

    Examples
    --------
    >>> import onecopy as oc
    >>> oc.why().rss > oc.why().own > 0
    True
    """
    number = os.getpid() if pid is None else pid
    before = _Moment(number)
    time.sleep(seconds)
    after = _Moment(number) if seconds else before
    regions, memory = proc.smaps(number), proc.rollup(number)  # of one moment: one is taken off the other
    shared = _shared(regions)
    causes = [
        *_of_files(regions, memory),
        *_of_heap(memory, shared, own=number == os.getpid()),
        *_of_fork(number, after.status.ppid, regions, memory),
        *_beside(after.status, memory),
        *_over_time(before, after),
        *_of_container(number),
    ]
    causes.sort(key=lambda one: (not one.bad, -one.bytes))
    stat = proc.stat(number)
    return Diagnosis(number, label_of(number, stat.comm), memory.rss, memory.anonymous - shared, tuple(causes))


class _Moment:
    """What changes."""

    def __init__(self, pid: int) -> None:
        self.at = time.monotonic()
        self.status = proc.status(pid)
        found = container(pid)
        self.refaults = None if found is None else found.refaults


def _shared(regions: list[proc.MappedRegion]) -> int:
    """Add up anonymous memory that others have mapped as well."""
    return sum(_shared_of(one.memory) for one in regions if one.memory.anonymous)


def _shared_of(memory: proc.Rollup) -> int:
    return min(memory.shared_clean + memory.shared_dirty, memory.anonymous)


# --- files ------------------------------------------------------------------------------------------------------------


def _of_files(regions: list[proc.MappedRegion], memory: proc.Rollup) -> Iterator[Cause]:
    files: defaultdict[Key, list[proc.MappedRegion]] = defaultdict(list)
    for region in regions:
        if region.inode:
            files[region.dev, region.inode].append(region)
    worth = max(_WORTH_IT, memory.rss // 100)
    found = sorted(files.items(), key=lambda pair: -sum(one.memory.rss for one in pair[1]))
    for key, parts in [pair for pair in found if sum(one.memory.rss for one in pair[1]) >= worth][:_MOST]:
        yield from _of_file(key, parts)
    for parts in files.values():
        copied = sum(one.memory.anonymous for one in parts)
        if copied >= worth and not any("x" in one.perms for one in parts):
            yield Cause(
                "written",
                f"{size(copied)} of {parts[0].path} were written to in a private mapping, and are copies of this "
                "process's own: look for writes in place to what is mapped",
                copied,
                bad=True,
            )


def _of_file(key: Key, parts: list[proc.MappedRegion]) -> Iterator[Cause]:
    path, memories = parts[0].path, [one.memory for one in parts]
    inside = sum(one.rss - one.anonymous for one in memories)
    dirty = min(sum(one.shared_dirty + one.private_dirty - one.anonymous for one in memories), inside)
    if kind_of(key, path) == "shmem":
        if inside >= _WORTH_IT:
            yield Cause(
                "shmem",
                f"{size(inside)} of this is {path}: memory, not a disk, and it stays until that is gone",
                inside,
            )
        return
    alone = sum(one.private_clean for one in memories) >= inside // 2
    mappers = max(round(inside / max(sum(one.pss - (one.pss_anon or 0) for one in memories), 1)), 1)
    who = (
        "Only this process maps it now, so USS calls it private; a second one would share it"
        if alone
        else f"It is there once for about {mappers} processes, and RSS adds it up for each"
    )
    clean = inside - max(dirty, 0)
    if clean >= _WORTH_IT:
        text = f"{size(clean)} of this is clean cache of {path}; the kernel can drop it without writing anything. {who}"
        yield Cause("cache", text, clean)
    if dirty >= _WORTH_IT:
        yield Cause(
            "dirty", f"{size(dirty)} of {path} are changed, and must be written before they can be dropped", dirty
        )


# --- memory of no file ------------------------------------------------------------------------------------------------


def _of_heap(memory: proc.Rollup, shared: int, *, own: bool) -> Iterator[Cause]:
    held = memory.anonymous - shared
    if held >= _WORTH_IT:
        text = f"{size(held)} are memory of no file that is this process's own: objects, buffers, stacks, arenas"
        huge = min(memory.anon_huge_pages, held)
        yield Cause("heap", text + (f", {size(huge)} of them in huge pages" if huge >= _WORTH_IT else ""), held)
    lazy = memory.lazy_free or 0
    if lazy >= _WORTH_IT:
        text = f"{size(lazy)} are freed, but kept until the kernel needs them (MADV_FREE): RSS counts them still"
        yield Cause("kept", text, lazy)
    kept = _kept_by_malloc() if own else None
    if kept is not None and kept >= _WORTH_IT:
        yield Cause(
            "kept",
            f"{size(kept)} are freed, but kept by the allocator (glibc's malloc_trim(0) gives back what it can)",
            kept,
        )
    if kept is None and held >= 64 * _WORTH_IT:
        where = "this C library does not tell" if own else "only the process can tell: oc.why() in it"
        yield Cause("kept", f"how much of that is freed, but kept by the allocator, {where}", 0)


class _Mallinfo(ctypes.Structure):
    """glibc's mallinfo2, from 2.33."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def _kept_by_malloc() -> int | None:
    """Return the bytes that malloc of this process holds free; None where it does not report them."""
    with suppress(AttributeError, OSError):
        ask = ctypes.CDLL(None).mallinfo2
        ask.restype = _Mallinfo
        return int(ask().fordblks)
    return None


def _of_fork(pid: int, parent: int, regions: list[proc.MappedRegion], memory: proc.Rollup) -> Iterator[Cause]:
    shared = _shared(regions)
    if shared < _WORTH_IT:
        return
    theirs: dict[int, proc.MappedRegion] = {}
    with suppress(OSError):
        theirs = {one.start: one for one in proc.smaps(parent) if one.memory.anonymous}
    alike = [(one, theirs[one.start]) for one in regions if one.start in theirs and _shared_of(one.memory)]
    inherited = sum(_shared_of(one.memory) for one, _ in alike)
    if inherited < shared // 2:  # it began anew since its parent forked it
        children = len(children_of(pid))
        with_whom = f"its children ({children})" if children else "others of its tree"
        yield Cause(
            "forked", f"{size(shared)} are shared with {with_whom} since a fork; who writes to a page copies it", shared
        )
        return
    copied = sum(max(min(one.memory.anonymous, its.memory.anonymous) - _shared_of(one.memory), 0) for one, its in alike)
    inherited += copied
    yield Cause(
        "forked",
        f"copy-on-read: it has privatised {size(copied)} of {size(inherited)} that it inherited from process {parent}; "
        f"reading Python objects writes their counters, so it will stop near {size(memory.anonymous)} of its own. "
        "oc.share() keeps such data in one copy",
        copied,
        bad=copied >= max(_COPIED, inherited // 20),
    )


# --- the rest ---------------------------------------------------------------------------------------------------------


def _beside(status: proc.Status, memory: proc.Rollup) -> Iterator[Cause]:
    if memory.swap >= _WORTH_IT:
        yield Cause(
            "swap", f"{size(memory.swap)} are swapped out: touching them waits for a disk", memory.swap, bad=True
        )
    tables = status.vm_pte or 0
    if tables >= max(_WORTH_IT, memory.rss // 200):
        yield Cause(
            "page-tables",
            f"{size(tables)} of page tables besides: 8 bytes for each page of 4 KiB that is mapped in",
            tables,
        )
    above = (status.vm_hwm or 0) - memory.rss
    if above >= max(_WORTH_IT, memory.rss // 10):
        yield Cause(
            "peak", f"at its peak RSS was {size(status.vm_hwm or 0)} (VmHWM): {size(above)} more than now", above
        )


def _over_time(before: _Moment, after: _Moment) -> Iterator[Cause]:
    passed = after.at - before.at
    if passed <= 0:
        return
    grown = int(((after.status.rss_anon or 0) - (before.status.rss_anon or 0)) / passed)
    if grown >= _GROWS // 10:
        yield Cause("growing", f"memory of no file grew by {size(grown)}/s while I looked", grown, bad=grown >= _GROWS)
    if before.refaults is not None and after.refaults is not None:
        again = int((after.refaults - before.refaults) / passed)
        if again >= _GROWS // 10:
            text = f"{size(again)}/s are read again that had been dropped, in its control group: memory is short"
            yield Cause("refaults", text, again, bad=again >= _GROWS)


def _of_container(pid: int) -> Iterator[Cause]:
    found = container(pid)
    if found is None or found.limit is None or found.left is None:
        return
    text = (
        f"its control group has {size(found.left)} left of {size(found.limit)} before the OOM killer comes; "
        f"{size(found.file_clean)} of clean cache in it are no reason to worry"
    )
    yield Cause("container", text, found.left, bad=found.left < found.limit // 10)
