"""Samples of one process that opens a file, warms it, and then goes over a part of it again and again.

`bench warm` and `bench crossover` stand on this. The reading order: `pieces` (which part, in which order), `mechanisms`
(the ways to bring it in), `child` (the process), `disks` and `limits` (places that are slower or tighter than the
file's own), `cells` (rounds of samples), `series` (what is kept), `ablation`, `winners` and `picture` (what it says).
"""
