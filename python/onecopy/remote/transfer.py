"""`transfer`: bytes of an object into a partial file, by several connections."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from onecopy.remote.steps import waited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from obstore import Bytes

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
    job = _Job(origin, version, partial)
    missing = [part for start, stop in ranges for part in partial.have.missing(start, stop)]
    waited(job.run(deque(pieces_of(missing)), connections), lambda: progress(job.arrived))


def pieces_of(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of ranges, cut at multiples of `PIECE`."""
    for start, stop in ranges:
        yield from pairwise([start, *range((start // PIECE + 1) * PIECE, stop, PIECE), stop])


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
            async for chunk in origin.chunks(start + at, start + len(buffer), version, slow=in_vain > 0):
                if len(chunk) > len(buffer) - at:
                    raise OSError(f"{origin.shown}: the server sent more bytes than requested")
                buffer[at : at + len(chunk)] = memoryview(chunk)
                at += len(chunk)
                arrived(len(chunk))
            error: Exception = ConnectionError(f"{origin.shown}: the server sent fewer bytes than requested")
        except ConnectionError as failed:
            error = failed
        if at == len(buffer):
            return
        in_vain = in_vain + 1 if at - before < _PROGRESS else 1
        if in_vain == _TRIES:
            raise error
        await asyncio.sleep(_pause(in_vain))


class _Job:
    def __init__(self, origin: Origin, version: Version, partial: PartialFile) -> None:
        self._origin, self._version, self._partial = origin, version, partial
        self.arrived = 0

    def _count(self, nbytes: int) -> None:
        self.arrived += nbytes

    async def run(self, pieces: deque[tuple[int, int]], connections: int) -> None:
        longest = max((stop - start for start, stop in pieces), default=0)
        workers = [asyncio.create_task(self._work(pieces, longest)) for _ in range(min(connections, len(pieces)))]
        try:
            await asyncio.gather(*workers)
        except NotImplementedError:  # no ranges
            await _ended(workers)
            await self._run_in_one()
        finally:
            await _ended(workers)

    async def _work(self, pieces: deque[tuple[int, int]], longest: int) -> None:
        whole = memoryview(bytearray(longest))
        while pieces:
            start, stop = pieces.popleft()
            buffer = whole[: stop - start]
            await received(self._origin, self._version, start, buffer, self._count)
            await asyncio.to_thread(self._partial.write, start, buffer)

    async def _run_in_one(self) -> None:
        """Fetch everything with one request, for servers without ranges, where a broken connection starts over."""
        for attempt in range(1, _TRIES + 1):
            self.arrived = 0
            try:
                await self._write_all(self._origin.whole(self._version, slow=attempt > 1))
            except ConnectionError:
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(_pause(attempt))
            else:
                return

    async def _write_all(self, chunks: AsyncIterator[Bytes]) -> None:
        size = self._version.size
        buffer = memoryview(bytearray(min(PIECE, size)))
        at = filled = 0
        async for chunk in chunks:
            view = memoryview(chunk)
            self.arrived += len(view)
            if self.arrived > size:
                raise OSError(f"{self._origin.shown}: the server sent more bytes than announced")
            while view:
                part = view[: min(len(buffer), size - at) - filled]
                buffer[filled : filled + len(part)] = part
                filled, view = filled + len(part), view[len(part) :]
                if filled == min(len(buffer), size - at):
                    await asyncio.to_thread(self._partial.write, at, buffer[:filled])
                    at, filled = at + filled, 0
        if at < size:
            raise ConnectionError(f"{self._origin.shown}: the server sent fewer bytes than announced")


async def _ended(workers: list[asyncio.Task[None]]) -> None:
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


def _pause(attempt: int) -> float:
    """Return the seconds to wait after failed attempts: doubled each time, and drawn so that clients spread."""
    return min(_FIRST_PAUSE_S * 2.0**attempt, _LONGEST_PAUSE_S) * random.uniform(0.5, 1)  # noqa: S311
