"""Loading one file in every way: what `open`, `keys`, `warm`, `crossover` and `structs` have in common.

The reading order: `layout` (where the data of a file lies, and the checksum that every process has to reach),
`loaders` (the peers), `trials` (the measured process, and one sample of it), `opening` and `passes` (the scenarios).
"""
