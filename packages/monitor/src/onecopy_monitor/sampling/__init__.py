"""Samples a group of processes using counters, the page cache, and page-table walks within a budget.

`sampler` combines the other modules: `selection` finds processes, `processes` reads their counters and keeps their
state between samples, `mapped_files` finds their big files, `shares_and_totals` computes the deduplicated total, and
`cpu_budget` limits the cost.
"""
