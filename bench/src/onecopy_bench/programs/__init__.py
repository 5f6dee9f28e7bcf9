"""`bench run`: any program, measured in the way of the other scenarios, beside another one if there is one.

The reading order: `trees` (the processes of a copy, and what they hold), `copies` (N copies started together, brought
to "ready", held and ended), `measure` (rounds of samples), `record` (what is kept), `says` (medians and ratios).
"""
