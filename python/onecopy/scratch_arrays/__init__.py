"""Writable arrays that may be larger than memory: in nameless files whose space is reserved.

    import onecopy as oc

    canvas = oc.scratch((40_000, 40_000), "u2", max_resident="512 MiB")   # OSError here if the disk is full
    canvas.write(slice(0, 1000), rows)      # never more than 512 MiB of it in memory
    image = canvas.seal()                   # read-only: give it to other processes, without a copy
    canvas.save("mosaic.safetensors")       # the file gets a name; nothing is copied

The pages of the array are the page cache's: the kernel writes them to the disk and takes them back when memory is short
without swap, which it cannot do with memory of the heap. The file has no name, so a process that is killed leaves
nothing behind. `alloc` chooses between heap and scratch by size.

**When not to use it.** For arrays of a few megabytes, and for random writes all over an array much larger than memory:
each then waits for the disk. In containers whose only writable place is memory there is nothing to gain.

**Two ways to write.** `Scratch.write` goes through the kernel, is bounded by ``max_resident``, and raises OSError when
the disk fails; `Scratch.write_direct` leaves nothing in memory at all. `Scratch.array` is numpy as ever: nothing bounds
it but the machine, and a disk that fails under it ends the process (SIGBUS). A disk that is full cannot, because the
space is reserved.

Threads: any number may write to different places.
"""

from __future__ import annotations

from onecopy.scratch_arrays.heap import HeapArray, alloc
from onecopy.scratch_arrays.reports import ReleaseReport, Saved, ScratchMemory
from onecopy.scratch_arrays.sealed import SealedArray
from onecopy.scratch_arrays.writable import Scratch, scratch

__all__ = ["HeapArray", "ReleaseReport", "Saved", "Scratch", "ScratchMemory", "SealedArray", "alloc", "scratch"]
