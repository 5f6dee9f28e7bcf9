"""The pictures of the documentation, made by running what they show: `make pictures`.

They are committed, so that the pages are whole without running anything; numbers in them are those of the machine
that made them. Terminals show the output of real commands, memory over time is recorded, bars are read from
committed records of the benchmarks.
"""
