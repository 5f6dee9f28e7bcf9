"""Samples of processes that load one file: what `open`, `keys`, `warm`, `crossover` and `structs` have in common.

The reading order: `layout` (where the data of a file lies), `touch` (the checksum that judges every process),
`loaders` (what a way to load a file declares), `rivals` (all of them), `loading` (runs in the measured process),
`sampling` (one sample, by the parent, and the same data in the containers of rivals), `mechanisms` (what `warm` and
`crossover` compare, with ceilings and controls).
"""
