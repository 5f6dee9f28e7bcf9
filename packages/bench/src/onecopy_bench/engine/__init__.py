"""The one engine under all scenarios: rounds of samples by fresh processes, their record, and what is shown of it.

The reading order: `crew` and `child` (the two ends of a process that is measured), `rounds` (the loop), `record` (what
is kept), `tables` and `pictures` (what is shown), `scenario` (what a scenario is, and its command). A scenario is a
list of turns, each a function that takes one sample, and functions from a record to tables and sentences.
"""
