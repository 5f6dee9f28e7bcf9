"""How a process fetches files together with those of other nodes: which of them takes part, and in which groups."""

from __future__ import annotations

import contextlib
import itertools
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union

from onecopy.identity import boot_identity, start_of
from onecopy.remote.boards import job_of_addresses, job_of_torchrun
from onecopy.remote.peers import Group, warned
from onecopy.remote.steps import nothing, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onecopy.remote.boards import Board, Job
    from onecopy.remote.peers import Differs, Fetch, Member
    from onecopy.remote.pieces import PartialFile
    from onecopy.remote.ray_nodes import RayNodes
    from onecopy.store import Store

__all__ = ["Partners", "Peers", "together"]

Peers: TypeAlias = Union["Sequence[str]", Literal["ray", "torchrun"], None]
_calls = itertools.count()
_PID_SPACE = Path("/proc/self/ns/pid")


class Partners:
    """The nodes with which a call of `fetch` fetches; without `nodes`: none.

    `report` is called about 10 times per second while others are waited for; what it raises ends the waiting.
    """

    def __init__(self, nodes: JobNodes | RayNodes | None, report: Callable[[], object]) -> None:
        self._nodes, self._report = nodes, report
        self.groups: list[Group] = []

    def exchange(
        self,
        key: str,
        file: PartialFile,
        fetch: Fetch,
        differs: Differs,
        progress: Callable[[int], object],
        *,
        patient: bool,
    ) -> None:
        """Bring a file together with other nodes, and serve it to them; some pieces may stay missing.

        `patient`: wait for nodes that have the file as long as they live, since no server has it.
        """
        if self._nodes is None:
            return
        with warned():
            run([partial(self._nodes.take_part, key, patient=patient)], report=self._report, wait=False)
            self.groups.append(Group(self._nodes, key, file.fileno(), file.size, file))
            self.groups[-1].join(lambda: progress(0))
            self.groups[-1].pull(fetch, differs, progress)

    def found(self, key: str, path: Path) -> None:
        """Note that this node has a file, and pass it on to nodes that wait for it."""
        if (nodes := self._nodes) is None:
            return
        with warned():
            serves: list[bool] = []
            run([lambda: serves.append(nodes.is_to_serve(key, path))], report=self._report, wait=False)
            if serves == [True]:
                with path.open("rb") as file:
                    self.groups.append(Group(nodes, key, file.fileno(), os.fstat(file.fileno()).st_size))
                self.groups[-1].join(self._report)


@contextlib.contextmanager
def together(peers: Peers, store: Store, report: Callable[[], object] = nothing) -> Iterator[Partners]:
    """Fetch inside the block with the nodes that `peers` gives; at its end, serve them until they have the files.

    `store` is that of this node; `peers` is documented at `onecopy.remote.fetch`.
    """
    nodes = _nodes(peers, store, report)
    partners = Partners(nodes, report)
    try:
        yield partners
        for group in partners.groups:
            group.finish(report)
    finally:
        for group in partners.groups:
            group.close()
        if nodes is not None:
            nodes.board.close()


class JobNodes:
    """Nodes whose number is known: those of a job of torchrun, or of a list of addresses."""

    is_patient = False
    """Whether nodes that have a file are waited for as long as they live, since no server has it."""

    def __init__(self, job: Job, store: Store, board: Board) -> None:
        self.board, self.host, self._size = board, job.address(), job.size
        facts = store.folder.stat()
        # nodes that use the same folder of the same machine are one
        self.node = board.name("node", f"{boot_identity()} {facts.st_dev} {facts.st_ino}")
        self._process = f"{os.getpid()} {start_of(os.getpid())} {_PID_SPACE.stat().st_ino} {next(_calls)}"
        self._own: set[str] = set()  # files that this process fetches for its node
        board.update(board.name("nodes"), lambda now: {**(now or {}), str(job.rank): self.node})

    def begin(self, key: str) -> None:
        """Do nothing: all nodes make the same call."""

    def is_complete(self, members: Sequence[Member], quiet: float) -> bool:  # noqa: ARG002
        """Return whether all nodes have come, and are members."""
        nodes = self.board.get(self.board.name("nodes")) or {}
        return len(nodes) >= self._size and {member.node for member in members} >= set(nodes.values())

    def take_part(self, key: str, *, patient: bool) -> None:  # noqa: ARG002
        """Note that this process is that of its node which takes part."""
        self._own.add(key)
        self.board.update(self.board.name("process", self.node, key), lambda _: self._process)

    def is_to_serve(self, key: str, path: Path) -> bool:  # noqa: ARG002
        """Return whether this process is the first of its node, of those that live, which has the file."""
        name = self.board.name("process", self.node, key)
        found = self.board.update(name, lambda now: self._process if now is None or _has_ended(now) else now)
        return found == self._process and key not in self._own


def _nodes(peers: Peers, store: Store, report: Callable[[], object]) -> JobNodes | RayNodes | None:
    """Return the nodes with which to fetch; None if there is one, or the board cannot be reached."""
    if peers is None:
        return None
    found: list[JobNodes | RayNodes] = []

    def find() -> None:
        if isinstance(peers, str) and peers == "ray":
            from onecopy.remote.ray_nodes import RayNodes

            found.append(RayNodes.of_cluster())
            return
        if isinstance(peers, str) and peers != "torchrun":
            raise ValueError(f"peers must be 'ray', 'torchrun' or a list of addresses, not {peers!r}")
        job = job_of_torchrun() if isinstance(peers, str) else job_of_addresses(peers)
        if job.size > 1:
            found.append(JobNodes(job, store, job.board()))

    with warned():
        run([find], report=report, wait=False)  # the board may be silent
    return found[0] if found else None


def _has_ended(process: Any) -> bool:
    """Return whether a process has ended; False of one in another container."""
    number, started, space, _ = str(process).split()
    return int(space) == _PID_SPACE.stat().st_ino and start_of(number) != started
