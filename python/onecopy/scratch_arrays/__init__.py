"""Writable arrays that may be larger than memory, in unnamed files with reserved space.

    import onecopy as oc

    canvas = oc.scratch((40_000, 40_000), "u2", max_resident="512 MiB")   # OSError here if the disk is full
    canvas.write(slice(0, 1000), rows)      # at most 512 MiB of the array are in memory
    image = canvas.seal()                   # read-only; other processes map it without a copy
    canvas.save("mosaic.safetensors")       # links the file to a name, without a copy

The array is page cache: if memory is short, the kernel writes its pages to disk and evicts them without swap, which it
cannot do with heap memory. The file has no name, so that a killed process leaves nothing behind. `alloc` chooses
between heap and scratch file by size.

**When not to use it.** For arrays of a few megabytes, and for random writes to an array much larger than memory: each
write waits for the disk. In containers whose only writable file system is tmpfs it saves nothing.

**Two ways to write.** `Scratch.write` uses system calls: it keeps to ``max_resident``, and raises OSError if the disk
fails; `Scratch.write_direct` leaves no pages in memory. `Scratch.array` is a numpy array on a mapping: it has no limit,
and a failing disk ends the process (SIGBUS). A full disk cannot, because the space is reserved.

**Threads.** Any number of threads may write to different regions.
"""

from __future__ import annotations

from onecopy._core import ReleaseReport
from onecopy.scratch_arrays.writable import HeapArray, Saved, Scratch, ScratchMemory, SealedArray, alloc, scratch

__all__ = ["HeapArray", "ReleaseReport", "Saved", "Scratch", "ScratchMemory", "SealedArray", "alloc", "scratch"]
