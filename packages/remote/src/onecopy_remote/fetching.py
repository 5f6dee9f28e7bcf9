"""`fetch`: fetch one or more files from URLs into a store, once per machine."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import functools
import logging
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from onecopy.base.text import is_url, size
from onecopy.errors import Error, FormatError, Kind
from onecopy.files.companions import is_inside, names_in
from onecopy.store import Store, report_progress
from onecopy.store.location import is_offline, local_path
from onecopy.store.pieces import PartialFile, Ranges
from onecopy.store.store import VIEWS
from onecopy_remote import views
from onecopy_remote.nodes import Partners
from onecopy_remote.origin import Origin, lacking, shown, versions_of
from onecopy_remote.steps import run, waited
from onecopy_remote.transfer import CONNECTIONS, transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from onecopy.store import Artefact
    from onecopy.store.location import Nodes
    from onecopy_remote.nodes import Fetch, Piece
    from onecopy_remote.origin import Version

_FIRST_BYTES = 256 << 10
"""Size of the first request for a header, which is enough for most models."""
_LONGEST_HEADER = 100_000_008
_LARGEST_GAP = 1 << 20
"""Maximum gap across which two ranges are fetched as one, because that is faster than a second request."""
_FIRST_LINE_S, _LINE_INTERVAL_S = 2.0, 5.0
"""Seconds before the first message about a long fetch, and between two messages."""

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
    """Fetch a file from a URL into a store, unless the store has its current version, and return its local path.

    If several processes on the machine request a URL at the same time, one of them fetches it and the others wait. The
    path ends with the object's name and leads to the file in the store, which all processes share. Files that a shard
    index or an ONNX model names are also fetched, into the same folder. Each call asks the server for the current
    version. With ``ONECOPY_OFFLINE=1``, no server receives a request, and the result is the newest complete copy in the
    store; the logger "onecopy" warns once and states its version.

    Parameters
    ----------
    url
        ``s3://``, ``gs://``, ``az://``, ``https://``, ``http://`` or ``file://``. If the URL ends with "/", all objects
        directly below it are fetched, and the result is the path of a folder. HTTP cannot list folders.
    store
        A store or its folder; None: the default store. Only a `Store` with ``durable=True`` flushes files to the disk;
        otherwise, a file that a restart of the machine may have damaged is fetched again.
    names
        For a URL that ends with "/": `fnmatch` patterns. Only objects whose names match one of them are fetched.
    named
        Whether to also fetch the files that an index or a model names.
    connections
        Maximum number of concurrent requests.
    nodes
        The nodes that fetch together. Each fetches different pieces from the origin and sends them to the others, so
        that the origin sends the file only once. If a node fails, the logger "onecopy" warns, and the others fetch the
        missing pieces from the origin. If an HTTP server reports a hash, the whole file is compared with it. None: each
        node fetches everything.

        "torchrun": the nodes in the torchrun job to which this process belongs. Each process must make the same calls
        in the same order, within 60 seconds of the others; the first process of each node fetches, and the others wait.
        The pieces are sent by a separate Gloo group of torch.distributed.

        "ray": the nodes of the Ray cluster that request the file at the same time, and those that already have it. The
        pieces are sent through Ray's object store, at most 32 MiB at a time for each node.
    progress
        Called about 10 times per second with (bytes received, bytes to receive) in the process that fetches. None: the
        logger "onecopy" reports progress after 2 seconds, and then every 5 seconds.

    Raises
    ------
    OSError
        FileNotFoundError, PermissionError, ConnectionError (the server cannot be reached or fails repeatedly), or the
        disk is full. ``filename`` is the URL without user, password and query, or the path. The next call resumes the
        fetch. With ``ONECOPY_OFFLINE=1``: FileNotFoundError if the store has no complete copy.
    FileChanged
        The object was replaced while it was being fetched.
    ModuleNotFoundError
        `nodes` needs torch or Ray, which is not installed.
    RuntimeError
        `nodes` requires a torchrun job or a Ray cluster, but the process does not belong to one.
    ValueError
        The URL does not name a file, or `nodes` is invalid.
    FormatError
        The file is an index or a model, and it is damaged or names files outside of its folder.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "vocabulary.txt")
    >>> _ = path.write_text("the")
    >>> fetch(path.as_uri()) == path  # a local file is not copied
    True
    """
    if not is_url(url):
        raise ValueError(f"cannot fetch {shown(url)!r}: expected a URL with a scheme such as https:// or s3://")
    if path := local_path(url):
        return Path(path)
    if url[:5].lower() == "file:":
        raise ValueError(f"{shown(url)}: a file URL must refer to a file on this machine")
    download = _Download(store, connections, progress)
    origin = Origin(url)
    if is_offline():
        return download.find_copy(origin, names if url.endswith("/") else (), named=named)
    if url.endswith("/"):
        found = [name for name in waited(origin.names()) if name and any(fnmatch.fnmatch(name, one) for one in names)]
        if not found:
            raise FileNotFoundError(errno.ENOENT, f"no object matches {', '.join(names)}", origin.shown)
        view = download.view_of(f"{origin.shown} {sorted(found)}")
        with download.together(nodes):
            download.fetch_beside(origin, found, view)
        os.utime(view)  # it is the newest copy of the folder
        return view
    [version] = versions_of([origin])
    view = download.view_of(origin.key(version))
    with download.together(nodes):
        download.fetch_into(view, [(origin.name, origin, version)])
        if named:
            download.fetch_beside(origin, names_in(view / origin.name), view)
    return view / origin.name


def fetch_versions(files: Sequence[tuple[str, Origin, Version]], *, nodes: Nodes = None) -> Path:
    """Fetch specific versions of files into the default store, without asking the servers for the current versions.

    Each file is specified by its name relative to the first file, its origin and its version. Return the path of the
    first file; the others are next to it. Raise the same errors as `fetch`, and `FileChanged` if a version differs.
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
    """Fetch a safetensors file's header and some ranges of its data, and return the result of `use` for the file.

    The fetched ranges stay in the store, so that the file is complete after calls for all ranges. A file in another
    format is fetched completely. `ranges_of` receives the path of a file that contains the header, and returns the
    ranges to fetch, as (offset, length). `use` receives the path of a file that contains these ranges and may be
    removed afterwards; other ranges may be zeros.

    Raise the same errors as `fetch`, `ranges_of` and `use`, and `FileChanged` if the server has a different version.
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
    """Sort ranges, and join them across small gaps to reduce the number of requests. Gaps add at most 2 %.

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
    """Ends a build whose file is incomplete, so that the file is not published."""


def partners_of(nodes: str, store: Store) -> Partners:
    """Return the other nodes in this process's job or cluster. Raise RuntimeError if it does not belong to one."""
    if nodes == "torchrun":
        from onecopy_remote import torchrun  # needs torch

        return torchrun.partners(store)
    if nodes == "ray":
        from onecopy_remote.ray_nodes import RayNodes  # needs Ray

        return RayNodes()
    raise ValueError(f"nodes must be 'ray' or 'torchrun', not {nodes!r}")


class _Download:
    """The files that one call fetches into a store, with a shared progress count."""

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        connections: int = CONNECTIONS,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        durable = isinstance(store, Store) and store.durable
        self.store = Store.of(store).with_options(where="here", durable=durable)
        self.total = 0
        """Size of all files in bytes."""
        self._done = 0
        """Size of the complete files in bytes."""
        self._connections = connections
        self._progress = progress if progress is not None else _announced(self.store)
        self._partners = Partners()

    @contextlib.contextmanager
    def together(self, nodes: Nodes) -> Iterator[None]:
        """Fetch together with other nodes inside the block."""
        if nodes is not None:
            [self._partners] = run([lambda: partners_of(nodes, self.store)], report=self._report, wait=False)
        try:
            yield
        except BaseException:
            self._partners.stop()
            raise

    def view_of(self, what: str) -> Path:
        """Return the folder for links to fetched files. `what`, such as a key or a list of names, identifies it."""
        return views.view(self.store.folder, self.store.path(f"view of {what}").stem)

    def find_copy(self, origin: Origin, patterns: Sequence[str], *, named: bool) -> Path:
        """Return the newest copy of a file, with the files that it names, or, if there are patterns, of a folder.

        Each copy consists of the files that one call has fetched. Log which copy is returned.
        """
        stored = {one.path.name: one for one in self.store.ls() if one.state == "ready"}
        copies: list[tuple[int, float, Path, list[str], str]] = []
        for view in (self.store.folder / VIEWS).glob("*") if patterns else ():
            names = sorted(path.name for path in view.iterdir())
            matched = sum(bool(fnmatch.filter(names, pattern)) for pattern in patterns)
            if matched and view == self.view_of(f"{origin.shown} {names}"):
                copies.append((matched, view.stat().st_mtime, view, names, f"{len(names)} files"))
        for one in () if patterns else stored.values():
            if one.key.startswith((f"{origin.key_prefix}etag ", f"{origin.key_prefix}modified ")):
                path = views.link(self.view_of(one.key), origin.name, one.path)
                names = [origin.name, *(names_in(path) if named else ())]
                copies.append((0, one.created, path.parent, names, one.key.removeprefix(origin.key_prefix)))
        for _, fetched, view, names, version in sorted(copies, reverse=True):
            found = [stored.get((view / name).resolve().name) for name in names]
            if all(one and self.store.find(one.key) for one in found):
                if self.store.on_wait == "announce":
                    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(fetched))
                    _warn_once(f"onecopy: offline: {origin.shown}: {version}, fetched {when}")
                return view if patterns else view / origin.name
        raise lacking(origin.shown)

    def fetch_beside(self, origin: Origin, names: Iterable[str], view: Path) -> None:
        """Fetch the current versions of files in an origin's folder, and link to them in a view."""
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if not is_inside(name):
                reason = f"invalid name {name!r}: it is not the path of a file inside the folder"
                raise FormatError(reason, Kind.OUT_OF_BOUNDS, path=origin.shown)
        origins = [origin.beside(name) for name in wanted]
        self.fetch_into(view, list(zip(wanted, origins, versions_of(origins), strict=True)))

    def fetch_into(self, view: Path, files: Sequence[tuple[str, Origin, Version]]) -> None:
        """Fetch files and link to them in a view. Each is specified by its name in the view, origin and version."""
        self.total += sum(version.size for _, _, version in files)
        # All artefacts are in use until the last one is there, so that the store's limit removes none of them. They are
        # linked only then, so that all links in a view lead to files that belong together.
        used = [self._fetch(origin, version) for _, origin, version in files]
        for (name, _, _), found in zip(files, used, strict=True):
            views.link(view, name, found.path)

    def _fetch(self, origin: Origin, version: Version) -> Artefact:
        """Return a file's artefact, fetching the file unless another process does so."""
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
        """Return a file's artefact after fetching the ranges that each step in `steps` yields, in order.

        If the file is then incomplete, call `use` with its path while holding the claim, and raise _IncompleteError.
        """
        key = origin.key(version)

        def build(path: Path) -> None:
            with contextlib.closing(PartialFile(path, key, version.size)) as partial:
                fetch = functools.partial(transfer, origin, version, partial, connections=self._connections)
                has_foreign_bytes = self._partners.has_nodes or partial.have.size > 0  # perhaps from an earlier call
                for ranges in steps(partial, fetch):
                    self._fetch_missing(partial, ranges, fetch)
                if use is not None and not partial.is_whole:
                    use(partial.path)
                    raise _IncompleteError
                if has_foreign_bytes and version.digest is not None and not self._has_digest(partial, *version.digest):
                    text = "onecopy: %s: the %s differs from that of the origin; fetching the whole file again"
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


@functools.cache
def _warn_once(text: str) -> None:
    logging.getLogger("onecopy").warning("%s", text)


def _announced(store: Store) -> Callable[[int, int], object] | None:
    """Return a `progress` function that announces a long fetch, if `Store.on_wait` is "announce"."""
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
