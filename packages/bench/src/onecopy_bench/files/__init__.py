"""The scenario `open`: one file, loaded in every supported way.

Reading order: `layout` (where a file's data is, and the checksum that every process must compute), `loaders` (the
peers), `trials` (the measured process and a single sample), `opening` (the scenario).
"""
