"""What sampling memory costs, and how right it is.

`scenario` has the command; processes that are measured do not import it.
"""
