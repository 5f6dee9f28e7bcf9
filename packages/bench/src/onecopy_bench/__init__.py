"""Benchmarks in fresh processes, with a declared state of the page cache: what `onecopy bench` runs.

The reading order: `engine` (rounds of samples, their record, what a scenario is), `scenarios` (a file each, which the
command runs), `workers` (what runs in the processes that are measured), `files` (loading one file, in every way),
`stories` (published figures, measured again).

Rivals are imported by name in the processes, where they are installed. Linux only: the proofs are the kernel's.
"""
