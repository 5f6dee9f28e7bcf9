"""Five published stories of big read-only data, measured again: one file each, what runs them, and what shows them.

A story is what somebody published, with its source; a scenario of `onecopy_bench` with options that fit its share
of twenty minutes; and a reading of the samples in the words of the source. Nothing is measured here: the scenarios do
that.
"""
