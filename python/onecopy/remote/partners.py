"""How a process fetches files together with those of other nodes: which of them takes part, and in which groups."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Literal, TypeAlias, Union

from onecopy.remote.peers import PeerLostError, exchange
from onecopy.remote.pieces import PartialFile, WholeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from onecopy.remote.gloo import Rendezvous
    from onecopy.remote.peers import Group
    from onecopy.remote.ray_nodes import Directory
    from onecopy.store import Store

__all__ = ["Partners", "Peers", "together"]

Peers: TypeAlias = Union["Sequence[str]", Literal["ray", "torchrun"], None]


class Partners:
    """The nodes with which a call of `fetch` fetches; this class: none."""

    def begin(self) -> None:
        """Let the other processes of this node go on: this one holds the claim of a file, or has ended."""

    def exchange(
        self,
        key: str,
        file: PartialFile,
        fetch: Callable[[list[tuple[int, int]], Callable[[int], object]], object],
        progress: Callable[[int], object],
        *,
        patient: bool,
    ) -> None:
        """Make a file whole together with other nodes; if one is lost, it may lack pieces afterwards.

        `patient`: wait for nodes that have the file as long as they live, since no server has it. The other parameters
        are those of `onecopy.remote.peers.exchange`.
        """

    def found(self, key: str, path: Path) -> None:
        """Note that this node has a file, which other nodes may need."""


@contextlib.contextmanager
def together(peers: Peers, key: str, store: Store) -> Iterator[Partners]:
    """Fetch inside the block with the nodes that `peers` gives, as documented at `onecopy.remote.fetch`.

    Parameters
    ----------
    key
        What is fetched; the same in all nodes.
    store
        The store of this node.
    """
    if isinstance(peers, str) and peers == "ray":
        from onecopy.remote.ray_nodes import Directory

        yield _GroupPerFile(Directory.of_cluster(), store)
        return
    rendezvous = None if peers is None else _rendezvous(peers, key)
    if rendezvous is None:
        yield Partners()
    elif not rendezvous.takes_part:
        rendezvous.wait()
        yield Partners()
    else:
        one = _OneGroup(rendezvous, store)
        try:
            one.join()
            yield one
            one.leave()
        finally:
            one.close()


class _OneGroup(Partners):
    """One group for all files of a call, of nodes whose number is known, for the process of its node that takes part.

    All nodes exchange the same files in the same order, also those that have them.
    """

    def __init__(self, rendezvous: Rendezvous, store: Store) -> None:
        self._rendezvous, self._store = rendezvous, store
        self._group: Group | None = None

    def join(self) -> None:
        try:
            self._group = self._rendezvous.join(self._store)
        except PeerLostError as error:
            _warn_of(error)

    def begin(self) -> None:
        self._rendezvous.begin()

    def exchange(
        self,
        key: str,
        file: PartialFile | WholeFile,
        fetch: Callable[[list[tuple[int, int]], Callable[[int], object]], object],
        progress: Callable[[int], object] | None,
        *,
        patient: bool = False,  # noqa: ARG002 - its nodes are known, and all of them are waited for
    ) -> None:
        if self._group is None:
            return
        try:
            exchange(self._group, key, file, fetch, progress=progress)
        except PeerLostError as error:
            _warn_of(error)
            self._group.close()
            self._group = None

    def found(self, key: str, path: Path) -> None:
        if self._group is not None:
            with contextlib.closing(WholeFile(path)) as file:
                self.exchange(key, file, lambda *_: None, None)

    def leave(self) -> None:
        """Wait for the other nodes, which may still read what this one sent."""
        if self._group is not None:
            with contextlib.suppress(PeerLostError):
                self._group.gather(b"")

    def close(self) -> None:
        self.begin()
        if self._group is not None:
            self._group.close()


class _GroupPerFile(Partners):
    """A group for each file, of the nodes of a Ray cluster that lack it, and of some that have it."""

    def __init__(self, directory: Directory, store: Store) -> None:
        self._directory, self._store = directory, store

    def exchange(
        self,
        key: str,
        file: PartialFile,
        fetch: Callable[[list[tuple[int, int]], Callable[[int], object]], object],
        progress: Callable[[int], object],
        *,
        patient: bool,
    ) -> None:
        try:
            group = self._directory.join(key, self._store.path(key), lambda: progress(0), patient=patient)
            with contextlib.closing(group):
                exchange(group, key, file, fetch, progress=progress)
                group.complete()
        except PeerLostError as error:
            _warn_of(error)

    def found(self, key: str, path: Path) -> None:
        self._directory.note(key, path)


def _rendezvous(peers: str | Sequence[str], key: str) -> Rendezvous | None:
    """Return the way into the group of the nodes; None if there is one node, or they cannot be reached."""
    from onecopy.remote import gloo

    if isinstance(peers, str) and peers != "torchrun":
        raise ValueError(f"peers must be 'ray', 'torchrun' or a list of addresses, not {peers!r}")
    job = gloo.job_of_torchrun() if isinstance(peers, str) else gloo.job_of_addresses(peers)
    try:
        return gloo.Rendezvous(job, key) if job.size > 1 else None
    except PeerLostError as error:
        _warn_of(error)
        return None


def _warn_of(error: PeerLostError) -> None:
    logging.getLogger("onecopy").warning("onecopy: %s; what is missing comes from the origin", error)
