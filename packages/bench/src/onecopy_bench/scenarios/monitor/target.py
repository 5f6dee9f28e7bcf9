"""The child that is sampled: it maps, forks, copies or faults as its errand says, and holds still in between.

Anonymous memory is in 4 KiB pages, as what a Python heap is made of. What is forked ends with who has forked it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import select
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

from onecopy_bench.engine.child import Steps, die_with

BARE, MAPPINGS, MAPPED, FORKED = "bare", "mappings", "mapped", "forked"
MEMORY, CROWD, FAULTS = "memory", "crowd", "faults"
"""Kinds: nothing; many small mappings; a file; a forked tree; the same with a memory file; many that idle; faults."""

PAGE = mmap.PAGESIZE
PIECE = 1 << 20
"""Bytes that are touched between two readings of the clock."""
WARM_UP_S = 1.0
LOOK_S = 0.2
"""Between two checks that what was forked is alive."""
STEPS = 20
"""In which a third is copied."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What a target has to be.

    Attributes
    ----------
    kind
        One of those above.
    path
        The file to map; empty: none.
    size
        Bytes of memory that it shares with those it forks; that are mapped anew, touched, and given back.
    count
        Processes of a tree or a crowd, itself included; mappings, where it has many.
    seconds
        How long it copies, or faults.
    """

    kind: str
    path: str = ""
    size: int = 0
    count: int = 1
    seconds: float = 0.0


def mapped_file(path: str) -> mmap.mmap:
    """Map a file and bring all of its pages into memory and into this process."""
    with Path(path).open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    memory[::PAGE]
    return memory


def anonymous(size: int) -> mmap.mmap:
    """Return private memory that has not been touched, in pages of 4 KiB.

    >>> len(anonymous(8192))
    8192
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


def memory_file(size: int) -> mmap.mmap:
    """Return shared memory of a memory file, or of an unnamed one in /dev/shm where the kernel has none.

    >>> len(memory_file(8192))
    8192
    """
    try:
        fd = os.memfd_create("onecopy-bench")
    except OSError:
        import tempfile  # brings twenty mappings

        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            fd = os.dup(file.fileno())
    try:
        os.truncate(fd, size)
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


def write(memory: mmap.mmap, begin: int, end: int) -> None:
    """Write a byte to each page of a range, at the speed of C.

    >>> memory = anonymous(3 * PAGE)
    >>> write(memory, 0, 3 * PAGE)
    >>> memory[2 * PAGE]
    1
    """
    memory[begin:end:PAGE] = b"\1" * len(range(begin, end, PAGE))


def small_mappings(path: str, count: int) -> mmap.mmap:
    """Map the beginning of a file so that this process has so many mappings: every other page may not be written."""
    here = len(Path("/proc/self/maps").read_text().splitlines())
    pages = max(count - here, 2)
    with Path(path).open("rb") as file:
        memory = mmap.mmap(file.fileno(), pages * PAGE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in range(1, pages, 2):
        if libc.mprotect(ctypes.c_void_p(start + page * PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    memory[::PAGE]
    return memory


class Family:
    """Processes that are forked here, and do one thing once, on a word; they end with this one.

    Parameters
    ----------
    count
        How many to fork.
    first, duty
        What each does at its beginning, and on the word.

    Raises
    ------
    OSError
        There can be no more processes; ChildProcessError: one has died.
    """

    def __init__(self, count: int, first: Callable[[], object], duty: Callable[[], None]) -> None:
        self.pids: list[int] = []
        here, self._go = os.pipe()
        never, self._kept = os.pipe()
        self._done, done = os.pipe()
        parent = os.getpid()
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException):
                    os.close(self._go)
                    os.close(self._kept)
                    die_with(parent)
                    first()
                    os.write(done, b".")
                    if os.read(here, 1):
                        duty()
                        os.write(done, b".")
                    os.read(never, 1)  # until who has forked it ends
                os._exit(0)
            self.pids.append(pid)
        for fd in (here, never, done):
            os.close(fd)
        self._wait()

    def tell(self) -> None:
        """Let all do their duty, and wait until they have; ChildProcessError: one has died."""
        os.write(self._go, b"." * len(self.pids))
        self._wait()

    def _wait(self) -> None:
        for _ in self.pids:
            while not select.select([self._done], [], [], LOOK_S)[0]:
                if os.waitpid(-1, os.WNOHANG)[0]:
                    raise ChildProcessError("a forked process died")
            os.read(self._done, 1)


def copy_third(memory: mmap.mmap, seconds: float) -> None:
    """Write to a third of memory, step by step over some seconds: pages that are shared become this process's own."""
    third = len(memory) // 3
    for step in range(STEPS):
        write(memory, third * step // STEPS, third * (step + 1) // STEPS)
        time.sleep(seconds / STEPS)


def fault(size: int, seconds: float) -> dict[str, float]:
    """Touch fresh memory of a size, page by page, again and again for some seconds after a warm-up.

    >>> fault(PIECE, 0.001)["faults_per_s"] > 0
    True
    """
    _faults_for(size, min(WARM_UP_S, seconds))
    pieces, took = _faults_for(size, seconds)
    return {
        "faults_per_s": len(pieces) * (PIECE // PAGE) / (took / 1e9),
        "piece_ns": statistics.median(pieces),
        "p99_ns": sorted(pieces)[len(pieces) * 99 // 100],
        "longest_ns": max(pieces),
    }


def _faults_for(size: int, seconds: float) -> tuple[list[int], int]:
    """Return the ns of each piece, from the end of the one before, so that mapping and giving back are in it."""
    pieces: list[int] = []
    start = last = perf_counter_ns()
    while last - start < seconds * 1e9:
        memory = anonymous(size)
        for at in range(0, size, PIECE):
            write(memory, at, at + PIECE)
            now = perf_counter_ns()
            pieces.append(now - last)
            last = now
        memory.close()
    return pieces, last - start


Become = tuple[list[int], "Callable[[], dict[str, float]]", object]
"""PIDs; what is done on the word "go"; what has to stay alive."""


def become(errand: Errand) -> Become:
    """Become what is asked for."""
    mine = [os.getpid()]
    if errand.kind == MAPPINGS:
        return mine, dict, small_mappings(errand.path, errand.count)
    if errand.kind in (FORKED, MEMORY):
        return _tree(errand)
    if errand.kind == CROWD:
        family = Family(errand.count - 1, dict, lambda: None)
        return [*mine, *family.pids], dict, family
    held = mapped_file(errand.path) if errand.path else None
    if errand.kind == FAULTS:
        return mine, lambda: fault(errand.size, errand.seconds), held
    return mine, dict, held


def _tree(errand: Errand) -> Become:
    memory = memory_file(errand.size) if errand.kind == MEMORY else anonymous(errand.size)
    write(memory, 0, errand.size)
    # A fork does not copy page tables of shared mappings: each child touches its pages once.
    family = Family(errand.count - 1, lambda: memory[::PAGE], lambda: copy_third(memory, errand.seconds))

    def go() -> dict[str, float]:
        family.tell()
        return {}

    return [os.getpid(), *family.pids], go, (family, memory)


def play(errand: Errand) -> Steps:
    """Become what is asked for, and hold it; then do what it does."""
    gc.collect()
    yield "ready", {}
    pids, go, held = become(errand)
    yield "started", {"pids": pids}
    yield "done", {"numbers": go()}
    del held
