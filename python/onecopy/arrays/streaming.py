"""Stream arrays through a window of memory: each array is read before the caller needs it, and evicted after use.

A file that is larger than memory is read at the speed of the device, but the page cache never contains more of it than
the window, so other files stay cached. The arrays are grouped into chunks of a quarter of the window: the caller uses
one chunk while the others are being read. Chunks that were already cached stay cached.
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
_MIN_WINDOW = 8 << 20
_HUGE_PAGE = 2 << 20  # the kernel evicts a huge page as a whole


class StreamedPart(NamedTuple):
    """An array in a stream, or some rows of an array that is too large for the window."""

    name: str
    rows: slice
    """The rows as a slice, which for an array without axes is ``slice(0, 1)``."""
    array: NDArray[Any]
    """A read-only view of these rows. It stays valid, but its pages may be evicted when the next part is requested."""


class _Piece(NamedTuple):
    name: str
    rows: slice
    nbytes: int
    is_whole: bool


class _Chunk(NamedTuple):
    pieces: list[_Piece]
    portions: list[Portion]
    nbytes: int
    was_cached: bool
    """Whether the chunk was cached before the first chunk was read. Later, readahead may have cached it."""
    huge: bool | None
    """Whether to read in 2 MiB pages even if the file is large, because almost all bytes in them are needed."""


def stream(file: ArrayFile, names: Iterable[Part] | None, order: str, window: int) -> Iterator[StreamedPart]:
    """Yield a file's arrays; see `ArrayFile.stream`."""
    if window < _MIN_WINDOW:
        raise ValueError(f"window must be at least {_MIN_WINDOW >> 20} MiB, not {window} bytes")
    if order not in ("file", "names"):
        raise ValueError(f"order must be 'file' or 'names', not {order!r}")
    asked = [(part, None) if isinstance(part, str) else part for part in (file if names is None else names)]
    if order == "file":
        places = {path: number for number, path in enumerate(dict.fromkeys(member.path for member in file.files))}
        asked.sort(key=lambda part: (places[file.path_of(part[0])], file.entry(part[0]).offset))
    available = page_cache.available_memory()
    if available is not None:
        window = min(window, max(available // 4, _MIN_WINDOW))  # the caller needs memory for its results, too
    limit = window // _CHUNKS
    pieces = [piece for name, rows in asked for piece in _pieces(file, name, rows, limit)]
    return _streamed(file, [_chunk(file, group) for group in _groups(pieces, limit)], window)


def is_larger_than_memory(nbytes: int) -> bool:
    """Return whether `nbytes` exceeds half of the available memory, in which case data should pass through a window."""
    available = page_cache.available_memory()
    return available is not None and nbytes > available // 2


def _pieces(file: ArrayFile, name: str, rows: slice | None, limit: int) -> Iterator[_Piece]:
    """Split an array into pieces of whole rows and at most `limit` bytes, if possible."""
    entry = file.entry(name)
    count = entry.shape[0] if entry.shape else 1
    begin, end, step = (rows or slice(None)).indices(count)
    if step != 1:
        raise ValueError(f"{name!r}: slices of rows must have step 1, not {rows}")
    row = entry.nbytes // count if count else 0
    # Packed elements are returned as bytes, and the rows of an array that is not in C order are not contiguous.
    if entry.nbytes <= limit or not entry.shape or is_raw(entry.dtype) or file.memory_of(name).strides:
        yield _Piece(name, slice(begin, end), row * max(0, end - begin), rows is None)
        return
    at_once = max(limit // row, 1)
    for at in range(begin, end, at_once):
        last = min(at + at_once, end)
        yield _Piece(name, slice(at, last), row * (last - at), False)


def _groups(pieces: list[_Piece], limit: int) -> Iterator[list[_Piece]]:
    group: list[_Piece] = []
    nbytes = 0
    for piece in pieces:
        if group and nbytes + piece.nbytes > limit:
            yield group
            group, nbytes = [], 0
        group.append(piece)
        nbytes += piece.nbytes
    if group:
        yield group


def _chunk(file: ArrayFile, pieces: list[_Piece]) -> _Chunk:
    portions = file.portions([piece.name if piece.is_whole else (piece.name, piece.rows) for piece in pieces])
    cached = page_cache.residency(portions)
    ranges = [list(one.ranges) for one in portions if one.ranges]
    span = sum(max(map(sum, some)) - min(some)[0] for some in ranges)
    nbytes = sum(length for some in ranges for _, length in some)
    return _Chunk(pieces, portions, nbytes, cached.cached == cached.bytes, span <= nbytes * 5 // 4 or None)


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
            for name, rows, _, is_whole in chunk.pieces:
                yield StreamedPart(name, rows, file[name] if is_whole else file.slice(name, rows))
            if not chunk.was_cached:
                page_cache.evict(_to_evict(chunk, chunks[number + 1 : number + 2]))
    finally:
        for job in jobs:
            job.cancel()
        for job in jobs:
            with contextlib.suppress(OSError):  # no caller needs its bytes
                job.wait()
        if not file.closed:  # again, because readahead may have brought back pages of earlier chunks
            page_cache.evict([one for chunk in begun if not chunk.was_cached for one in _to_evict(chunk, [])])


def _to_evict(chunk: _Chunk, following: list[_Chunk]) -> list[Portion]:
    """Round the ranges of a chunk outwards to pages of 2 MiB, but not into the page where the next chunk begins."""
    starts = {
        (id(one.mapping), one.ranges[0][0] // _HUGE_PAGE) for c in following for one in c.portions[:1] if one.ranges
    }
    portions = []
    for portion in chunk.portions:
        pages = [(offset // _HUGE_PAGE, -(-(offset + length) // _HUGE_PAGE)) for offset, length in portion.ranges or ()]
        ends = [(first, last - ((id(portion.mapping), last - 1) in starts)) for first, last in pages]
        ranges = [(first * _HUGE_PAGE, (last - first) * _HUGE_PAGE) for first, last in ends if last > first]
        portions.append(portion._replace(ranges=ranges))
    return portions
