"""One model behind a URL on several nodes with several processes each.

`scenario` has the command; processes that are measured do not import it.
"""
