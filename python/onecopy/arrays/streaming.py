"""Arrays one after another through a window of memory: read ahead of the caller, and released behind it.

A file that is larger than memory, or than what a job may take of it, is read at the speed of the device, while the page
cache has no more of it than the window, and other files keep theirs. Parts are put together into chunks of a quarter of
the window: one is in use, and the others are being read, also while the caller works. A chunk that was in memory before
is left there.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.arrays.entries import is_raw
from onecopy.files import page_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from onecopy.arrays.entries import Part
    from onecopy.arrays.file import ArrayFile
    from onecopy.files.page_cache import Portion, WarmJob

_CHUNKS = 4  # one is in use, the others are being read
_SMALLEST = 8 << 20
_ALIGNED = 2 << 20  # pages of this size are dropped as a whole


class StreamedPart(NamedTuple):
    """An array of a stream, or rows of one that is too large for the window."""

    name: str
    rows: slice
    """The rows, ``slice(0, number of rows)``; of an array without axes ``slice(0, 1)``."""
    array: NDArray[Any]
    """A read-only view of these rows. It stays valid; once the next part is taken, its pages may be read again."""


class _Chunk(NamedTuple):
    parts: list[tuple[str, slice, bool]]
    portions: list[Portion]
    was_cached: bool
    """Before the first chunk was read: the kernel reads ahead of one into the next."""
    huge: bool | None
    """2 MiB pages, however large the file, where everything in them is wanted: the disk is asked for them at once."""
    nbytes: int


def stream(file: ArrayFile, names: Iterable[Part] | None, order: str, window: int) -> Iterator[StreamedPart]:
    """Give the arrays of a file; see `ArrayFile.stream`."""
    if window < _SMALLEST:
        raise ValueError(f"window must be at least {_SMALLEST >> 20} MiB, not {window} bytes")
    if order not in ("file", "names"):
        raise ValueError(f"order must be 'file' or 'names', not {order!r}")
    wanted = list(file if names is None else names)
    asked = [(part, None) if isinstance(part, str) else part for part in wanted]
    if order == "file":
        places = {path: number for number, path in enumerate(dict.fromkeys(member.path for member in file.files))}
        asked.sort(key=lambda part: (places[file.path_of(part[0])], file.entry(part[0]).offset))
    available = page_cache.available_memory()
    if available is not None:
        window = min(window, max(available // 4, _SMALLEST))  # what is made of the parts needs memory, too
    limit = window // _CHUNKS
    pieces = [piece for name, rows in asked for piece in _pieces(file, name, rows, limit)]
    return _streamed(file, [_chunk(file, parts) for parts in _chunks(pieces, limit)], window)


def is_larger_than_memory(nbytes: int) -> bool:
    """Return whether so many bytes of files are to pass through a window: more than half of the available memory."""
    available = page_cache.available_memory()
    return available is not None and nbytes > available // 2


def _pieces(file: ArrayFile, name: str, rows: slice | None, limit: int) -> Iterator[tuple[str, slice, int, bool]]:
    """Give (name, rows, bytes, whole array?) of pieces of one array: of at most `limit` bytes, or one row."""
    entry = file.entry(name)
    count = entry.shape[0] if entry.shape else 1
    begin, end, step = (rows or slice(None)).indices(count)
    if step != 1:
        raise ValueError(f"{name!r}: rows must be without a step, not {rows}")
    row = entry.nbytes // count if count else 0
    # Packed elements are given as bytes, and in another order than C's a row lies everywhere: these are not divided.
    if entry.nbytes <= limit or not entry.shape or is_raw(entry.dtype) or file.memory_of(name).strides:
        yield name, slice(begin, end), row * max(0, end - begin), rows is None
        return
    at_once = max(limit // row, 1)
    for at in range(begin, end, at_once):
        last = min(at + at_once, end)
        yield name, slice(at, last), row * (last - at), False


def _chunks(pieces: list[tuple[str, slice, int, bool]], limit: int) -> Iterator[list[tuple[str, slice, bool]]]:
    chunk: list[tuple[str, slice, bool]] = []
    size = 0
    for name, rows, nbytes, is_whole in pieces:
        if chunk and size + nbytes > limit:
            yield chunk
            chunk, size = [], 0
        chunk.append((name, rows, is_whole))
        size += nbytes
    if chunk:
        yield chunk


def _chunk(file: ArrayFile, parts: list[tuple[str, slice, bool]]) -> _Chunk:
    portions = file.portions([name if is_whole else (name, rows) for name, rows, is_whole in parts])
    cached = page_cache.residency(portions)
    ranges = [list(one.ranges) for one in portions if one.ranges]
    span = sum(max(map(sum, some)) - min(some)[0] for some in ranges)
    nbytes = sum(length for some in ranges for _, length in some)
    return _Chunk(parts, portions, cached.cached == cached.bytes, span <= nbytes * 5 // 4 or None, nbytes)


def _streamed(file: ArrayFile, chunks: list[_Chunk], window: int) -> Iterator[StreamedPart]:
    jobs: deque[WarmJob] = deque()
    begun: list[_Chunk] = []
    try:
        for number, chunk in enumerate(chunks):
            held = sum(one.nbytes for one in chunks[number : len(begun)])
            for following in chunks[len(begun) :]:
                held += following.nbytes
                if jobs and held > window:
                    break
                jobs.append(page_cache.warm(following.portions, wait=False, huge=following.huge))
                begun.append(following)
            jobs.popleft().wait()
            for name, rows, is_whole in chunk.parts:
                yield StreamedPart(name, rows, file[name] if is_whole else file.slice(name, rows))
            if not chunk.was_cached:
                page_cache.evict(_released(chunk, chunks[number + 1 : number + 2]))
    finally:
        for job in jobs:
            job.cancel()
        for job in jobs:
            with contextlib.suppress(OSError):  # no caller waits for it
                job.wait()
        if not file.closed:  # again: what was read ahead of one chunk may have come back behind it
            page_cache.evict([one for chunk in begun if not chunk.was_cached for one in _released(chunk, [])])


def _released(chunk: _Chunk, following: list[_Chunk]) -> list[Portion]:
    """Round the ranges of a chunk outwards to pages of 2 MiB, but leave the page where the next chunk begins to it."""
    starts = {
        (id(one.mapping), one.ranges[0][0] // _ALIGNED) for c in following for one in c.portions[:1] if one.ranges
    }
    released = []
    for portion in chunk.portions:
        pages = [(offset // _ALIGNED, -(-(offset + length) // _ALIGNED)) for offset, length in portion.ranges or ()]
        ends = [(first, last - ((id(portion.mapping), last - 1) in starts)) for first, last in pages]
        ranges = [(first * _ALIGNED, (last - first) * _ALIGNED) for first, last in ends if last > first]
        released.append(portion._replace(ranges=ranges))
    return released
