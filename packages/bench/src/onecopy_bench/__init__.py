"""Benchmarks that run in fresh processes, with a defined page cache state: the code of `onecopy bench`.

Reading order: `worker` and `processes` (a measured process and its parent), `system` (kernel counters, page cache
state), `places` (disks), `record`, `runs` (rounds of samples), `tables` and `pictures`, `scenario` (plans, and the
engine that runs them) and `cli`. These are followed by a module for each scenario, with its peers and its worker's
steps: `files` (open), `rows` (share), `images`, `models`, `nodes`, `run` with `copies` and `programs`, `start`,
`structs`; and `stories`, which reproduces published measurements.

Measured processes import the compared packages by name. The package requires Linux, because it reads kernel counters.
"""
