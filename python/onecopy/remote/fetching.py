"""`fetch`: a file behind a URL, once per machine."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from onecopy.arguments import is_url, path_text
from onecopy.errors import FormatError
from onecopy.named_files import is_inside, names_in
from onecopy.remote.origin import Origin, is_http, shown
from onecopy.remote.pieces import PartialFile, Ranges
from onecopy.remote.transfer import CONNECTIONS, transfer
from onecopy.store import Store, report_progress, views
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from onecopy.remote.origin import Version
    from onecopy.store import Artefact

__all__ = ["beside", "fetch", "fetch_ranges", "local"]

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
        return many.folder(url, include)
    origin = Origin(url)
    found = many.one(origin)
    path = _linked(opened, url, found)
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

    def folder(self, url: str, include: Sequence[str]) -> Path:
        """Fetch all objects below a URL; the view is that of the names and versions that it has now."""
        listed = [name for name in Origin(url).names() if name and any(fnmatch.fnmatch(name, one) for one in include)]
        if not listed:
            raise FileNotFoundError(errno.ENOENT, f"no object has a name like {', '.join(include)}", shown(url))
        view = views.view(self._store.folder, self._store.path(f"view of {shown(url)} {sorted(listed)}").stem)
        self.all(url, listed, view)
        return view

    def all(self, url: str, names: Iterable[str], view: Path) -> None:
        """Fetch files in the folder of a URL, and link them in a view."""
        from concurrent.futures import ThreadPoolExecutor  # here, because a single file needs none

        wanted = list(dict.fromkeys(names))
        origins = [Origin(beside(url, name)) for name in wanted]
        with ThreadPoolExecutor(min(_ASKED_AT_A_TIME, len(origins) or 1)) as pool:
            versions = list(pool.map(Origin.version, origins))
        self._total += sum(version.size for version in versions)
        for name, origin, version in zip(wanted, origins, versions, strict=True):
            if not is_inside(name):
                raise FormatError(f"{origin.shown}: the name {name!r} is not that of a file inside a folder")
            found = self.one(origin, version)
            inner = view / Path(name).parent
            inner.mkdir(mode=0o700, parents=True, exist_ok=True)
            views.link(inner, Path(name).name, found.path)

    def one(self, origin: Origin, version: Version | None = None) -> Artefact:
        """Return the artefact of a file, fetched here if no process has."""
        if version is None:
            version = origin.version()
            self._total += version.size
        whole = [(0, version.size)]
        found = self._built(origin, version, lambda _, fetch: fetch(whole))
        self._done += version.size
        return found

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
            before = 0

            def report(arrived: int) -> None:
                report_progress(before + arrived)
                if self._progress is not None:
                    self._progress(self._done + before + arrived, self._total)

            def fetch(ranges: list[tuple[int, int]]) -> None:
                nonlocal before
                before = sum(stop - start for start, stop in ranges) - sum(
                    stop - start for one in ranges for start, stop in partial.have.missing(*one)
                )
                transfer(origin, version, partial, ranges, connections=self._connections, progress=report)

            try:
                work(partial, fetch)
                partial.publish(path)
            finally:
                partial.close()

        return self._store.get_or_build(key, build)


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
