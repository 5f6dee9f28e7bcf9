"""The pictures of the documentation, made by running what they show: `make pictures`.

They are committed, so that the pages are complete without running anything; their numbers are those of the machine
that made them. Terminals show the output of real commands, memory over time is recorded, and bars show
committed records of the benchmarks.
"""
