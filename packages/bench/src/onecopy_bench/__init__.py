"""Benchmarks in fresh processes, with a declared state of the page cache: what `onecopy bench` runs.

The reading order: `worker` and `processes` (the two ends of a measured process), `system` and `places` (what the kernel
knows, and limits), `record`, `runs` (rounds of samples), `tables` and `pictures`, `scenario` and `cli`. Then a module
for each scenario, with its peers and what runs in the measured process: `files` (open, keys, warm, crossover), `rows`
(share, records), `images`, `models`, `nodes`, `run`, `start`, `structs`; and `stories`, published figures measured
again.

Peers are imported by name in the processes, where they are installed. Linux only: the proofs are the kernel's.
"""
