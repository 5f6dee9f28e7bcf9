"""The pictures of the documentation, made by running what they show: `make pictures`.

They are committed, so that the pages are whole where nobody runs anything; numbers in them are those of the machine
that made them. A terminal is what a command really wrote to one, memory over time is recorded, bars are read from
committed records of the benchmarks.
"""
