"""Samples of one process that opens a file, warms it, and then goes over a part of it again and again.

`onecopy bench warm` and `onecopy bench crossover`. The reading order: `pieces` (which part, in which order),
`mechanisms` (the ways to bring it in), `cells` (what is sampled), `notes`, `winners` (what it
says), `warm` and `crossover` (the scenarios).
"""
