"""`fetch`: a file behind a URL, once per machine."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, Union
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from onecopy.arguments import is_url, path_text
from onecopy.errors import FormatError
from onecopy.named_files import is_inside, names_in
from onecopy.remote.origin import Origin, is_http, shown
from onecopy.remote.peers import PeerLostError, exchange
from onecopy.remote.pieces import PartialFile, Ranges, WholeFile
from onecopy.remote.transfer import CONNECTIONS, transfer
from onecopy.store import Store, report_progress, views
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from onecopy.remote.gloo import Rendezvous
    from onecopy.remote.origin import Version
    from onecopy.remote.peers import Group
    from onecopy.store import Artefact

__all__ = ["Peers", "beside", "fetch", "fetch_ranges", "local"]

Peers: TypeAlias = Union["Sequence[str]", Literal["torchrun"], None]

_FIRST_LINE_S, _LINE_INTERVAL_S = 2.0, 5.0  # until the first line about a long fetch; between two
_ASKED_AT_A_TIME = 16
_FIRST_BYTES = 256 << 10
"""Fetched first where the header is needed: that of most models, in one request."""
_LONGEST_HEADER = 100_000_008
_LARGEST_GAP = 1 << 20
"""Bytes that are fetched rather than asking for what is behind them with another request."""

T = TypeVar("T")


def local(path: str | os.PathLike[str]) -> str:
    """Return the path of a local file: `path`, or, if it is a URL, that of the file that `fetch` returns."""
    return os.fspath(fetch(path)) if is_url(path) else path_text(path)


def fetch(
    url: str,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    include: Sequence[str] = ("*",),
    named: bool = True,
    connections: int = CONNECTIONS,
    peers: Peers = None,
    progress: Callable[[int, int], object] | None = None,
) -> Path:
    """Fetch a file behind a URL into a store, unless the store has its current version, and return its local path.

    Of all processes of the machine that request a URL at the same time, one fetches; the others wait for it. The path
    ends with the name of the object, and leads to the file of the store, the same for all processes. The files that
    an index of shards or an ONNX model names are fetched too, beside it. The current version is asked
    for in each call. The file is not flushed to the disk (``Store(durable=False)``), because
    it can be fetched again.

    Parameters
    ----------
    url
        ``s3://``, ``gs://``, ``az://``, ``https://``, ``http://`` or ``file://``. If it ends with "/": all objects
        directly below it, and the result is the path of a folder; not for HTTP, which has no listing.
    store
        A store or its folder; None: the default store.
    include
        Patterns as in `fnmatch`, one of which the name of an object must match; of a URL that ends with "/".
    named
        Whether to fetch the files that an index or a model names, too.
    connections
        Number of requests at a time.
    peers
        Nodes of one job that fetch together: each fetches other pieces from the origin, and passes them on to the
        others, so that the origin sends the file once, not once per node. "torchrun": the nodes of the job in which
        torchrun started this process. A list: the addresses of all nodes, in the same order on all of them, of which
        exactly one is of this machine; the first serves a port (":PORT" behind it, 29600) until its process ends. Each
        node must make the same call, within 60 seconds. The first process of a node that calls takes part, the others
        wait for it. A node that fails or does not come is reported with a warning of the logger "onecopy", and each
        other node fetches from the origin what it still lacks. Needs torch, whose gloo transport passes pieces on:
        neither encrypted nor authenticated, for private networks. None: each node fetches all.
    progress
        Called about 10 times per second with (bytes received, bytes to receive) by the process that fetches. None: a
        warning of the logger "onecopy" after 2 seconds, then every 5.

    Raises
    ------
    OSError
        FileNotFoundError, PermissionError, ConnectionError (the server cannot be reached or keeps failing), or the disk
        is full; ``filename`` is the URL without user, password and query, or the path. What arrived is kept for the
        next call.
    FileChanged
        The object was replaced while it was fetched.
    ModuleNotFoundError
        obstore is not installed.
    ValueError
        The URL names no file.
    FormatError
        The file is an index or a model that is damaged, or names files outside its folder.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "vocabulary.txt")
    >>> _ = path.write_text("the")
    >>> fetch(path.as_uri()) == path  # a local file is not copied
    True
    """
    if not is_url(url):
        raise ValueError(f"not a URL that can be fetched: {url!r}")
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"{url}: a file URL of another machine")
        return Path(unquote(parts.path))
    opened = Store.of(store).with_options(where="here", durable=False)
    many = _Many(opened, connections, progress)
    if url.endswith("/"):
        return many.folder(url, include, peers)
    origin = Origin(url)
    version = origin.version()
    many.expect(version.size)
    with many.together(peers, origin.key(version)):
        path = _linked(opened, url, many.one(origin, version))
        if named:
            many.all(url, names_in(path), path.parent)
    return path


def _linked(store: Store, url: str, artefact: Artefact) -> Path:
    view = views.view(store.folder, store.path(f"view of {artefact.key}").stem)
    return views.link(view, _name_in(url), artefact.path)


def fetch_ranges(
    url: str,
    ranges_of: Callable[[Path], Iterable[tuple[int, int]]],
    use: Callable[[Path], T],
    *,
    store: Store | str | os.PathLike[str] | None = None,
    connections: int = CONNECTIONS,
    progress: Callable[[int, int], object] | None = None,
) -> T:
    """Fetch the header of a safetensors file and some ranges of its data, unless the store has them; use the file.

    What earlier calls fetched is kept, so that the file becomes whole when all of its ranges were asked for. A file of
    another format is fetched whole.

    Parameters
    ----------
    url
        As that of `fetch`, of one file.
    ranges_of
        Called with the path of a file that has the header: returns the ranges that are needed, as (offset, length).
    use
        Called with the path of a file that has these ranges, to open it; other ranges may read as zeros. The path may
        be gone when `fetch_ranges` returns.

    Returns
    -------
    What `use` returned. Errors are those of `fetch`, of `ranges_of` and of `use`.
    """
    if urlsplit(url).scheme == "file":
        return use(fetch(url))
    opened = Store.of(store).with_options(where="here", durable=False)
    many = _Many(opened, connections, progress)
    origin = Origin(url)
    version = origin.version()
    found = opened.find(origin.key(version))
    if found is None:
        used: list[T] = []
        try:
            found = many.some(origin, version, ranges_of, lambda path: used.append(use(path)))
        except _InPartError:
            return used[0]
    return use(_linked(opened, url, found))


class _InPartError(Exception):
    """Ends a build whose file is not whole, so that it is not published."""


class _Many:
    """One or several files, with one account of the progress."""

    def __init__(self, store: Store, connections: int, progress: Callable[[int, int], object] | None) -> None:
        self._store, self._connections = store, connections
        self._progress = progress if progress is not None else _announced(store)
        self._done = 0
        self._total = 0
        self._group: Group | None = None
        self._begin: Callable[[], object] = lambda: None

    def expect(self, nbytes: int) -> None:
        """Count the bytes of a file that will be fetched, for the progress."""
        self._total += nbytes

    @contextlib.contextmanager
    def together(self, peers: Peers, key: str) -> Iterator[None]:
        """Fetch inside the block with the nodes of a job, if this is the process of its node that takes part."""
        rendezvous = None if peers is None else _rendezvous(peers, key)
        if rendezvous is None:
            yield
            return
        if not rendezvous.takes_part:
            rendezvous.wait()
            yield
            return
        self._begin = rendezvous.begin
        try:
            try:
                self._group = rendezvous.join(self._store)
            except PeerLostError as error:
                _warn_of(error)
            yield
            if self._group is not None:
                with contextlib.suppress(PeerLostError):  # all is here; others may still read what this node sent
                    self._group.gather(b"")
        finally:
            self._begin()
            if self._group is not None:
                self._group.close()

    def _exchange(
        self,
        key: str,
        file: PartialFile | WholeFile,
        fetch: Callable[[list[tuple[int, int]], Callable[[int], object]], object],
        progress: Callable[[int], object] | None,
    ) -> None:
        """Make a file whole together with other nodes; if one is lost, it may lack pieces afterwards."""
        if self._group is None:
            return
        try:
            exchange(self._group, key, file, fetch, progress=progress)
        except PeerLostError as error:
            _warn_of(error)
            self._group.close()
            self._group = None

    def folder(self, url: str, include: Sequence[str], peers: Peers) -> Path:
        """Fetch all objects below a URL; the view is that of the names and versions that it has now."""
        listed = [name for name in Origin(url).names() if name and any(fnmatch.fnmatch(name, one) for one in include)]
        if not listed:
            raise FileNotFoundError(errno.ENOENT, f"no object has a name like {', '.join(include)}", shown(url))
        key = f"view of {shown(url)} {sorted(listed)}"
        view = views.view(self._store.folder, self._store.path(key).stem)
        with self.together(peers, key):
            self.all(url, listed, view)
        return view

    def all(self, url: str, names: Iterable[str], view: Path) -> None:
        """Fetch files in the folder of a URL, and link them in a view."""
        from concurrent.futures import ThreadPoolExecutor  # here, because a single file needs none

        wanted = list(dict.fromkeys(names))
        origins = [Origin(beside(url, name)) for name in wanted]
        with ThreadPoolExecutor(min(_ASKED_AT_A_TIME, len(origins) or 1)) as pool:
            versions = list(pool.map(Origin.version, origins))
        self.expect(sum(version.size for version in versions))
        for name, origin, version in zip(wanted, origins, versions, strict=True):
            if not is_inside(name):
                raise FormatError(f"{origin.shown}: the name {name!r} is not that of a file inside a folder")
            found = self.one(origin, version)
            inner = view / Path(name).parent
            inner.mkdir(mode=0o700, parents=True, exist_ok=True)
            views.link(inner, Path(name).name, found.path)

    def one(self, origin: Origin, version: Version) -> Artefact:
        """Return the artefact of a file, fetched here if no process has."""
        key, built_here = origin.key(version), False

        def work(partial: PartialFile, fetch: Callable[[list[tuple[int, int]]], None]) -> None:
            nonlocal built_here
            built_here = True

            def part(ranges: list[tuple[int, int]], arrived: Callable[[int], object]) -> None:
                transfer(origin, version, partial, ranges, connections=self._connections, progress=arrived)

            self._exchange(key, partial, part, self._report)
            fetch([(0, version.size)])

        found = self._built(origin, version, work)
        if not built_here and self._group is not None:
            with contextlib.closing(WholeFile(found.path)) as file:
                self._exchange(key, file, lambda *_: None, None)
        self._done += version.size
        return found

    def _report(self, arrived: int) -> None:
        report_progress(arrived)
        if self._progress is not None:
            self._progress(self._done + arrived, self._total)

    def some(
        self,
        origin: Origin,
        version: Version,
        ranges_of: Callable[[Path], Iterable[tuple[int, int]]],
        use: Callable[[Path], object],
    ) -> Artefact:
        """Fetch the header and some ranges, and use the file under the claim; _InPartError if it is not whole then."""

        def work(partial: PartialFile, fetch: Callable[[list[tuple[int, int]]], None]) -> None:
            self._total = min(_FIRST_BYTES, version.size)
            fetch([(0, self._total)])
            header = 8 + int.from_bytes(partial.read(0, 8), "little")
            ranges = [(0, version.size)]
            if header <= min(version.size, _LONGEST_HEADER):
                fetch([(0, header)])
                with contextlib.suppress(FormatError):  # not a safetensors file
                    ranges = merged([(at, at + length) for at, length in ranges_of(partial.path)])
            self._total = sum(stop - start for start, stop in ranges)
            fetch(ranges)
            if not partial.is_whole:
                use(partial.path)
                raise _InPartError

        return self._built(origin, version, work)

    def _built(
        self,
        origin: Origin,
        version: Version,
        work: Callable[[PartialFile, Callable[[list[tuple[int, int]]], None]], None],
    ) -> Artefact:
        key = origin.key(version)

        def build(path: Path) -> None:
            partial = PartialFile(path, key, version.size)

            def fetch(ranges: list[tuple[int, int]]) -> None:
                before = sum(stop - start for start, stop in ranges) - sum(
                    stop - start for one in ranges for start, stop in partial.have.missing(*one)
                )
                transfer(
                    origin,
                    version,
                    partial,
                    ranges,
                    connections=self._connections,
                    progress=lambda arrived: self._report(before + arrived),
                )

            try:
                self._begin()
                work(partial, fetch)
                partial.publish(path)
            finally:
                partial.close()

        return self._store.get_or_build(key, build)


def _rendezvous(peers: Literal["torchrun"] | Sequence[str], key: str) -> Rendezvous | None:
    """Return the way into the group of the nodes; None if there is one node, or they cannot be reached."""
    try:
        from onecopy.remote import gloo

        if isinstance(peers, str) and peers != "torchrun":
            raise ValueError(f"peers must be 'torchrun' or a list of addresses, not {peers!r}")
        job = gloo.job_of_torchrun() if isinstance(peers, str) else gloo.job_of_addresses(peers)
        return gloo.Rendezvous(job, key) if job.size > 1 else None
    except PeerLostError as error:
        _warn_of(error)
        return None


def _warn_of(error: PeerLostError) -> None:
    import logging

    logging.getLogger("onecopy").warning("onecopy: %s; what is missing comes from the origin", error)


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, joined across small gaps, so that there are fewer requests; gaps add 2 % at most.

    Examples
    --------
    >>> merged([(5000, 9000), (0, 4000), (4010, 5000), (10**6, 10**6 + 10)])
    [(0, 9000), (1000000, 1000010)]
    """
    found = Ranges()
    for start, stop in ranges:
        found.add(start, stop)
    left = found.size // 50
    gaps = sorted((after[0] - before[1], before[1], after[0]) for before, after in pairwise(found))
    for gap, start, stop in gaps:
        if gap > min(left, _LARGEST_GAP):
            break
        left -= gap
        found.add(start, stop)
    return list(found)


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


def _path_in(url: str) -> str:
    return urlsplit(url).path if is_http(url) else url.partition("://")[2]


def _name_in(url: str) -> str:
    """Return the name of the object of a URL; "index" if it has none that a file can have."""
    name = _path_in(url).rpartition("/")[2]
    name = unquote(name) if is_http(url) else name
    return name if name not in ("", ".", "..") and "/" not in name and "\0" not in name else "index"


def beside(url: str, name: str) -> str:
    """Return the URL of a file in the folder of a URL; of HTTP with its query, which may be signed."""
    if not is_http(url):
        return f"{url.rpartition('/')[0]}/{name}"
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{quote(name)}"))
