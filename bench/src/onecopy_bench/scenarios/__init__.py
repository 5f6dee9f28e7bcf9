"""One file per scenario: which configurations, which file, and what the numbers say in plain sentences.

A scenario builds a `runner.Plan`, lets `runner.run` take the samples and returns a `record.Record`. What is
the same for all of them lives in the runner; what is read by people (rows and sentences) is computed from the
record alone, so that an old record can be shown again.
"""
