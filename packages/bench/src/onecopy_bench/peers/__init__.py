"""What `bench open` and `bench keys` compare: the table that a new peer is added to.

A peer is a `Configuration` (see `onecopy_bench.files.configurations`) and one line in `ROWS`, here or in `ours` or
`tensors`. It loads what a job names, keeps it, and yields every piece as an array of bytes in the order of the job; the
touch and the checksum are the same code for all. Peers are imported by name in the children, where they are installed.
"""

from __future__ import annotations

import numpy as np

from onecopy_bench.files.configurations import Configuration, Job, Opened, open_nothing, views
from onecopy_bench.peers import ours, tensors


def open_memmap(job: Job) -> Opened:
    """Map the file with NumPy; the pages come with the touches. Where tensors lie is known: no header is read."""
    mapping = np.memmap(job.path, np.uint8, mode="r")
    return Opened(views(np.asarray(mapping), job), keep=mapping)


def open_fromfile(job: Job) -> Opened:
    """Read the whole file into one private array."""
    data = np.fromfile(job.path, np.uint8)
    return Opened(views(data, job), keep=data)


ROWS = (
    *ours.ROWS,
    *tensors.ROWS,
    Configuration("numpy.memmap", "plain touch", open_memmap, modules=("numpy", "mmap")),
    Configuration("numpy.fromfile", "one read", open_fromfile, modules=("numpy",), private_share=1.0),
    Configuration("empty", "imports only", open_nothing, uses_cache=False),
)
"""What `bench open` compares; the first row is what the others are relative to."""
