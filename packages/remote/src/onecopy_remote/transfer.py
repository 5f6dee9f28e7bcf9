"""`transfer`: fetch bytes of an object into a partial file over several connections."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from onecopy.base.text import cpu_count
from onecopy_remote.steps import waited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from obstore import Bytes

    from onecopy.store.pieces import PartialFile
    from onecopy_remote.origin import Origin, Version

CONNECTIONS = min(16, 4 * cpu_count())
"""Default number of concurrent requests. Eight keep two CPUs busy; more would slow them down."""
PIECE = 8 << 20
"""Number of bytes per request. Requests begin at multiples of this number."""
_TRIES = 6
"""Number of consecutive requests without progress after which a transfer fails."""
_MIN_PROGRESS = 16 << 10
"""Minimum number of bytes that a request must receive in order to count as progress."""
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
    """Fetch the bytes of `ranges` that a partial file lacks.

    A request that ends early or is too slow is resumed at the same position, after increasing pauses. `progress` is
    called about 10 times per second with the number of bytes received so far; an exception that it raises ends the
    transfer. Raise the same errors as `Origin.chunks` and `PartialFile.write`. Received data stays in the partial file.
    """
    pieces = deque(pieces_of(part for start, stop in ranges for part in partial.have.missing(start, stop)))
    total = 0

    def count(nbytes: int) -> None:
        nonlocal total
        total += nbytes

    async def fetch_pieces() -> None:
        while pieces:
            await _receive(origin, version, *pieces.popleft(), partial, count)

    async def fetch_all() -> None:
        workers = [asyncio.create_task(fetch_pieces()) for _ in range(min(connections, len(pieces)))]
        try:
            await asyncio.gather(*workers)
        except NotImplementedError:  # the server does not support ranges
            await _cancel(workers)
            count(-total)
            await _receive_in_one_request(origin, version, partial, count)
        finally:
            await _cancel(workers)

    waited(fetch_all(), lambda: progress(total))


def pieces_of(ranges: Iterable[tuple[int, int]], size: int = 0) -> Iterator[tuple[int, int]]:
    """Split ranges at multiples of a size, by default `PIECE`, and yield the parts."""
    size = size or PIECE  # tests replace it
    for start, stop in ranges:
        yield from pairwise([start, *range((start // size + 1) * size, stop, size), stop])


async def _receive(
    origin: Origin, version: Version, start: int, stop: int, partial: PartialFile, count: Callable[[int], object]
) -> None:
    """Fetch a piece with as many requests as needed. Write and count each chunk as it arrives."""
    at, without_progress = start, 0
    while True:
        before = at
        try:
            async for chunk in _chunks(origin, version, (at, stop), slow=without_progress > 0):
                await asyncio.to_thread(partial.write, at, memoryview(chunk))
                at += len(chunk)
                count(len(chunk))
        except ConnectionError:
            without_progress = without_progress + 1 if at - before < _MIN_PROGRESS else 1
            if without_progress == _TRIES and at < stop:
                raise
        if at == stop:
            return
        await asyncio.sleep(_pause_s(without_progress))


async def _receive_in_one_request(
    origin: Origin, version: Version, partial: PartialFile, count: Callable[[int], object]
) -> None:
    """Fetch the whole object from a server that does not support ranges. If the connection breaks, start over."""
    for attempt in range(1, _TRIES + 1):
        at = 0
        try:
            async for chunk in _chunks(origin, version, None, slow=attempt > 1):
                await asyncio.to_thread(partial.write, at, memoryview(chunk))
                at += len(chunk)
                count(len(chunk))
        except ConnectionError:
            if attempt == _TRIES:
                raise
            count(-at)
            await asyncio.sleep(_pause_s(attempt))
        else:
            return


async def _chunks(
    origin: Origin, version: Version, part: tuple[int, int] | None, *, slow: bool
) -> AsyncIterator[Bytes]:
    """Yield the bytes in a part or in the whole object. Raise OSError if the server sends more or fewer bytes."""
    start, stop = part or (0, version.size)
    left = stop - start
    async for chunk in origin.chunks(version, part, slow=slow):
        left -= len(chunk)
        if left < 0:
            raise OSError(errno.EPROTO, "the server sent more bytes than requested", origin.shown)
        yield chunk
    if left:
        raise ConnectionError(errno.ECONNABORTED, "the server sent fewer bytes than requested", origin.shown)


async def _cancel(workers: list[asyncio.Task[None]]) -> None:
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


def _pause_s(attempt: int) -> float:
    """Return the pause after a failed attempt. It doubles each time, and is partly random to spread retries."""
    return min(_FIRST_PAUSE_S * 2.0**attempt, _LONGEST_PAUSE_S) * random.uniform(0.5, 1)  # noqa: S311
