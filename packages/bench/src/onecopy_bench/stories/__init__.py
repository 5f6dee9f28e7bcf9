"""`onecopy bench stories`: published figures of big read-only data, measured again.

A story is a published measurement, with its source; a scenario of `onecopy_bench` with options that fit its share of
twenty minutes; and a reading of the samples in the words of the source. Nothing is measured here: the scenarios do
that. `figures/` has a file for each story; `story` (what one is), `reading` (a run of them) and `page` (what is shown).
"""
