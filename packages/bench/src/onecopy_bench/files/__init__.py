"""The scenario `open`: one file, loaded in every way.

Reading order: `layout` (where the data of a file lies, and the checksum that every process must compute), `loaders`
(the peers), `trials` (the measured process, and one sample of it), `opening` (the scenario).
"""
