"""File handles for Ray tasks and actors: a file is fetched or received once per node, and mapped by all processes.

    handle = oc.ray.share("s3://bucket/model.safetensors")  # or a file of this node

    @ray.remote
    class Model:
        def __init__(self, handle):
            self.weights = handle.open()  # the copy of this node; the first process of the node fetches it

    Model.options(scheduling_strategy=handle.placement()).remote(handle)

A handle consists of names and versions, about a hundred bytes per file. Nodes that need a file at the same time fetch
different pieces of it from the origin, and receive the other pieces through Ray's object store. A node that joins later
receives the file from nodes that have it. Files are in the store of each node (`onecopy.Store`) and outlive tasks,
actors and drivers.

**When not to use it.** For objects that tasks create and few other tasks use, `ray.put` is better. It also shares NumPy
arrays among a node's processes, but in memory that cannot be reclaimed, and only until the driver ends.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy import arrays
from onecopy.files.companions import is_index, names_in, paths_of
from onecopy.store import file_key
from onecopy.store.location import is_offline, resolve, url_of
from onecopy_remote.fetching import fetch, fetch_versions
from onecopy_remote.origin import NodesOnly, Origin, Version, beside, shown, versions_of
from onecopy_remote.ray_nodes import RayNodes

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["Handle", "share"]


def share(source: str | os.PathLike[str]) -> Handle:
    """Return a handle with which processes on all nodes of the cluster can open a file. Nothing is fetched yet.

    Parameters
    ----------
    source
        The URL of one file, as for `onecopy.remote.fetch`, or the path of a file on this node, which sends it to the
        other nodes. The files that a shard index or an ONNX model names are included; to find them, an ONNX model at a
        URL is fetched.

    Raises
    ------
    RuntimeError
        This process does not belong to a Ray cluster: ``ray.init()`` was not called.
    OSError
        The file does not exist or cannot be read, or the server cannot be reached.
    ValueError
        The URL does not name exactly one file.
    """
    nodes = RayNodes()
    if (url := url_of(source)) and not is_offline():  # offline, other nodes receive this node's copy
        if url.endswith("/"):
            raise ValueError(f"{shown(url)}: expected the URL of a file, found the URL of a folder")
        origin = Origin(url)
        name = origin.name
        named = names_in(fetch(url, named=False)) if is_index(name) or name.endswith(".onnx") else []
        urls = [url, *(beside(url, one) for one in named)]
        versions = versions_of([origin, *map(origin.beside, named)])
        return Handle(tuple(map(_File, [name, *named], urls, versions)), "", "")
    path = Path(resolve(source)[0]).absolute()
    files = []
    names = names_in(path)
    for name, one in zip([path.name, *names], [path, *map(Path, paths_of(str(path), names))], strict=True):
        key = f"file of node {nodes.node[:16]}: {file_key(one)}"
        files.append(_File(name, "", Version(one.stat().st_size, key, None, None)))
        nodes.note(key, one, file_key(one))
    return Handle(tuple(files), nodes.node, str(path))


@dataclass(frozen=True, slots=True, repr=False)  # a URL may be signed
class _File:
    name: str
    url: str  # empty if only nodes have the file
    version: Version

    def origin(self) -> Origin:
        return Origin(self.url) if self.url else NodesOnly(self.name)


@dataclass(frozen=True, slots=True)
class Handle:
    """A file that processes of a Ray cluster can open. `share` returns it; pass it to tasks and actors as an argument.

    It refers to the version of the file at the time of `share`. If the file changes, nodes that have this version or
    can receive it still open it; on other nodes, opening raises `FileChanged`.
    """

    _files: tuple[_File, ...]
    _node: str
    _path: str

    def path(self) -> Path:
        """Return the path of this node's copy, which is fetched or received if necessary.

        If several processes on the node call this method at the same time, one of them fetches the file and the others
        wait. Files to which the file refers are in the same folder.

        Raises
        ------
        FileNotFoundError
            The file was available only on nodes that have all left the cluster.
        OSError, FileChanged
            As for `onecopy.remote.fetch`.
        """
        import ray

        if self._path and ray.get_runtime_context().get_node_id() == self._node and self._is_unchanged():
            return Path(self._path)
        return fetch_versions([(one.name, one.origin(), one.version) for one in self._files], nodes="ray")

    def _is_unchanged(self) -> bool:
        folder = Path(self._path).parent
        try:
            return all(str(one.version.etag).endswith(f": {file_key(folder / one.name)}") for one in self._files)
        except OSError:
            return False

    def open(self, **options: Any) -> arrays.ArrayFile:
        """Open this node's copy as a file of arrays. See `onecopy.open` for the options."""
        return arrays.open(self.path(), **options)

    def nodes(self) -> list[str]:
        """Return the identifiers of the live nodes that have the file."""
        nodes = RayNodes()
        return sorted(
            set.intersection(*(nodes.having(one.origin().key(one.version), one.version.size) for one in self._files))
        )

    def placement(self) -> NodeAffinitySchedulingStrategy | str:
        """Return a scheduling strategy that prefers a node that has the file, or "DEFAULT" if no node has it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = self.nodes()
        return NodeAffinitySchedulingStrategy(random.choice(nodes), soft=True) if nodes else "DEFAULT"  # noqa: S311

    def prefetch(self, nodes: Sequence[str] | None = None) -> list[str]:
        """Make each node fetch or receive the file, and return the identifiers of the nodes.

        Parameters
        ----------
        nodes
            Identifiers of nodes; None: all live nodes.

        Raises
        ------
        OSError
            An error that `path` raised on the first node that failed.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        wanted = RayNodes().alive() if nodes is None else list(nodes)
        places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in wanted]
        tasks = [ray.remote(num_cpus=0, scheduling_strategy=place)(Handle.path).remote(self) for place in places]
        ray.get(tasks)
        return wanted

    def __repr__(self) -> str:
        """Return the name of the file and the number of other files."""
        more = f" and {len(self._files) - 1} files that it names" if len(self._files) > 1 else ""
        return f"<onecopy.ray.Handle of {shown(self._files[0].url) or self._path}{more}>"
