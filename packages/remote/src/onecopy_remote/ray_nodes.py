"""Nodes in a Ray cluster that fetch a file together and exchange pieces through Ray's object store.

Two kinds of actors, which reserve no CPU, coordinate the nodes. The cluster has one `Directory`, which records the
pieces of each node, assigns different pieces to the nodes, and continues to run for later jobs. Each node has a
`Reader`, which reads pieces for other nodes and ends with the job that started it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onecopy.store import file_key
from onecopy.store.pieces import Ranges
from onecopy_remote import transfer
from onecopy_remote.nodes import Partners, Piece, warn
from onecopy_remote.steps import StoppedError, run
from onecopy_remote.transfer import pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onecopy.store.pieces import PartialFile
    from onecopy_remote.nodes import Fetch

_NAMESPACE = "onecopy"
_BATCH = 8
"""Maximum number of pieces that a node fetches or receives before it queries the directory again."""
_CONCURRENT = 4
"""Maximum number of pieces that a node receives at a time, and that the object store thus contains for it."""
_TRIES = 3 * _CONCURRENT
"""Number of failed pieces after which a node counts as lost."""
_BEAT_S, _LEASE_S, _POLL_S = 5.0, 30.0, 0.05

Source = tuple[Piece, str, str, str]
"""A piece, the node that has it, the path on that node, and the identity of a file outside of a store."""


class _Copy:
    """The pieces of a file that a node has, and the pieces that it is fetching."""

    def __init__(self, path: str, identity: str) -> None:
        self.place = path, identity
        self.have = Ranges()
        self.fetching: set[Piece] = set()
        self.seen = time.monotonic()

    def is_alive(self) -> bool:
        """Return whether the node's fetching process has reported recently."""
        return time.monotonic() - self.seen < _LEASE_S


class Directory:
    """The actor that records which nodes have which pieces of which files."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, _Copy]] = {}

    def note(self, key: str, node: str, path: str, identity: str, have: Iterable[Piece]) -> None:
        """Record which ranges of a file a node has, and that its process is alive."""
        copy = self._files.setdefault(key, {}).setdefault(node, _Copy(path, identity))
        copy.place = path, identity
        copy.seen = time.monotonic()
        copy.have = Ranges(have)
        copy.fetching = {piece for piece in copy.fetching if not copy.have.has(*piece)}

    def beat(self, key: str, node: str) -> None:
        """Record that a node's fetching process is alive."""
        if copy := self._files.get(key, {}).get(node):
            copy.seen = time.monotonic()

    def forget(self, key: str, node: str) -> None:
        """Record that a node no longer has a file."""
        self._files.get(key, {}).pop(node, None)

    def to_fetch(self, size: int, alive: list[str], *noted: Any) -> list[Piece]:
        """Return the pieces that a node should fetch, or [] if other nodes have or fetch all pieces that it lacks."""
        own, others, missing = self._state(size, alive, *noted)
        taken = {piece for copy in others.values() if copy.is_alive() for piece in copy.fetching}
        taken.update(piece for piece in missing if any(copy.have.has(*piece) for copy in others.values()))
        free = [piece for piece in missing if piece not in taken]
        # less than half of a share, so that pieces are left for a node that joins later
        own.fetching = set(free[: min(_BATCH, -(-len(free) // (2 * len(others) + 2)))])
        return sorted(own.fetching)

    def to_receive(self, size: int, alive: list[str], *noted: Any) -> list[Source]:
        """Return the pieces that a node lacks and other nodes have."""
        _, others, missing = self._state(size, alive, *noted)
        found: list[Source] = []
        for piece in missing:
            having = [name for name, copy in others.items() if copy.have.has(*piece)]
            if having and len(found) < _BATCH:
                name = having[piece[0] // transfer.PIECE % len(having)]
                found.append((piece, name, *others[name].place))
        return found

    def _state(
        self, size: int, alive: list[str], key: str, node: str, *noted: Any
    ) -> tuple[_Copy, dict[str, _Copy], list[Piece]]:
        """Record a node's ranges. Return its copy, the copies on other live nodes, and the pieces that it lacks."""
        self.note(key, node, *noted)
        copies = self._files[key]
        others = {name: copies[name] for name in alive if name in copies and name != node}
        return copies[node], others, [*pieces_of(copies[node].have.missing(0, size))]

    def having(self, key: str) -> dict[str, int]:
        """Return how many bytes of a file each node has."""
        return {node: copy.have.size for node, copy in self._files.get(key, {}).items()}


class Reader:
    """The actor that reads pieces of files on its node."""

    def read(self, path: str, identity: str, start: int, stop: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return a piece of a complete or partial file. Raise FileNotFoundError if the file was replaced."""
        if identity and file_key(path) != identity:
            raise FileNotFoundError(path)
        for place in (path, Path(path).with_suffix(".partial"), path):  # the file is renamed when it is complete
            with contextlib.suppress(FileNotFoundError):
                found = np.fromfile(place, np.uint8, stop - start, offset=start)
                if len(found) == stop - start:
                    return found
            time.sleep(_POLL_S)
        raise FileNotFoundError(path)


class RayNodes(Partners):
    """The nodes in this process's Ray cluster. Raise RuntimeError if the process does not belong to one."""

    has_nodes = True

    def __init__(self) -> None:
        import ray

        if not ray.is_initialized():
            raise RuntimeError("nodes='ray': this process does not belong to a Ray cluster: call ray.init() first")
        self._ray: Any = ray
        self.node = str(ray.get_runtime_context().get_node_id())

    def alive(self) -> list[str]:
        """Return the identifiers of the nodes that are alive."""
        return [one["NodeID"] for one in self._ray.nodes() if one["Alive"]]

    def having(self, key: str, size: int) -> set[str]:
        """Return the nodes that are alive and have all bytes of a file."""
        sizes = self.call("having", key)
        return {node for node in self.alive() if sizes.get(node) == size}

    def note(self, key: str, path: Path, identity: str = "") -> None:
        """Announce to other nodes that this node has a file. `identity` is for files outside of a store."""
        self.call("note", key, self.node, str(path), identity, [(0, path.stat().st_size)])

    def found(self, key: str, path: Path, report: Callable[[], object]) -> None:  # noqa: ARG002
        """Announce to other nodes that this node has a file."""
        self.note(key, path)

    def exchange(self, key: str, file: PartialFile, fetch: Fetch | None, progress: Callable[[int], object]) -> None:
        """Fetch the pieces that the directory assigns, and receive pieces from other nodes, until no more arrive."""
        _Exchange(self, key, file).run(fetch, progress)

    def reader(self, node: str) -> Any:
        """Return a node's reader."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        place = NodeAffinitySchedulingStrategy(node, soft=False)
        return self._actor(Reader, f"reader {node}", max_concurrency=_CONCURRENT, scheduling_strategy=place)

    def directory(self) -> Any:
        """Return the cluster's directory."""
        return self._actor(Directory, "directory", lifetime="detached", max_restarts=-1, max_task_retries=-1)

    def _actor(self, kind: type, name: str, **options: Any) -> Any:
        options |= {"name": name, "namespace": _NAMESPACE, "get_if_exists": True, "num_cpus": 0}
        return self._ray.remote(kind).options(**options).remote()

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the directory."""
        return self._ray.get(getattr(self.directory(), method).remote(*arguments))


class _Exchange:
    """Fetches and receives the pieces of a file, until this node has all of them or no more can arrive."""

    def __init__(self, nodes: RayNodes, key: str, file: PartialFile) -> None:
        self._nodes, self._key, self._file = nodes, key, file
        self._fetched = self._received = 0
        self._lost: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._readers: dict[str, Any] = {}
        """The readers, by node. References are kept until the end, because Ray ends a reader without references."""
        self._stopped = threading.Event()

    def run(self, fetch: Fetch | None, progress: Callable[[int], object]) -> None:
        """Exchange the pieces, and call `progress` about 10 times per second. Raise the same errors as `fetch`."""
        beaten = time.monotonic()

        def report() -> None:
            nonlocal beaten
            if time.monotonic() - beaten > _BEAT_S:
                beaten = time.monotonic()
                self._nodes.directory().beat.remote(self._key, self._nodes.node)
            progress(self._fetched + self._received)

        steps = [partial(self._receive, has_origin=fetch is not None)]
        if fetch is not None:
            steps.append(partial(self._fetch, fetch))
        run(steps, self._stopped.set, report)

    def _fetch(self, fetch: Fetch) -> None:
        while self._lacks():
            if pieces := self._ask("to_fetch"):
                fetch(pieces, partial(self._count, self._fetched))
            else:
                time.sleep(_POLL_S)

    def _count(self, before: int, arrived: int) -> None:
        self._fetched = before + arrived
        if self._stopped.is_set():
            raise StoppedError

    def _lacks(self) -> bool:
        if self._stopped.is_set():
            raise StoppedError
        return not self._file.is_whole

    def _ask(self, what: str) -> Any:
        """Request pieces from the directory."""
        alive = [node for node in self._nodes.alive() if node not in self._lost]
        noted = self._key, self._nodes.node, str(self._file.artefact), "", list(self._file.have)
        return self._nodes.call(what, self._file.size, alive, *noted)

    def _receive(self, *, has_origin: bool) -> None:
        """Receive pieces from other nodes. If there is an origin, continue until no piece is missing."""
        while self._lacks():
            sources = self._ask("to_receive")
            if not sources and not has_origin:
                return
            self._receive_from(sources)
            time.sleep(0 if sources else _POLL_S)

    def _receive_from(self, sources: list[Source]) -> None:
        """Receive pieces, several at a time. If a node is lost in the meantime, skip its pieces."""
        import ray
        from ray.exceptions import RayError

        waiting = deque(sources)
        asked: deque[tuple[Any, Piece, str]] = deque()
        while waiting or asked:
            while waiting and len(asked) < _CONCURRENT:
                piece, node, path, identity = waiting.popleft()
                if node not in self._readers:
                    self._readers[node] = self._nodes.reader(node)
                asked.append((self._readers[node].read.remote(path, identity, *piece), piece, node))
            reference, (start, stop), node = asked.popleft()
            try:
                found = memoryview(ray.get(reference))
            except (RayError, FileNotFoundError) as error:
                self._note_failure(node, error)
                waiting = deque(one for one in waiting if one[1] not in self._lost)
                continue
            del reference
            self._file.write(start, found)
            self._received += stop - start

    def _note_failure(self, node: str, error: Exception) -> None:
        """Count a piece that did not arrive. A node counts as lost if it has ended or failed repeatedly."""
        from ray.exceptions import RayActorError

        self._failures[node] += 1
        self._readers.pop(node, None)
        # The reader ended with the process that started it; the next request starts another one.
        if isinstance(error, RayActorError) and self._failures[node] < _TRIES and node in self._nodes.alive():
            return
        if node not in self._lost:
            self._lost.add(node)
            warn(f"node {node[:8]}: {type(error).__name__}")
        if isinstance(error, FileNotFoundError):
            self._nodes.call("forget", self._key, node)
