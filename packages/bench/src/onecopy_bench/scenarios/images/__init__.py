"""Images: what it costs to decode, hold and stitch them, on the heap and in mapped files.

`scenario` has the command; processes that are measured do not import it.
"""
