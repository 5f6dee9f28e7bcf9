"""Samples a group of processes: counters, the page cache, and page-table walks within a budget.

`sampler` combines the other modules: `selection` finds processes, `processes` reads their counters and keeps their
state between samples, `mapped` finds their big files, `totals` computes the deduplicated total, and `cpu_budget` limits
the cost.
"""
