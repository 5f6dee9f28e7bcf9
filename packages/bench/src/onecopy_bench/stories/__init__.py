"""`onecopy bench stories`: published measurements of big read-only data, reproduced on this machine.

A story consists of a published measurement with its source, a scenario of `onecopy_bench` with options that keep it
within its share of twenty minutes, and the wording of the report. The scenarios take the measurements. `figures/`
contains a file for each story; `story` defines the class, `reading` runs stories, and `page` shows the results.
"""
