"""`Several`: one or several files of known versions, fetched into a store with one account of the progress."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from typing import TYPE_CHECKING, TypeAlias

from onecopy.remote.partners import Partners, together
from onecopy.remote.peers import PeerLostError
from onecopy.remote.pieces import PartialFile
from onecopy.remote.steps import nothing, waited
from onecopy.remote.transfer import CONNECTIONS, received, transfer
from onecopy.store import Store, report_progress
from onecopy.text import size

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from onecopy.remote.origin import Origin, Version
    from onecopy.remote.partners import Peers
    from onecopy.store import Artefact

__all__ = ["InPartError", "Several"]

_FIRST_LINE_S, _LINE_INTERVAL_S = 2.0, 5.0  # until the first line about a long fetch; between two
_Fetch: TypeAlias = "Callable[[list[tuple[int, int]]], None]"


class InPartError(Exception):
    """Ends a build whose file is not whole, so that it is not published."""


class Several:
    """One or several files, with one account of the progress.

    Parameters are those of `onecopy.remote.fetch`; the option `on_wait` of a store says whether a long fetch is
    announced.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        connections: int = CONNECTIONS,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self.store = Store.of(store).with_options(where="here", durable=False)
        """Where the files are kept."""
        self._connections = connections
        self._progress = progress if progress is not None else _announced(self.store)
        self._done = self._total = 0
        self._partners = Partners(None, nothing)

    def expect(self, nbytes: int) -> None:
        """Count the bytes of a file that will be fetched, for the progress."""
        self._total += nbytes

    @contextlib.contextmanager
    def together(self, peers: Peers) -> Iterator[None]:
        """Fetch inside the block with other nodes."""
        with together(peers, self.store, lambda: self._report(0)) as self._partners:
            yield

    def one(self, origin: Origin, version: Version) -> Artefact:
        """Return the artefact of a file, fetched here if no process has."""
        key = origin.key(version)

        def work(partial: PartialFile, fetch: _Fetch) -> None:
            partial.expect_room(version.size - partial.have.size)
            part = functools.partial(transfer, origin, version, partial, connections=self._connections)
            differs = functools.partial(_differs, origin, version)
            self._partners.exchange(key, partial, part, differs, self._report, patient=not origin.serves)
            fetch([(0, version.size)])

        found = self._built(origin, version, work)
        self._partners.found(key, found.path)
        self._done += version.size
        return found

    def some(
        self,
        origin: Origin,
        version: Version,
        steps: Callable[[Path, Callable[[int], bytes]], Iterable[Sequence[tuple[int, int]]]],
        use: Callable[[Path], object],
    ) -> Artefact:
        """Fetch ranges in steps, and use the file under the claim; InPartError if it is not whole then.

        `steps` is called with the path of the file and a function that returns its first bytes: it yields the ranges,
        as (start, stop), of which each step is fetched before the next is asked for.
        """

        def work(partial: PartialFile, fetch: _Fetch) -> None:
            for ranges in steps(partial.path, lambda count: partial.read(0, count)):
                self._total = sum(stop - start for start, stop in ranges)
                fetch(list(ranges))
            if not partial.is_whole:
                use(partial.path)
                raise InPartError

        return self._built(origin, version, work)

    def _report(self, arrived: int) -> None:
        report_progress(arrived)
        if self._progress is not None:
            self._progress(self._done + arrived, self._total)

    def _built(self, origin: Origin, version: Version, work: Callable[[PartialFile, _Fetch], None]) -> Artefact:
        def build(path: Path) -> None:
            partial = PartialFile(path, origin.key(version), version.size)

            def fetch(ranges: list[tuple[int, int]]) -> None:
                missing = sum(stop - start for one in ranges for start, stop in partial.have.missing(*one))
                before = sum(stop - start for start, stop in ranges) - missing
                partial.expect_room(missing)
                part = functools.partial(transfer, origin, version, partial, connections=self._connections)
                part(ranges, lambda arrived: self._report(before + arrived))

            try:
                work(partial, fetch)
                partial.publish(path)
            finally:
                partial.close()

        return self.store.get_or_build(origin.key(version), build)


def _differs(
    origin: Origin, version: Version, parts: Sequence[tuple[int, memoryview]], check: Callable[[], object]
) -> bool:
    """Return whether the origin has other bytes than some parts of a file; `check` is called meanwhile."""
    if not origin.serves:
        return False
    expected = [(start, memoryview(bytearray(len(view)))) for start, view in parts]

    async def bring() -> None:
        await asyncio.gather(*(received(origin, version, start, view) for start, view in expected))

    try:
        waited(bring(), check)
    except NotImplementedError:
        raise PeerLostError("the origin has no ranges to compare with") from None
    return any(found != view for (_, found), (_, view) in zip(expected, parts, strict=True))


def _announced(store: Store) -> Callable[[int, int], object] | None:
    """Return a `progress` that warns of a long fetch, as `Store.on_wait` "announce" does of a long wait."""
    if store.on_wait != "announce":
        return None
    begun = time.monotonic()
    due = begun + _FIRST_LINE_S
    first: int | None = None

    def progress(done: int, total: int) -> None:
        nonlocal due, first
        now = time.monotonic()
        first = done if first is None else first
        if now < due:
            return
        due = now + _LINE_INTERVAL_S
        import logging

        speed = size(int((done - first) / (now - begun)))
        logging.getLogger("onecopy").warning("onecopy: fetching: %s of %s, %s/s", size(done), size(total), speed)

    return progress
