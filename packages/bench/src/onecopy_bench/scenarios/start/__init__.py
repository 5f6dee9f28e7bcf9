"""A start beside which weights are brought in.

`scenario` has the command; processes that are measured do not import it.
"""
