"""Datasets of images that ranks and their workers read for several epochs.

`scenario` has the command; processes that are measured do not import it.
"""
