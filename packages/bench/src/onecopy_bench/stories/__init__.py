"""`onecopy bench stories`: published figures of big read-only data, measured again.

A story is a published measurement with its source, a scenario of `onecopy_bench` with options that fit its share of
twenty minutes, and the words in which the samples are reported. The scenarios do the measuring. `figures/` contains a
file for each story; `story` defines one, `reading` runs them, and `page` shows the results.
"""
