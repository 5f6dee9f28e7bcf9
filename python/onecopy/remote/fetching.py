"""`fetch`: a file behind a URL, once per machine."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from onecopy.arguments import is_url, path_text
from onecopy.errors import FormatError
from onecopy.named_files import is_inside, names_in
from onecopy.remote.origin import Origin, is_http, shown
from onecopy.remote.pieces import Ranges
from onecopy.remote.several import InPartError, Several, versions_of
from onecopy.remote.transfer import CONNECTIONS
from onecopy.store import Store, views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from onecopy.remote.origin import Version
    from onecopy.remote.partners import Peers
    from onecopy.store import Artefact

__all__ = ["beside", "fetch", "fetch_ranges", "fetch_versions", "local", "name_in"]

_FIRST_BYTES = 256 << 10
"""Fetched first where the header is needed: that of most models, in one request."""
_LONGEST_HEADER = 100_000_008
_LARGEST_GAP = 1 << 20
"""Bytes that are fetched rather than asking for what is behind them with another request."""

T = TypeVar("T")


def local(path: str | os.PathLike[str], peers: Peers = None) -> str:
    """Return the path of a local file: `path`, or, if it is a URL, that of the file that `fetch` returns."""
    return os.fspath(fetch(path, peers=peers)) if is_url(path) else path_text(path)


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
        Nodes that fetch together: each fetches other pieces from the origin, and passes them on to the others, so that
        the origin sends the file once, not once per node. What is passed on is neither encrypted nor authenticated: for
        private networks. A node that fails or does not come is reported with a warning of the logger "onecopy", and
        each other node fetches from the origin what it still lacks. None: each node fetches all.

        "torchrun": the nodes of the job in which torchrun started this process. A list: the addresses of all nodes, in
        the same order on all of them, of which exactly one is of this machine; the first serves a port (":PORT" behind
        it, 29600) until its process ends. For both, each node must make the same call, within 60 seconds; the first
        process of a node that calls takes part, the others wait for it. They need torch, whose gloo transport passes
        pieces on.

        "ray": the nodes of the Ray cluster that lack the file and call within a second of each other; a node that comes
        later waits for them, and receives the file from those that have it. Pieces are passed on as Ray objects.
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
        obstore is not installed, or what `peers` needs.
    RuntimeError
        The process is not one of a job of torchrun, or of a Ray cluster, as `peers` says.
    ValueError
        The URL names no file, or `peers` is invalid.
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
    many = Several(opened, connections, progress)
    if url.endswith("/"):
        return _folder(opened, many, url, include, peers)
    origin = Origin(url)
    version = origin.version()
    many.expect(version.size)
    with many.together(peers, origin.key(version)):
        path = _linked(opened, url, many.one(origin, version))
        if named:
            _fetch_beside(many, url, names_in(path), path.parent)
    return path


def fetch_versions(
    files: Sequence[tuple[str, Origin, Version]],
    *,
    store: Store | str | os.PathLike[str] | None = None,
    peers: Peers = None,
) -> Path:
    """Fetch files of known versions, unless the store has them; the origins are not asked for their current versions.

    Parameters
    ----------
    files
        Of each file: its name relative to the first, its origin and its version.
    store, peers
        As those of `fetch`.

    Returns
    -------
    Path of the first file; the others are beside it, under their names. Errors are those of `fetch`, and `FileChanged`
    if a file that is fetched has another version.
    """
    opened = Store.of(store).with_options(where="here", durable=False)
    many = Several(opened, CONNECTIONS, None)
    name, origin, version = files[0]
    key = f"view of {origin.key(version)}"
    view = views.view(opened.folder, opened.path(key).stem)
    with many.together(peers, key):
        _fetch_into(many, view, files)
    return view / name


def _folder(store: Store, many: Several, url: str, include: Sequence[str], peers: Peers) -> Path:
    """Fetch all objects below a URL; the view is that of the names and versions that it has now."""
    listed = [name for name in Origin(url).names() if name and any(fnmatch.fnmatch(name, one) for one in include)]
    if not listed:
        raise FileNotFoundError(errno.ENOENT, f"no object has a name like {', '.join(include)}", shown(url))
    key = f"view of {shown(url)} {sorted(listed)}"
    view = views.view(store.folder, store.path(key).stem)
    with many.together(peers, key):
        _fetch_beside(many, url, listed, view)
    return view


def _fetch_beside(many: Several, url: str, names: Iterable[str], view: Path) -> None:
    """Fetch files in the folder of a URL, in their current versions, and link them in a view."""
    wanted = list(dict.fromkeys(names))
    origins = [Origin(beside(url, name)) for name in wanted]
    _fetch_into(many, view, list(zip(wanted, origins, versions_of(origins), strict=True)))


def _fetch_into(many: Several, view: Path, files: Sequence[tuple[str, Origin, Version]]) -> None:
    many.expect(sum(version.size for _, _, version in files))
    for name, origin, version in files:
        if not is_inside(name):
            raise FormatError(f"{origin.shown}: the name {name!r} is not that of a file inside a folder")
        found = many.one(origin, version)
        views.link((view / name).parent, Path(name).name, found.path)


def _linked(store: Store, url: str, artefact: Artefact) -> Path:
    view = views.view(store.folder, store.path(f"view of {artefact.key}").stem)
    return views.link(view, name_in(url), artefact.path)


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
    origin = Origin(url)
    version = origin.version()

    def steps(path: Path, first: Callable[[int], bytes]) -> Iterator[list[tuple[int, int]]]:
        yield [(0, min(_FIRST_BYTES, version.size))]
        header = 8 + int.from_bytes(first(8), "little")
        ranges = [(0, version.size)]
        if header <= min(version.size, _LONGEST_HEADER):
            yield [(0, header)]
            with contextlib.suppress(FormatError):  # not a safetensors file
                ranges = merged([(at, at + length) for at, length in ranges_of(path)])
        yield ranges

    found = opened.find(origin.key(version))
    if found is None:
        used: list[T] = []
        try:
            many = Several(opened, connections, progress)
            found = many.some(origin, version, steps, lambda path: used.append(use(path)))
        except InPartError:
            return used[0]
    return use(_linked(opened, url, found))


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


def _path_in(url: str) -> str:
    return urlsplit(url).path if is_http(url) else url.partition("://")[2]


def name_in(url: str) -> str:
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
