"""Python data in many processes, and one item of it at a time: what `bench share` and `bench records` run.

The reading order: `data` (the rows, and the checksums that judge all), `peers` (one entry per way to hold rows),
`work` (what a worker does), `rank` (a process with workers, as a child), `ways` (what is timed, statement by
statement), `probe` (a process that times one statement, as a child), `record` and `rounds` (what is kept, and in which
order it is taken), `tables` and `picture`. The scenarios are `onecopy_bench.scenarios.share` and `.records`.
"""
