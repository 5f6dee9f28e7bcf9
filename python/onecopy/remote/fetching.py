"""`fetch`: a file behind a URL, once per machine."""

from __future__ import annotations

import errno
import fnmatch
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from onecopy.arguments import is_url, path_text
from onecopy.errors import FormatError
from onecopy.named_files import is_inside, names_in
from onecopy.remote.origin import Origin, is_http, shown
from onecopy.remote.pieces import PartialFile
from onecopy.remote.transfer import CONNECTIONS, transfer
from onecopy.store import Store, report_progress, views
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from onecopy.remote.origin import Version
    from onecopy.store import Artefact

__all__ = ["fetch", "local"]

_FIRST_LINE_S, _LINE_INTERVAL_S = 2.0, 5.0  # until the first line about a long fetch; between two
_ASKED_AT_A_TIME = 16


def local(path: str | os.PathLike[str]) -> str:
    """Return the path of a local file: `path`, or, if it is a URL, that of the file that `fetch` returns."""
    return os.fspath(fetch(path)) if is_url(path) else path_text(path)


def fetch(
    url: str,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    include: Sequence[str] = ("*",),
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
    view = views.view(opened.folder, opened.path(f"view of {found.key}").stem)
    path = views.link(view, _name_in(url), found.path)
    many.all(url, names_in(path), view)
    return path


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
        origins = [Origin(_below(url, name)) for name in wanted]
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
        key = origin.key(version)

        def build(path: Path) -> None:
            partial = PartialFile(path, key, version.size)
            try:
                before = self._done + partial.have.size

                def report(arrived: int) -> None:
                    report_progress(before - self._done + arrived)
                    if self._progress is not None:
                        self._progress(before + arrived, self._total)

                transfer(origin, version, partial, [(0, version.size)], connections=self._connections, progress=report)
                partial.publish(path)
            finally:
                partial.close()

        found = self._store.get_or_build(key, build)
        self._done += version.size
        return found


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


def _below(url: str, name: str) -> str:
    """Return the URL of a file in the folder of a URL; of HTTP with its query, which may be signed."""
    if not is_http(url):
        return f"{url.rpartition('/')[0]}/{name}"
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{quote(name)}"))
