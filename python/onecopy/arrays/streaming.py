"""Arrays one after another through a window of memory: read ahead of the caller, and released behind it.

A file that is larger than memory, or than what a job may take of it, is read at the speed of the device, while the page
cache never has more of it than the window. Parts are put together into chunks of a quarter of the window: one is in
use, and the others are being read. A chunk that was in memory before is left there.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy import page_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from onecopy.arrays.entries import Entry, Part
    from onecopy.arrays.file import ArrayFile
    from onecopy.page_cache import Portion, WarmJob

_AHEAD = 3  # chunks that are read while one is in use
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
    job: WarmJob


def stream(file: ArrayFile, names: Iterable[Part] | None, order: str, window: int) -> Iterator[StreamedPart]:
    """Give the arrays of a file; see `ArrayFile.stream`."""
    if window < _SMALLEST:
        raise ValueError(f"window must be at least {_SMALLEST >> 20} MiB, not {window} bytes")
    if order not in ("file", "names"):
        raise ValueError(f"order must be 'file' or 'names', not {order!r}")
    wanted = list(file if names is None else names)
    asked = [(part, None) if isinstance(part, str) else part for part in wanted]
    entries = {name: file.entry(name) for name, _ in asked}
    if order == "file":
        places = {path: number for number, path in enumerate(dict.fromkeys(member.path for member in file.files))}
        asked.sort(key=lambda part: (places[file.path_of(part[0])], entries[part[0]].offset))
    limit = window // (_AHEAD + 1)
    return _streamed(
        file, _chunks([piece for name, rows in asked for piece in _pieces(entries[name], rows, limit)], limit)
    )


def _pieces(entry: Entry, rows: slice | None, limit: int) -> Iterator[tuple[str, slice, int, bool]]:
    """Give (name, rows, bytes, whole array?) of pieces of one array that have at most `limit` bytes."""
    count = entry.shape[0] if entry.shape else 1
    begin, end, step = (rows or slice(None)).indices(count)
    if step != 1:
        raise ValueError(f"{entry.name!r}: rows must be without a step, not {rows}")
    row = entry.nbytes // count if count else 0
    if entry.nbytes <= limit or not entry.shape:
        yield entry.name, slice(begin, end), row * max(0, end - begin), rows is None
        return
    if row > limit:
        raise ValueError(
            f"{entry.name!r}: a row has {row} bytes: the window must be at least {row * (_AHEAD + 1)} bytes"
        )
    at_once = limit // row
    for at in range(begin, end, at_once):
        last = min(at + at_once, end)
        yield entry.name, slice(at, last), row * (last - at), False


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


def _streamed(file: ArrayFile, chunks: Iterator[list[tuple[str, slice, bool]]]) -> Iterator[StreamedPart]:
    ahead: deque[_Chunk] = deque()
    read: list[Portion] = []

    def read_ahead() -> None:
        while len(ahead) <= _AHEAD and (parts := next(chunks, None)) is not None:
            portions = file.portions([name if is_whole else (name, rows) for name, rows, is_whole in parts])
            ahead.append(_Chunk(parts, portions, page_cache.warm(portions, wait=False)))

    try:
        read_ahead()
        while ahead:
            chunk = ahead[0]
            report = chunk.job.wait()
            for name, rows, is_whole in chunk.parts:
                yield StreamedPart(name, rows, file[name] if is_whole else file.slice(name, rows))
            ahead.popleft()
            if report.filled:
                released = [_aligned(portion) for portion in chunk.portions]
                page_cache.evict(released)
                read += released
            read_ahead()
    finally:
        for chunk in ahead:
            chunk.job.cancel()
        read += [portion for chunk in ahead if chunk.job.wait().filled for portion in chunk.portions]
        if not file.closed:
            page_cache.evict(read)  # again: what was read ahead of one chunk may have come back behind it


def _aligned(portion: Portion) -> Portion:
    """Begin each range at a page of 2 MiB, of which the last chunk has left a part."""
    ranges = [(offset - offset % _ALIGNED, length + offset % _ALIGNED) for offset, length in portion.ranges or ()]
    return portion._replace(ranges=ranges)
