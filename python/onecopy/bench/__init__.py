"""Benchmarks in fresh processes, with a declared state of the page cache: what `onecopy bench` runs.

The reading order: `layout` (where the data lie), `touch` (the same cheap work for all, and its checksum),
`configurations` (what an entry is), `peers` and `ceilings` (one entry per way to load), `child` (one process of a
sample), `children` (the parent's hold on them), `cache` and `quiet` (the state of the machine), `runner` (rounds of
samples), `record` and `journal` (what is kept), `summary` and `sentences` (what it says), `report` (for readers),
and one file per scenario in `scenarios`. `programs` measures commands of any kind in the same way.

Nothing here prints, and nothing but `onecopy.cli` imports this package. It needs the standard library, NumPy
and onecopy; peers are imported by name in the children, where they are installed. Linux only: the proofs are
the kernel's.
"""
