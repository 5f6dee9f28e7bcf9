"""NumPy by itself; where the tensors lie is known beforehand, so it has no header to read."""

from __future__ import annotations

import numpy as np

from onecopy_bench.files.configurations import Configuration, Job, Opened, views


def open_memmap(job: Job) -> Opened:
    """Map the file; the pages come with the touches."""
    mapping = np.memmap(job.path, np.uint8, mode="r")
    return Opened(views(np.asarray(mapping), job), keep=mapping)


def open_fromfile(job: Job) -> Opened:
    """Read the whole file into one private array."""
    data = np.fromfile(job.path, np.uint8)
    return Opened(views(data, job), keep=data)


ROWS = (
    Configuration("numpy.memmap", "plain touch", open_memmap, modules=("numpy", "mmap")),
    Configuration("numpy.fromfile", "one read", open_fromfile, modules=("numpy",), private_share=1.0),
)
