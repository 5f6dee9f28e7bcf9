"""One look at a group of processes: who is in it, what counters and the page cache say, walks as the budget allows.

`sampler` puts the others together: `selection` finds processes, `processes` reads their counters, `members` remembers
them, `mapped` finds their big files, `totals` adds everything up once, and `governor` says what may be spent.
"""
