"""`transfer`: bytes of an object into a partial file, by several connections."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from onecopy.remote.steps import waited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onecopy.remote.origin import Origin, Version
    from onecopy.remote.pieces import PartialFile

__all__ = ["CONNECTIONS", "PIECE", "pieces_of", "received", "transfer"]

CONNECTIONS = 16
"""Default number of concurrent requests."""
PIECE = 8 << 20
"""Bytes of a request, at positions that are multiples of it."""
_TRIES = 6
"""Number of consecutive requests that may make almost no progress."""
_PROGRESS = 16 << 10
"""Minimum bytes that a request must bring to count as progress."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0


def transfer(
    origin: Origin,
    version: Version,
    partial: PartialFile,
    ranges: Iterable[tuple[int, int]],
    progress: Callable[[int], object],
    *,
    connections: int,
) -> None:
    """Fetch what `ranges` lack in a partial file.

    A request that ends early or is too slow is continued where it ended, after growing pauses, until several
    consecutive requests make almost no progress. `progress` is called about 10 times per second with the number of
    bytes that this call has received; an exception that it raises ends the transfer at once, as an interrupt does.
    Errors are those of `Origin.chunks` and `PartialFile.write`; what arrived remains in the partial file.
    """
    pieces = deque(pieces_of(part for start, stop in ranges for part in partial.have.missing(start, stop)))
    longest = max((stop - start for start, stop in pieces), default=0)
    total = 0

    def count(nbytes: int) -> None:
        nonlocal total
        total += nbytes

    async def work() -> None:
        whole = memoryview(bytearray(longest))
        while pieces:
            start, stop = pieces.popleft()
            await received(origin, version, start, whole[: stop - start], count)
            await asyncio.to_thread(partial.write, start, whole[: stop - start])

    async def bring() -> None:
        workers = [asyncio.create_task(work()) for _ in range(min(connections, len(pieces)))]
        try:
            await asyncio.gather(*workers)
        except NotImplementedError:  # no ranges
            await _ended(workers)
            count(-total)
            await _received_in_one(origin, version, partial, count)
        finally:
            await _ended(workers)

    waited(bring(), lambda: progress(total))


def pieces_of(ranges: Iterable[tuple[int, int]], size: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the parts of ranges, cut at multiples of a size; 0: of `PIECE`."""
    size = size or PIECE  # which tests replace
    for start, stop in ranges:
        yield from pairwise([start, *range((start // size + 1) * size, stop, size), stop])


async def received(
    origin: Origin,
    version: Version,
    start: int,
    buffer: memoryview,
    arrived: Callable[[int], object] = lambda _: None,
) -> None:
    """Fill a buffer with the bytes from `start`, with as many requests as necessary; errors are those of `transfer`.

    `arrived` is called with the bytes of each chunk.
    """
    at, in_vain = 0, 0
    while True:
        before = at
        try:
            async for chunk in origin.chunks(version, (start + at, start + len(buffer)), slow=in_vain > 0):
                if len(chunk) > len(buffer) - at:
                    raise OSError(errno.EPROTO, "the server sent more bytes than requested", origin.shown)
                buffer[at : at + len(chunk)] = memoryview(chunk)
                at += len(chunk)
                arrived(len(chunk))
            reason = "the server sent fewer bytes than requested"
            error: Exception = ConnectionError(errno.ECONNABORTED, reason, origin.shown)
        except ConnectionError as failed:
            error = failed
        if at == len(buffer):
            return
        in_vain = in_vain + 1 if at - before < _PROGRESS else 1
        if in_vain == _TRIES:
            raise error
        await asyncio.sleep(_pause(in_vain))


async def _received_in_one(
    origin: Origin, version: Version, partial: PartialFile, arrived: Callable[[int], object]
) -> None:
    """Fetch everything with one request, for servers without ranges, where a broken connection starts over."""
    for attempt in range(1, _TRIES + 1):
        at = 0
        try:
            async for chunk in origin.chunks(version, slow=attempt > 1):
                if len(chunk) > version.size - at:
                    raise OSError(errno.EPROTO, "the server sent more bytes than announced", origin.shown)
                await asyncio.to_thread(partial.write, at, memoryview(chunk))
                at += len(chunk)
                arrived(len(chunk))
            if at < version.size:
                reason = "the server sent fewer bytes than announced"
                raise ConnectionError(errno.ECONNABORTED, reason, origin.shown)
        except ConnectionError:
            if attempt == _TRIES:
                raise
            arrived(-at)
            await asyncio.sleep(_pause(attempt))
        else:
            return


async def _ended(workers: list[asyncio.Task[None]]) -> None:
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


def _pause(attempt: int) -> float:
    """Return the seconds to wait after failed attempts: doubled each time, and drawn so that clients spread."""
    return min(_FIRST_PAUSE_S * 2.0**attempt, _LONGEST_PAUSE_S) * random.uniform(0.5, 1)  # noqa: S311
