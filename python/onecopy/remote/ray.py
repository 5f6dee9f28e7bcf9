"""Nodes of a Ray cluster fetch a file together: pieces pass between them through Ray's object store.

Actors do it, which reserve no CPU. `Directory`, one of the cluster, knows which node has which pieces, and gives each
node that asks other pieces to fetch; it stays for later jobs. `Reader`, one of each node, reads pieces of the node's
files for other nodes, and ends with the job that started it. A node receives `_AT_ONCE` pieces at a time, so that few
are in the object store.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onecopy.remote import transfer
from onecopy.remote.nodes import Partners, warn
from onecopy.remote.pieces import Ranges
from onecopy.remote.steps import run
from onecopy.remote.transfer import pieces_of
from onecopy.store import file_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onecopy.remote.origin import Origin, Version
    from onecopy.remote.pieces import PartialFile
    from onecopy.store import Store

__all__ = ["Directory", "RayNodes", "Reader", "Share"]

_NAMESPACE = "onecopy"
_BATCH = 8
"""Maximum number of pieces that a node fetches, and that it receives, before it asks again."""
_AT_ONCE = 4
"""Number of pieces that a node receives at a time."""
_BEAT_S, _LEASE_S, _POLL_S = 5.0, 30.0, 0.05

Piece = tuple[int, int]


class Share(NamedTuple):
    """What a node does next: pieces to fetch from the origin, and pieces to receive, with the node that has each."""

    fetch: list[Piece]
    receive: list[tuple[Piece, str]]
    paths: dict[str, tuple[str, str]]
    """Of each node: the path of its file, and what identifies the contents of a file outside a store."""
    is_waiting: bool
    """Whether other nodes fetch pieces that this one lacks."""


class _Copy:
    """What one node has of a file."""

    def __init__(self, path: str, identity: str) -> None:
        self.place = path, identity
        self.have = Ranges()
        self.fetching: set[Piece] = set()
        self.seen = time.monotonic()


class Directory:
    """Which nodes have which pieces of which files: an actor of the cluster."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, _Copy]] = {}

    def note(self, key: str, node: str, path: str, identity: str, have: Iterable[Piece]) -> None:
        """Note what a node has of a file, and that its process is alive."""
        copy = self._files.setdefault(key, {}).setdefault(node, _Copy(path, identity))
        copy.place = path, identity
        copy.seen = time.monotonic()
        for start, stop in have:
            copy.have.add(start, stop)
        copy.fetching = {piece for piece in copy.fetching if any(copy.have.missing(*piece))}

    def beat(self, key: str, node: str) -> None:
        """Note that the process of a node which fetches a file is alive."""
        if copy := self._files.get(key, {}).get(node):
            copy.seen = time.monotonic()

    def forget(self, key: str, node: str) -> None:
        """Note that a node does not have a file, or is lost."""
        self._files.get(key, {}).pop(node, None)

    def share(self, key: str, node: str, missing: list[Piece], alive: list[str], batch: int) -> Share:
        """Give a node pieces to fetch and to receive, of those that it lacks; `batch` 0: none to fetch."""
        copies = self._files.get(key, {})
        for name in copies.keys() - alive:
            del copies[name]
        own, others = copies[node], {name: copy for name, copy in copies.items() if name != node}
        now = time.monotonic()
        taken = {piece for copy in others.values() if now - copy.seen < _LEASE_S for piece in copy.fetching}
        receive: list[tuple[Piece, str]] = []
        free: list[Piece] = []
        for piece in missing:
            having = [name for name, copy in others.items() if not any(copy.have.missing(*piece))]
            if having and len(receive) < _BATCH:
                receive.append((piece, having[piece[0] // transfer.PIECE % len(having)]))
            elif not having and piece not in taken:
                free.append(piece)
        # several rounds, so that a node that comes later finds something to fetch
        fetch = free[: min(batch, -(-len(free) // (2 * len(copies))))]
        own.fetching = set(fetch)
        own.seen = now
        paths = {name: others[name].place for _, name in receive}
        return Share(fetch, receive, paths, bool(taken.intersection(missing)))

    def having(self, key: str) -> dict[str, int]:
        """Return how many bytes of a file each node has."""
        return {node: copy.have.size for node, copy in self._files.get(key, {}).items()}


class Reader:
    """Pieces of the files of a node: an actor on it."""

    def read(self, path: str, identity: str, start: int, stop: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return a piece of a file, whole or partial; FileNotFoundError if the file is another one by now."""
        if identity and file_key(path) != identity:
            raise FileNotFoundError(path)
        for place in (path, Path(path).with_suffix(".partial"), path):  # it is renamed when it is whole
            with contextlib.suppress(FileNotFoundError):
                found = np.fromfile(place, np.uint8, stop - start, offset=start)
                if len(found) == stop - start:
                    return found
            time.sleep(_POLL_S)
        raise FileNotFoundError(path)


class RayNodes(Partners):
    """The nodes of the Ray cluster of this process; RuntimeError if it is not of a cluster."""

    has_nodes = True

    def __init__(self) -> None:
        import ray

        if not ray.is_initialized():
            raise RuntimeError("nodes='ray': this process is not of a Ray cluster: call ray.init() first")
        self._ray: Any = ray
        self.node = str(ray.get_runtime_context().get_node_id())
        self._path = ""

    def alive(self) -> list[str]:
        """Return the identifiers of the nodes that are alive."""
        return [one["NodeID"] for one in self._ray.nodes() if one["Alive"]]

    def having(self, key: str, size: int) -> set[str]:
        """Return the nodes that have a whole file of some size, and are alive."""
        sizes = self._call("having", key)
        return {node for node in self.alive() if sizes.get(node) == size}

    def note(self, key: str, path: Path, identity: str = "") -> None:
        """Let other nodes know that this node has a file; `identity` is for files outside a store."""
        self._call("note", key, self.node, str(path), identity, [(0, path.stat().st_size)])

    def begin(self, key: str, store: Store, report: Callable[[], object]) -> None:  # noqa: ARG002
        """Note where the file will be; of the processes of this node, that with the claim fetches."""
        self._path = str(store.path(key))

    def found(self, key: str, path: Path, report: Callable[[], object]) -> None:  # noqa: ARG002
        """Let other nodes know that this node has a file."""
        self.note(key, path)

    def exchange(
        self,
        key: str,
        file: PartialFile,
        origin: Origin,
        version: Version,
        progress: Callable[[int], object],
        *,
        connections: int,
    ) -> None:
        """Fetch what the directory gives this node, and receive what others have, until nothing more comes."""
        arrived = {"fetched": 0, "received": 0}
        beaten = time.monotonic()

        def report() -> None:
            nonlocal beaten
            if time.monotonic() - beaten > _BEAT_S:
                beaten = time.monotonic()
                self._directory().beat.remote(key, self.node)
            progress(sum(arrived.values()))

        while missing := [*pieces_of(file.have.missing(0, file.size))]:
            self._call("note", key, self.node, self._path, "", list(file.have))
            share = Share(*self._call("share", key, self.node, missing, self.alive(), _BATCH * origin.serves))
            if not share.fetch and not share.receive:
                if not share.is_waiting:
                    break
                report()
                time.sleep(_POLL_S)
                continue
            before = arrived["fetched"]

            def fetch(pieces: list[Piece] = share.fetch, before: int = before) -> None:
                def count(nbytes: int) -> None:
                    arrived["fetched"] = before + nbytes

                transfer.transfer(origin, version, file, pieces, count, connections=connections)

            def receive(share: Share = share) -> None:
                for nbytes in self._received(key, share, file):
                    arrived["received"] += nbytes

            run([fetch, receive], report=report)
        self._call("note", key, self.node, self._path, "", list(file.have))

    def _received(self, key: str, share: Share, file: PartialFile) -> Iterator[int]:
        """Receive pieces, and yield the length of each; a node whose pieces do not come is lost."""
        from ray.exceptions import RayError

        waiting = deque(share.receive)
        asked: deque[tuple[Any, Piece, str]] = deque()
        lost: set[str] = set()
        while waiting or asked:
            while waiting and len(asked) < _AT_ONCE:
                piece, node = waiting.popleft()
                if node not in lost:
                    asked.append((self._reader(node).read.remote(*share.paths[node], *piece), piece, node))
            if not asked:
                break
            reference, (start, stop), node = asked.popleft()
            try:
                found = memoryview(self._ray.get(reference))
            except (RayError, FileNotFoundError) as error:
                if node not in lost:
                    lost.add(node)
                    self._call("forget", key, node)
                    warn(f"node {node[:8]}: {type(error).__name__}")
                continue
            file.write(start, found)
            yield stop - start

    def _reader(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return self._actor(
            Reader, f"reader {node}", max_concurrency=_AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )  # fmt: skip

    def _directory(self) -> Any:
        return self._actor(Directory, "directory", lifetime="detached", max_restarts=-1)

    def _actor(self, kind: type, name: str, **options: Any) -> Any:
        make = self._ray.remote(kind).options(
            name=name, namespace=_NAMESPACE, get_if_exists=True, num_cpus=0, **options
        )
        return make.remote()

    def _call(self, method: str, *arguments: object) -> Any:
        """Call a method of the directory."""
        return self._ray.get(getattr(self._directory(), method).remote(*arguments))
