"""Benchmarks in fresh processes, with a declared state of the page cache: what `onecopy bench` runs.

The reading order: `layout` (where the data lie), `touch` (the same cheap work for all, and its checksum),
`configurations` (what an entry is), `peers` and `ceilings` (one entry per way to load), `child` (one process of a
sample), `children` (the parent's hold on them), `machine` (what it is, its cache, its quiet), `runner` (rounds of
samples), `record` and `journal` (what is kept), `report` (what it says, in numbers, sentences and pictures), and one
file per scenario in `scenarios`. `passes` goes over a mapping in many ways, `programs` measures commands of any kind.

Nothing here prints, and nothing but `onecopy.cli` imports this package. It needs the standard library, NumPy
and onecopy; peers are imported by name in the children, where they are installed. Linux only: the proofs are
the kernel's.
"""
