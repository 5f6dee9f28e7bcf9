"""The one engine under all scenarios: rounds of samples by fresh processes, their record, and what is shown of it.

The reading order: `crew` and `child` (the two ends of a process that is measured), `rounds` (the loop), `record` (what
is kept), `tables`, `pages` and `pictures` (what is shown), `options` (the command line). A scenario is a list of turns,
each a function that takes one sample, and functions from a record to tables and sentences.
"""
