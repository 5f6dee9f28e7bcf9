"""What of a file is in memory, and asking for more or less of it.

The functions take an open file (`onecopy.Mapping`, `onecopy.ArrayFile`) or a path, and return what the kernel did. A
hint that is declined is told in the report, never raised; a number the kernel does not tell is None, never zero. A
file that was truncated meanwhile raises `onecopy.DataLost`.

Page cache belongs to the machine: what one process warms is warm for all. Private copies (``mode="copy"``) are not
affected. Every function releases the GIL and may be called from any thread.
"""

from onecopy._core import EvictReport, MappedPages, PageCache, PinReport, Residency, WarmReport
from onecopy.page_cache.pages import available_memory, cachestat, evict, mapped_in, pin, residency, unpin
from onecopy.page_cache.targets import Portion, Range, Selection
from onecopy.page_cache.warming import Mechanism, WarmJob, warm

__all__ = [
    "EvictReport",
    "MappedPages",
    "Mechanism",
    "PageCache",
    "PinReport",
    "Portion",
    "Range",
    "Residency",
    "Selection",
    "WarmJob",
    "WarmReport",
    "available_memory",
    "cachestat",
    "evict",
    "mapped_in",
    "pin",
    "residency",
    "unpin",
    "warm",
]
