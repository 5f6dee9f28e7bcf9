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

    from onecopy.remote.nodes import Nodes
    from onecopy.remote.origin import Version
    from onecopy.store import Artefact

__all__ = ["fetch", "fetch_ranges", "fetch_versions"]

_FIRST_BYTES = 256 << 10
"""Size of the first request for a header, which contains that of most models."""
_LONGEST_HEADER = 100_000_008
_LARGEST_GAP = 1 << 20
"""Maximum gap between two ranges that is fetched too, because that is faster than another request."""
_FIRST_LINE_S, _LINE_INTERVAL_S = 2.0, 5.0  # until the first line about a long fetch; between two

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
        the origin sends the file once, not once per node. If a node fails, the logger "onecopy" warns of it, and the
        others fetch what they lack from the origin. The whole file is compared with its hash if an HTTP server reports
        one. None: each node fetches everything.

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
        is full; ``filename`` is the URL without user, password and query, or the path. The next call continues with
        what has arrived.
    FileChanged
        The object was replaced while it was fetched.
    ModuleNotFoundError
        obstore is not installed, or what `nodes` needs.
    RuntimeError
        The process is not one of a job of torchrun, or of a Ray cluster, as `nodes` says.
    ValueError
        The URL names no file, or `nodes` is invalid.
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
            raise ValueError(f"{shown(url)}: a file URL of another machine")
        return Path(unquote(slash + below))
    many = Several(store, connections, progress)
    origin = Origin(url)
    if url.endswith("/"):
        found = [name for name in waited(origin.names()) if name and any(fnmatch.fnmatch(name, one) for one in names)]
        if not found:
            raise FileNotFoundError(errno.ENOENT, f"no object has a name like {', '.join(names)}", origin.shown)
        view = many.view(f"{origin.shown} {sorted(found)}")
        with many.together(nodes):
            many.beside(origin, found, view)
        return view
    [version] = versions_of([origin])
    view = many.view(origin.key(version))
    with many.together(nodes):
        many.into(view, [(origin.name, origin, version)])
        if named:
            many.beside(origin, names_in(view / origin.name), view)
    return view / origin.name


def fetch_versions(files: Sequence[tuple[str, Origin, Version]], *, nodes: Nodes = None) -> Path:
    """Fetch files of known versions into the default store; the servers are not asked for their current versions.

    Each file is given by its name relative to the first, its origin and its version. The result is the path of the
    first file; the others are beside it, under their names. Errors are those of `fetch`, and `FileChanged` if a file
    that is fetched has another version.
    """
    many = Several()
    name, origin, version = files[0]
    view = many.view(origin.key(version))
    with many.together(nodes):
        many.into(view, files)
    return view / name


def fetch_ranges(
    origin: Origin,
    version: Version,
    ranges_of: Callable[[Path], Iterable[tuple[int, int]]],
    use: Callable[[Path], T],
) -> T:
    """Fetch the header of a safetensors file and some ranges of its data, unless the store has them; use the file.

    What earlier calls fetched is kept, so that the file becomes whole when all of its ranges were asked for. A file of
    another format is fetched whole.

    `ranges_of` is called with the path of a file that has the header: it returns the ranges that are needed, as
    (offset, length). `use` is called with the path of a file that has these ranges, which may be gone afterwards; other
    ranges may read as zeros. Its result is returned. Errors are those of `fetch`, of `ranges_of` and of `use`, and
    `FileChanged` if something is missing and the server has another version.
    """
    many = Several()

    def steps(partial: PartialFile) -> Iterator[list[tuple[int, int]]]:
        many.total = min(_FIRST_BYTES, version.size)
        yield [(0, many.total)]
        header = 8 + int.from_bytes(partial.read(0, 8), "little")
        ranges = [(0, version.size)]
        if header <= min(version.size, _LONGEST_HEADER):
            yield [(0, header)]
            with contextlib.suppress(FormatError):  # not a safetensors file
                ranges = merged([(at, at + length) for at, length in ranges_of(partial.path)])
        many.total = sum(stop - start for start, stop in ranges)
        yield ranges

    found = many.store.find(origin.key(version))
    if found is None:
        used: list[T] = []
        try:
            found = many.built(origin, version, steps, lambda path: used.append(use(path)))
        except InPartError:
            return used[0]
    return use(views.link(many.view(found.key), origin.name, found.path))


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


class InPartError(Error):
    """Ends a build whose file is not whole, so that it is not published."""


def partners_of(nodes: str, store: Store) -> Partners:
    """Return the nodes that `nodes` names; none, with a warning, where they cannot be reached.

    RuntimeError if this process is not of a job or cluster as `nodes` says, ValueError if it is another word.
    """
    if nodes == "torchrun":
        from onecopy.remote import torchrun  # needs torch

        return torchrun.partners(store)
    if nodes == "ray":
        from onecopy.remote import ray  # needs Ray

        return ray.RayNodes()
    raise ValueError(f"nodes must be 'ray' or 'torchrun', not {nodes!r}")


class Several:
    """One or several files of known versions, fetched into a store with one account of the progress.

    Parameters are those of `fetch`; the option `on_wait` of a store says whether a long fetch is announced.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        connections: int = CONNECTIONS,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self.store = Store.of(store).with_options(where="here", durable=False)
        """Where the files are kept."""
        self.total = 0
        """Bytes of the files, for the progress."""
        self._connections = connections
        self._progress = progress if progress is not None else _announced(self.store)
        self._done = 0
        self._partners = Partners()

    @contextlib.contextmanager
    def together(self, nodes: Nodes) -> Iterator[None]:
        """Fetch inside the block with other nodes."""
        if nodes is not None:
            [self._partners] = run([lambda: partners_of(nodes, self.store)], report=lambda: self._report(0), wait=False)
        try:
            yield
        except BaseException:
            self._partners.stop()
            raise

    def view(self, what: str) -> Path:
        """Return the folder with links to what was fetched under a key or a list of names."""
        return views.view(self.store.folder, self.store.path(f"view of {what}").stem)

    def beside(self, origin: Origin, names: Iterable[str], view: Path) -> None:
        """Fetch files in the folder of an origin, in their current versions, and link them in a view."""
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if not is_inside(name):
                what = f"the name {name!r} is not that of a file inside a folder"
                raise FormatError(what, Kind.OUT_OF_BOUNDS, path=origin.shown)
        origins = [origin.beside(name) for name in wanted]
        self.into(view, list(zip(wanted, origins, versions_of(origins), strict=True)))

    def into(self, view: Path, files: Sequence[tuple[str, Origin, Version]]) -> None:
        """Fetch files, each given by a name in a view, its origin and its version, and link them there."""
        self.total += sum(version.size for _, _, version in files)
        used: list[Artefact] = []  # in use until all are there, so that the limit of the store removes none of them
        for name, origin, version in files:
            used.append(self.one(origin, version))
            views.link(view, name, used[-1].path)

    def one(self, origin: Origin, version: Version) -> Artefact:
        """Return the artefact of a file, fetched here if no process has."""
        key = origin.key(version)

        def steps(partial: PartialFile) -> Iterator[list[tuple[int, int]]]:
            partial.expect_room(version.size - partial.have.size)
            fetch = functools.partial(self._transfer, origin, version, partial) if origin.serves else None
            self._partners.exchange(key, partial, fetch, self._report)
            yield [(0, version.size)]

        self._partners.begin(key, self.store, lambda: self._report(0))
        found = self.built(origin, version, steps)
        self._partners.found(key, found.path, lambda: self._report(0))
        self._done += version.size
        return found

    def built(
        self,
        origin: Origin,
        version: Version,
        steps: Callable[[PartialFile], Iterator[list[tuple[int, int]]]],
        use: Callable[[Path], object] | None = None,
    ) -> Artefact:
        """Return the artefact of a file of which ranges are fetched in steps.

        `steps` yields the ranges, as (start, stop), of which each step is fetched before the next is asked for. If the
        file is not whole then, `use` is called with its path under the claim, and InPartError is raised.
        """

        def build(path: Path) -> None:
            partial = PartialFile(path, origin.key(version), version.size)
            is_of_nodes = self._partners.has_nodes or partial.have.size > 0  # or of an earlier call that had nodes
            try:
                for ranges in steps(partial):
                    missing = sum(stop - start for one in ranges for start, stop in partial.have.missing(*one))
                    before = sum(stop - start for start, stop in ranges) - missing
                    partial.expect_room(missing)
                    report = functools.partial(self._report, before)
                    self._transfer(origin, version, partial, ranges, report)
                if use is not None and not partial.is_whole:
                    use(partial.path)
                    raise InPartError
                if is_of_nodes and version.digest is not None:
                    name, expected = version.digest
                    if partial.digest(name, lambda: self._report(version.size)) != expected:
                        text = "onecopy: %s: the %s is not that of the origin; the file is fetched from there again"
                        logging.getLogger("onecopy").warning(text, origin.shown, name)
                        partial.forget()
                        self._transfer(origin, version, partial, [(0, version.size)], self._report)
                partial.publish(path)
            finally:
                partial.close()

        return self.store.get_or_build(origin.key(version), build)

    def _transfer(
        self,
        origin: Origin,
        version: Version,
        partial: PartialFile,
        ranges: Iterable[tuple[int, int]],
        arrived: Callable[[int], object],
    ) -> None:
        transfer(origin, version, partial, ranges, arrived, connections=self._connections)

    def _report(self, before: int, arrived: int = 0) -> None:
        report_progress(before + arrived)
        if self._progress is not None:
            self._progress(self._done + before + arrived, self.total)


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
        speed = size(int((done - first) / (now - begun)))
        logging.getLogger("onecopy").warning("onecopy: fetching: %s of %s, %s/s", size(done), size(total), speed)

    return progress
