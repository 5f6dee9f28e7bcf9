"""`transfer`: bytes of an object into a partial file, by several connections."""

from __future__ import annotations

import queue
import random
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from obstore import Bytes

    from onecopy.remote.origin import Origin, Version
    from onecopy.remote.pieces import PartialFile

__all__ = ["CONNECTIONS", "PIECE", "pieces_of", "run_threads", "transfer"]

CONNECTIONS = 16
"""Default number of requests at a time."""
PIECE = 8 << 20
"""Bytes of a request, at positions that are multiples of it."""
_TRIES = 6
"""Number of requests in a row that may bring nothing."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_REPORT_S = 0.1


def transfer(
    origin: Origin,
    version: Version,
    partial: PartialFile,
    ranges: Iterable[tuple[int, int]],
    *,
    connections: int = CONNECTIONS,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Fetch what `ranges` lack in a partial file.

    A request that ends early is continued where it ended, with growing pauses, until several in a row bring nothing.

    Parameters
    ----------
    progress
        Called about 10 times per second with the number of bytes that this call has received; an exception that it
        raises ends the transfer.

    Raises
    ------
    OSError
        As those of `Origin.chunks` and `PartialFile.write`. What arrived remains in the partial file.
    """
    missing = [part for start, stop in ranges for part in partial.have.missing(start, stop)]
    for start, stop in missing:
        partial.reserve(start, stop)
    job = _Job(origin, version, partial)
    try:
        job.run(list(pieces_of(missing)), connections, progress)
    except NotImplementedError:  # no ranges
        job.run_in_one(progress)


def pieces_of(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of ranges, cut at multiples of `PIECE`."""
    for start, stop in ranges:
        yield from pairwise([start, *range((start // PIECE + 1) * PIECE, stop, PIECE), stop])


def run_threads(
    steps: Sequence[Callable[[], object]], stop: Callable[[], object], report: Callable[[], object]
) -> list[BaseException]:
    """Run each step in a thread until all have ended; return what they raised, the first error first.

    `stop` is called when a step raises, and must make the others end. `report` is called about 10 times per second in
    this thread; what it raises stops the steps and is passed on.
    """
    errors: list[BaseException] = []

    def guarded(step: Callable[[], object]) -> None:
        try:
            step()
        except BaseException as error:
            errors.append(error)
            stop()

    threads = [
        threading.Thread(target=guarded, args=(step,), name=f"onecopy-{number}", daemon=True)
        for number, step in enumerate(steps)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(_REPORT_S)
                report()
    except BaseException:
        stop()
        raise
    finally:
        for thread in threads:
            thread.join()
    return errors


class _Job:
    def __init__(self, origin: Origin, version: Version, partial: PartialFile) -> None:
        self._origin, self._version, self._partial = origin, version, partial
        self._pieces: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._ended = threading.Event()  # also by an error
        self._lock = threading.Lock()
        self._arrived = 0

    def run(self, pieces: list[tuple[int, int]], connections: int, progress: Callable[[int], object] | None) -> None:
        for piece in pieces:
            self._pieces.put(piece)
        longest = max((stop - start for start, stop in pieces), default=0)
        number = min(connections, len(pieces))

        def report() -> None:
            if progress is not None:
                progress(self._arrived)

        # a thread ends with the next bytes that arrive, or at the time limit of its request
        if errors := run_threads([lambda: self._work(longest)] * number, self._ended.set, report):
            raise errors[0]
        report()

    def _work(self, longest: int) -> None:
        buffer = bytearray(longest)
        while not self._ended.is_set():
            try:
                start, stop = self._pieces.get_nowait()
            except queue.Empty:
                return
            self._fetch(start, stop, memoryview(buffer)[: stop - start])

    def _fetch(self, start: int, stop: int, buffer: memoryview) -> None:
        """Fetch a piece, by as many requests as it takes, and write it."""
        at, in_vain = start, 0
        while at < stop:
            before = at
            try:
                for chunk in self._origin.chunks(at, stop, self._version):
                    at += self._take(chunk, buffer[at - start :])
                    if self._ended.is_set():
                        return
                error: Exception = ConnectionError(f"{self._origin.shown}: the server sent fewer bytes than asked for")
            except ConnectionError as failed:
                error = failed
            if at == stop:
                break
            in_vain = in_vain + 1 if at == before else 1
            if in_vain == _TRIES:
                raise error
            self._ended.wait(_pause(in_vain))
            if self._ended.is_set():
                return
        self._partial.write(start, buffer)

    def _take(self, chunk: Bytes, room: memoryview) -> int:
        view = memoryview(chunk)
        if len(view) > len(room):
            raise OSError(f"{self._origin.shown}: the server sent more bytes than asked for")
        room[: len(view)] = view
        with self._lock:
            self._arrived += len(view)
        return len(view)

    def run_in_one(self, progress: Callable[[int], object] | None) -> None:
        """Fetch all by one request; for servers without ranges, where a broken connection begins anew."""
        for attempt in range(1, _TRIES + 1):
            self._arrived = 0
            try:
                self._fetch_all(progress)
            except ConnectionError:
                if attempt == _TRIES:
                    raise
                time.sleep(_pause(attempt))
            else:
                return

    def _fetch_all(self, progress: Callable[[int], object] | None) -> None:
        buffer = bytearray(min(PIECE, self._version.size))
        at = filled = 0
        for chunk in self._origin.whole(self._version):
            view = memoryview(chunk)
            while view:
                room = min(len(buffer), self._version.size - at) - filled
                if room <= 0:
                    raise OSError(f"{self._origin.shown}: the server sent more bytes than announced")
                part = view[:room]
                buffer[filled : filled + len(part)] = part
                filled, view = filled + len(part), view[len(part) :]
                if filled == min(len(buffer), self._version.size - at):
                    self._partial.write(at, memoryview(buffer)[:filled])
                    at, filled = at + filled, 0
            self._arrived = at + filled
            if progress is not None:
                progress(self._arrived)
        if at < self._version.size:
            raise ConnectionError(f"{self._origin.shown}: the server sent fewer bytes than announced")


def _pause(attempt: int) -> float:
    """Return the seconds to wait after failed attempts: doubled each time, and drawn so that clients spread."""
    return min(_FIRST_PAUSE_S * 2.0**attempt, _LONGEST_PAUSE_S) * random.uniform(0.5, 1)  # noqa: S311
