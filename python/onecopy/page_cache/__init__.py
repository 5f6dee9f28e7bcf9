"""Query and control which parts of files are in the page cache: `residency`, `warm`, `evict`, `pin`.

The functions take an open file (`onecopy.Mapping`, `onecopy.ArrayFile`) or a path, and return a report of what the
kernel did. A hint that the kernel refused is noted in the report and not raised; a number that the kernel does not
report is None, never zero. A file that was truncated while mapped raises `onecopy.DataLost`.

All processes of the machine share the page cache, so a file that one process has warmed is warm for all of them.
Private copies (``mode="copy"``) are not affected. Every function releases the GIL and may be called from any thread.
"""

from onecopy._core import EvictReport, MappedPages, PageCache, PinReport, Residency, WarmReport
from onecopy.page_cache.pages import (
    Mechanism,
    Portion,
    Range,
    Selection,
    WarmJob,
    WarmOptions,
    available_memory,
    cachestat,
    evict,
    mapped_in,
    pin,
    residency,
    unpin,
    warm,
)

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
    "WarmOptions",
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
