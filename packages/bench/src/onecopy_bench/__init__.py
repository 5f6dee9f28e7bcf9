"""Benchmarks in fresh processes, with a declared state of the page cache: the code of `onecopy bench`.

Reading order: `worker` and `processes` (the two ends of a measured process), `system` (counters of the kernel, state of
the page cache), `places` (disks), `record`, `runs` (rounds of samples), `tables` and `pictures`, `scenario` (plans, and
the engine that runs them) and `cli`. Then a module for each scenario, with its peers and the steps of its worker:
`files` (open), `rows` (share), `images`, `models`, `nodes`, `run` with `copies` and `programs`, `start`, `structs`; and
`stories`, which measures published figures again.

Measured processes import peers by name, where they are installed. Linux only, because of the kernel's counters.
"""
