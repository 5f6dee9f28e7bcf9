"""What `bench open` and `bench keys` compare: the table that a new peer is added to.

A peer is a `Configuration` (see `onecopy_bench.files.configurations`) in a file of this folder and one line in `ROWS`.
It loads what a job names, keeps it, and yields every piece as an array of bytes in the order of the job; the touch
and the checksum are the same code for all. Peers are imported by name in the children, where they are installed.
"""

from __future__ import annotations

from onecopy_bench.files.configurations import Configuration, open_nothing
from onecopy_bench.peers import fastsafetensors, numpy, ours, runai, safetensors, tensorizer, torch

ROWS = (
    *ours.ROWS,
    *safetensors.ROWS,
    *torch.ROWS,
    *runai.ROWS,
    *fastsafetensors.ROWS,
    *tensorizer.ROWS,
    *numpy.ROWS,
    Configuration("empty", "imports only", open_nothing, uses_cache=False),
)
"""What `bench open` compares; the first row is what the others are relative to."""

KEYS = (safetensors.KEYS, ours.KEYS)
"""What `bench keys` compares."""
