"""The verbs that measure memory: top, explain, container, record, plot, diff and serve.

`groups` has the options that select processes; `keys` and `top_screen` are the live display of top.
"""
