"""Python data in many processes, and one item of it at a time: `onecopy bench share` and `onecopy bench records`.

The reading order: `data` (the rows, and the checksums that judge all), `peers` (one entry per way to hold rows), `work`
(what a worker does), `rank` (a process with workers), `ways` (what is timed, statement by statement), `probe` (a
process that times one statement), `share` and `records` (the scenarios).
"""
