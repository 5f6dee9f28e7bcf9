"""`fetch`: a file behind a URL, or several, fetched into a store once per machine."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import functools
import logging
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from onecopy.base.arguments import is_url
from onecopy.base.text import size
from onecopy.errors import Error, FormatError, Kind
from onecopy.files.companions import is_inside, names_in
from onecopy.remote.nodes import Partners
from onecopy.remote.origin import Origin, shown, versions_of
from onecopy.remote.pieces import PartialFile, Ranges
from onecopy.remote.steps import run, waited
from onecopy.remote.transfer import CONNECTIONS, transfer
from onecopy.store import Store, report_progress, views

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from onecopy.remote.nodes import Fetch, Nodes, Piece
    from onecopy.remote.origin import Version
    from onecopy.store import Artefact

_FIRST_BYTES = 256 << 10
"""Size of the first request for a header, which is enough for most models."""
_LONGEST_HEADER = 100_000_008
_LARGEST_GAP = 1 << 20
"""Maximum gap between two ranges that are fetched as one, because that is faster than another request."""
_FIRST_LINE_S, _LINE_INTERVAL_S = 2.0, 5.0
"""Seconds until the first message about a long fetch, and between two messages."""

T = TypeVar("T")


def fetch(
    url: str,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    names: Sequence[str] = ("*",),
    named: bool = True,
    connections: int = CONNECTIONS,
    nodes: Nodes = None,
    progress: Callable[[int, int], object] | None = None,
) -> Path:
    """Fetch a file behind a URL into a store, unless the store has its current version, and return its local path.

    If several processes of the machine request a URL at the same time, one of them fetches it and the others wait. The
    path ends with the name of the object and leads to the file in the store, which is the same for all processes. The
    files that an index of shards or an ONNX model names are fetched too, into the same folder. Each call asks the
    server for the current version. The file is not flushed to the disk (``Store(durable=False)``), because it can be
    fetched again.

    Parameters
    ----------
    url
        ``s3://``, ``gs://``, ``az://``, ``https://``, ``http://`` or ``file://``. If it ends with "/": all objects
        directly below it, and the result is the path of a folder; not for HTTP, which has no listing.
    store
        A store or its folder; None: the default store.
    names
        Patterns of `fnmatch`, for a URL that ends with "/": only objects whose names match one of them are fetched.
    named
        Whether to fetch the files that an index or a model names, too.
    connections
        Maximum number of concurrent requests.
    nodes
        Nodes that fetch together: each fetches different pieces from the origin and sends them to the others, so that
        the origin sends the file once, not once per node. If a node fails, the logger "onecopy" warns, and the others
        fetch what they lack from the origin. The whole file is compared with its hash if an HTTP server reports one.
        None: each node fetches everything.

        "torchrun": the nodes of the job in which torchrun started this process. Each process makes the same calls in
        the same order, each within 60 seconds; the first process of each node takes part, the others wait for it. The
        pieces pass through a Gloo group of torch.distributed, beside the groups of the job.

        "ray": the nodes of the Ray cluster that lack the file at the same time, and those that have it. The pieces pass
        through the object store of Ray, at most 32 MiB at a time for each node.
    progress
        Called about 10 times per second with (bytes received, bytes to receive) by the process that fetches. None: a
        warning of the logger "onecopy" after 2 seconds, then every 5.

    Raises
    ------
    OSError
        FileNotFoundError, PermissionError, ConnectionError (the server cannot be reached or keeps failing), or the disk
        is full; ``filename`` is the URL without user, password and query, or the path. The next call continues where
        this one ended.
    FileChanged
        The object was replaced while it was fetched.
    ModuleNotFoundError
        obstore is not installed, or torch or Ray, which `nodes` needs.
    RuntimeError
        The process does not belong to a job of torchrun, or to a Ray cluster, which `nodes` requires.
    ValueError
        The URL does not name a file, or `nodes` is invalid.
    FormatError
        The file is an index or a model, and is damaged or names files outside its folder.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "vocabulary.txt")
    >>> _ = path.write_text("the")
    >>> fetch(path.as_uri()) == path  # a local file is not copied
    True
    """
    if not is_url(url):
        raise ValueError(f"not a URL that can be fetched: {shown(url)!r}")
    scheme, _, rest = url.partition("://")
    if scheme.lower() == "file":
        host, slash, below = rest.partition("/")
        if host not in ("", "localhost"):
            raise ValueError(f"{shown(url)}: a file URL must name a file of this machine")
        return Path(unquote(slash + below))
    download = _Download(store, connections, progress)
    origin = Origin(url)
    if url.endswith("/"):
        found = [name for name in waited(origin.names()) if name and any(fnmatch.fnmatch(name, one) for one in names)]
        if not found:
            raise FileNotFoundError(errno.ENOENT, f"no object matches {', '.join(names)}", origin.shown)
        view = download.view_of(f"{origin.shown} {sorted(found)}")
        with download.together(nodes):
            download.fetch_beside(origin, found, view)
        return view
    [version] = versions_of([origin])
    view = download.view_of(origin.key(version))
    with download.together(nodes):
        download.fetch_into(view, [(origin.name, origin, version)])
        if named:
            download.fetch_beside(origin, names_in(view / origin.name), view)
    return view / origin.name


def fetch_versions(files: Sequence[tuple[str, Origin, Version]], *, nodes: Nodes = None) -> Path:
    """Fetch known versions of files into the default store, without asking the servers for the current versions.

    Each file is given by its name relative to the first, its origin and its version. Return the path of the first file;
    the others are beside it. Errors are those of `fetch`, and `FileChanged` if an origin has another version.
    """
    download = _Download()
    name, origin, version = files[0]
    view = download.view_of(origin.key(version))
    with download.together(nodes):
        download.fetch_into(view, files)
    return view / name


def fetch_ranges(
    origin: Origin,
    version: Version,
    ranges_of: Callable[[Path], Iterable[tuple[int, int]]],
    use: Callable[[Path], T],
) -> T:
    """Fetch the header of a safetensors file and some ranges of its data, and return what `use` returns for the file.

    What is fetched stays in the store, so that the file is whole after calls for all ranges. A file of another format
    is fetched whole. `ranges_of` gets the path of a file with the header, and returns the ranges to fetch, as (offset,
    length). `use` gets the path of a file with these ranges, which may disappear afterwards; other ranges may be zeros.

    Errors are those of `fetch`, `ranges_of` and `use`, and `FileChanged` if the server has another version.
    """
    download = _Download()

    def steps(partial: PartialFile, _: Fetch) -> Iterator[list[Piece]]:
        download.total = min(_FIRST_BYTES, version.size)
        yield [(0, download.total)]
        header = 8 + int.from_bytes(partial.read(0, 8), "little")
        ranges = [(0, version.size)]
        if header <= min(version.size, _LONGEST_HEADER):
            yield [(0, header)]
            with contextlib.suppress(FormatError):  # not a safetensors file
                ranges = merged([(at, at + length) for at, length in ranges_of(partial.path)])
        download.total = sum(stop - start for start, stop in ranges)
        yield ranges

    found = download.store.find(origin.key(version))
    if found is None:
        used: list[T] = []
        try:
            found = download.build(origin, version, steps, lambda path: used.append(use(path)))
        except _IncompleteError:
            return used[0]
    return use(views.link(download.view_of(found.key), origin.name, found.path))


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, joined across small gaps, so that there are fewer requests; gaps add 2 % at most.

    Examples
    --------
    >>> merged([(5000, 9000), (0, 4000), (4010, 5000), (10**6, 10**6 + 10)])
    [(0, 9000), (1000000, 1000010)]
    """
    found = Ranges(ranges)
    left = found.size // 50
    gaps = sorted((after[0] - before[1], before[1], after[0]) for before, after in pairwise(found))
    for gap, start, stop in gaps:
        if gap > min(left, _LARGEST_GAP):
            break
        left -= gap
        found.add(start, stop)
    return list(found)


class _IncompleteError(Error):
    """Ends a build whose file is not whole, so that it is not published."""


def partners_of(nodes: str, store: Store) -> Partners:
    """Return the nodes that `nodes` names; RuntimeError if this process does not belong to such a job or cluster."""
    if nodes == "torchrun":
        from onecopy.remote import torchrun  # needs torch

        return torchrun.partners(store)
    if nodes == "ray":
        from onecopy.remote import ray  # needs Ray

        return ray.RayNodes()
    raise ValueError(f"nodes must be 'ray' or 'torchrun', not {nodes!r}")


class _Download:
    """Files that one call fetches into a store, with one count of the progress."""

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        connections: int = CONNECTIONS,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self.store = Store.of(store).with_options(where="here", durable=False)
        self.total = 0
        """Bytes of all files."""
        self._done = 0
        """Bytes of the files that are complete."""
        self._connections = connections
        self._progress = progress if progress is not None else _announced(self.store)
        self._partners = Partners()

    @contextlib.contextmanager
    def together(self, nodes: Nodes) -> Iterator[None]:
        """Fetch inside the block with other nodes."""
        if nodes is not None:
            [self._partners] = run([lambda: partners_of(nodes, self.store)], report=self._report, wait=False)
        try:
            yield
        except BaseException:
            self._partners.stop()
            raise

    def view_of(self, what: str) -> Path:
        """Return the folder with links to what is fetched under a key or a list of names."""
        return views.view(self.store.folder, self.store.path(f"view of {what}").stem)

    def fetch_beside(self, origin: Origin, names: Iterable[str], view: Path) -> None:
        """Fetch the current versions of files in the folder of an origin, and link them in a view."""
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if not is_inside(name):
                reason = f"invalid name {name!r}: not the path of a file inside the folder"
                raise FormatError(reason, Kind.OUT_OF_BOUNDS, path=origin.shown)
        origins = [origin.beside(name) for name in wanted]
        self.fetch_into(view, list(zip(wanted, origins, versions_of(origins), strict=True)))

    def fetch_into(self, view: Path, files: Sequence[tuple[str, Origin, Version]]) -> None:
        """Fetch files, each given by a name in a view, its origin and its version, and link them there."""
        self.total += sum(version.size for _, _, version in files)
        used: list[Artefact] = []  # in use until all are there, so that the limit of the store removes none of them
        for name, origin, version in files:
            used.append(self._fetch(origin, version))
            views.link(view, name, used[-1].path)

    def _fetch(self, origin: Origin, version: Version) -> Artefact:
        """Return the artefact of a file, fetched here unless another process fetches it."""
        key = origin.key(version)

        def steps(partial: PartialFile, fetch: Fetch) -> Iterator[list[Piece]]:
            partial.expect_room(version.size - partial.have.size)
            self._partners.exchange(key, partial, fetch if origin.serves else None, self._report)
            yield [(0, version.size)]

        self._partners.begin(key, self.store, self._report)
        found = self.build(origin, version, steps)
        self._partners.found(key, found.path, self._report)
        self._done += version.size
        return found

    def build(
        self,
        origin: Origin,
        version: Version,
        steps: Callable[[PartialFile, Fetch], Iterator[list[Piece]]],
        use: Callable[[Path], object] | None = None,
    ) -> Artefact:
        """Return the artefact of a file; fetch the ranges that each of `steps` yields in turn.

        If the file is not whole then, `use` is called with its path under the claim, and _IncompleteError is raised.
        """
        key = origin.key(version)

        def build(path: Path) -> None:
            with contextlib.closing(PartialFile(path, key, version.size)) as partial:
                fetch = functools.partial(transfer, origin, version, partial, connections=self._connections)
                has_foreign_bytes = self._partners.has_nodes or partial.have.size > 0  # perhaps of an earlier call
                for ranges in steps(partial, fetch):
                    self._fetch_missing(partial, ranges, fetch)
                if use is not None and not partial.is_whole:
                    use(partial.path)
                    raise _IncompleteError
                if has_foreign_bytes and version.digest is not None and not self._has_digest(partial, *version.digest):
                    text = "onecopy: %s: the %s differs from that of the origin; the whole file is fetched from there"
                    logging.getLogger("onecopy").warning(text, origin.shown, version.digest[0])
                    partial.forget()
                    fetch([(0, version.size)], self._report)
                partial.publish()

        return self.store.get_or_build(key, build)

    def _fetch_missing(self, partial: PartialFile, ranges: list[Piece], fetch: Fetch) -> None:
        missing = sum(stop - start for one in ranges for start, stop in partial.have.missing(*one))
        before = sum(stop - start for start, stop in ranges) - missing
        partial.expect_room(missing)
        fetch(ranges, lambda arrived: self._report(before + arrived))

    def _has_digest(self, partial: PartialFile, name: str, expected: bytes) -> bool:
        return partial.digest(name, lambda: self._report(partial.size)) == expected

    def _report(self, arrived: int = 0) -> None:
        report_progress(arrived)
        if self._progress is not None:
            self._progress(self._done + arrived, self.total)


def _announced(store: Store) -> Callable[[int, int], object] | None:
    """Return a `progress` that warns of a long fetch, if `Store.on_wait` is "announce"."""
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
        speed = size(int((done - first) / (now - begun)))
        logging.getLogger("onecopy").warning("onecopy: fetching: %s of %s, %s/s", size(done), size(total), speed)

    return progress
