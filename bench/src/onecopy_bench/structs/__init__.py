"""`bench structs`: a C++ index in a file, opened in every way and asked questions, each time by a fresh process.

The reading order: `program` (the C++ program: where it is, the files it builds, its rows), `nested` (a million values
inside one another, and system calls), `tables` (what the samples say). The rounds are those of
`onecopy_bench.scenarios.structs`; samples and their state of the cache are `onecopy_bench.runner`'s.
"""
