"""Ceilings and controls: what the device and the memory of this machine can do, without any library.

*Ceilings* are O_DIRECT readings of the same file with 1, 4 and 8 threads, past the page cache. "fresh"
reads 8 MiB at a time into new anonymous memory of the file's size, in 2 MiB pages where the kernel gives
them: like `warm` it ends with the data resident, and it is the fastest copying loader that one could write.
"reused" reads into one 4 MiB buffer per thread, again and again: the device alone. `preadv` releases the GIL.

*Controls* are the first touch of fresh anonymous memory with no I/O at all. Every loader that copies pays
this. On a virtual machine whose freed pages go back to the host it can be slower than the disk, and then
times of copying loaders, and every ratio between them and mappings, say nothing about other machines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from onecopy_bench.engine.raw import STRIDE, fresh_memory, read_file, reused
from onecopy_bench.files.loaders import Job, Loader, Notes, Opened, views

FRESH_READ = 8 << 20
REUSED_BUFFER = 4 << 20
CONTROL_BYTES = 1 << 30
"""A control touches as much memory as the file has, but not more than this."""


def open_direct_fresh(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into fresh huge-page memory of its size; the data stay."""
    memory, data = fresh_memory(job.size, huge=True)
    view = data.data
    place: Callable[[int, int], memoryview] = lambda offset, length: view[offset : offset + length]  # noqa: E731
    read_file(job.path, job.size, threads, FRESH_READ, place, direct=True)
    return Opened(views(data, job), keep=memory)


def open_direct_reused(job: Job, *, threads: int) -> Opened:
    """Read the whole file with O_DIRECT into one small buffer per thread; the data do not stay."""
    read_file(job.path, job.size, threads, REUSED_BUFFER, reused(REUSED_BUFFER), direct=True)
    return Opened(None)


def open_first_touch(job: Job, *, huge: bool) -> Opened:
    """Take fresh anonymous memory and write one byte into each 4 KiB of it; no file is read."""
    size = min(job.size, CONTROL_BYTES)
    memory, data = fresh_memory(size, huge=huge)

    def touch() -> Notes:
        data[:size:STRIDE] = 1
        return {"bytes": size}

    return Opened(None, keep=memory, warm=touch)


def _beside(name: str, detail: str, role: str, private: float, opens: Callable[..., Opened], **settings: int) -> Loader:
    settings_of: dict[str, object] = {"role": role, "private": private, "uses_cache": False, "needs": ("numpy",)}
    return Loader(name, detail, open=partial(opens, **settings), **settings_of)  # type: ignore[arg-type]


CEILINGS = {
    ceiling.name: ceiling
    for threads in (1, 4, 8)
    for ceiling in (
        _beside(f"o_direct-fresh-{threads}", f"O_DIRECT x {threads}, fresh huge-page memory", "ceiling", 1.0,
                open_direct_fresh, threads=threads),
        _beside(f"o_direct-reused-{threads}", f"O_DIRECT x {threads}, reused 4 MiB buffers", "ceiling", 0.0,
                open_direct_reused, threads=threads),
    )
}  # fmt: skip
CONTROLS = tuple(
    _beside(f"first-touch-{name}", f"first touch of fresh anonymous memory, {pages} pages", "control", 1.0,
            open_first_touch, huge=huge)
    for name, pages, huge in (("4k", "4 KiB", False), ("huge", "2 MiB", True))
)  # fmt: skip
