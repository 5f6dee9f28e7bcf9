"""Worker processes that start fast and share what is shared: a warm fork server, and a proof for your own tests.

`preload` lets the fork server of multiprocessing import torch once, instead of each worker anew: since Python 3.14 the
fork server is how workers start on Linux. `assert_shared` fails with a table of figures where some workers hold a copy
of data that all should share.

**When not to use it.** `preload` does nothing for the start methods fork (what is imported is there) and spawn (nothing
can be). `assert_shared` walks page tables (see `onecopy.memory.proc`): for tests, not for loops.
"""

from onecopy.workers.assertions import MemoryOfWorker, Sharing, assert_shared
from onecopy.workers.preloading import READERS, PreloadReport, WorkerStart, preload

__all__ = ["READERS", "MemoryOfWorker", "PreloadReport", "Sharing", "WorkerStart", "assert_shared", "preload"]
