"""Images: what opening and mapping them costs, and mosaics of tiles.

`scenario` has the command; processes that are measured do not import it.
"""
