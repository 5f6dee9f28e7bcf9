"""Benchmarks in fresh processes, with a declared state of the page cache: what `onecopy bench` runs.

Reading order: `worker` and `processes` (the two ends of a measured process), `system` (counters of the kernel, state of
the page cache), `places` (disks and limits), `record`, `runs` (rounds of samples), `tables` and `pictures`, `scenario`
(plans, and the engine that runs them) and `cli`. Then a module for each scenario, with its peers and the steps of its
worker: `files` (open, keys, warm, crossover), `rows` (share, records), `images`, `models`, `nodes`, `run` with `copies`
and `programs`, `start`, `structs`; and `stories`, which measures published figures again.

Peers are imported by name in the measured processes, where they are installed. Linux only: the counters are the
kernel's.
"""
