"""The verbs that look at memory: who holds it now, what it was over time, and what that means.

`groups` has the options that choose whom to look at, `keys` and `top_screen` the live display.
"""
