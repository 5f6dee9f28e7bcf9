"""Worker processes that start fast and share memory: a preloaded fork server, and an assertion for tests.

`preload` makes the fork server of multiprocessing import modules once, instead of in each worker; the fork
server is the default start method on Linux since Python 3.14. `assert_shared` raises AssertionError with a table if a
worker holds a private copy of data that all workers should share.

**When not to use it.** `preload` has no effect with the start methods fork (children inherit all imports) and spawn
(children inherit none). `assert_shared` walks page tables (see `onecopy.memory.proc`): use it in tests, not in loops.
"""

from onecopy.workers.assertions import MemoryOfWorker, Sharing, assert_shared
from onecopy.workers.preloading import READERS, PreloadReport, WorkerStart, preload

__all__ = ["READERS", "MemoryOfWorker", "PreloadReport", "Sharing", "WorkerStart", "assert_shared", "preload"]
