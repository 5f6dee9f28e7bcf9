"""`Store`: build once per host, map everywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from onecopy import _core
from onecopy.arguments import non_negative, path_text
from onecopy.store.artefact import Artefact, PruneReport, Waiting
from onecopy.store.fork import builder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onecopy.store.place import Place


__all__ = ["Store", "Where", "announce", "default_folder", "file_key", "progress"]

Where: TypeAlias = Literal["auto", "child", "here"]

_logged: set[str] = set()
_FIRST_WORD, _NEXT_WORD = 2.0, 5.0  # seconds of waiting until `announce` says so, and says so again


def announce() -> Callable[[Waiting], None]:
    """Return the usual `on_wait`: a warning of the logger "onecopy" after 2 seconds, and then every 5.

    Where nobody has configured logging, Python writes it to stderr.
    """
    due = _FIRST_WORD

    def on_wait(waiting: Waiting) -> None:
        nonlocal due
        if waiting.seconds < due:
            return
        due = waiting.seconds + _NEXT_WORD
        builder = f"process {waiting.pid}" if waiting.pid else "another process"
        so_far = f", {waiting.bytes / 1e6:.1f} MB so far" if waiting.bytes else ""
        _warn("onecopy: %s builds %r%s; waited %.0f s", builder, waiting.key, so_far, waiting.seconds)

    return on_wait


def _warn(text: str, *arguments: object) -> None:
    import logging  # which most processes never need

    logging.getLogger("onecopy").warning(text, *arguments)


class Store:
    """A folder of files that are built once per host.

    Parameters
    ----------
    folder
        Of this user alone: it is made with mode 0700, and refused if it is a symbolic link, belongs to somebody else or
        can be entered by others. None: for "disk" ``$ONECOPY_CACHE``, else ``$XDG_CACHE_HOME/onecopy``, else
        ``~/.cache/onecopy``, and ``/var/tmp/onecopy-<uid>`` where that is on a network file system; for "memory"
        ``/dev/shm/onecopy-<uid>``. Where another user has taken one of the last two names, it is ``onecopy-<uid>-1``,
        or the next one that is free; `reason` and a warning of the logger "onecopy" say so.
    place
        Which of the two, where no folder is given.

    Raises
    ------
    OSError
        The folder will not do; ``strerror`` says why.

    Examples
    --------
    >>> import onecopy as oc, tempfile
    >>> store = oc.Store(tempfile.mkdtemp())
    >>> report = store.get_or_build("squares of 2024", lambda path: path.write_bytes(b"0149"))
    >>> report.built, report.path.read_bytes()
    (True, b'0149')
    >>> store.get_or_build("squares of 2024", lambda path: path.write_bytes(b"0149")).built
    False
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, place: Place = "disk") -> None:
        chosen, reason = default_folder(place)
        path = os.fspath(chosen)
        if folder is not None:
            path, reason = path_text(folder), "it was asked for"
        self._core = _core.open_store(path)
        self.folder = Path(self._core.folder)
        """Where it is."""
        self.reason = reason
        """Why there: a sentence."""
        self.place: Place = "memory" if _core.is_in_memory(path) else "disk"
        """What the folder is on."""

    def get_or_build(
        self,
        key: str,
        build: Callable[[Path], object],
        *,
        source: str | os.PathLike[str] | None = None,
        where: Where = "here",
        on_wait: Callable[[Waiting], None] | Literal["announce"] | None = "announce",
        timeout: float | None = None,
        durable: bool = True,
    ) -> Artefact:
        """Return the artefact of a key; build it where no process of the machine has, and none is about to.

        Parameters
        ----------
        key
            Any text. What makes the content must be in it: `file_key` of the source, and a version of your code.
        build
            Called with the path where the file is to appear, whole or not at all.
        source
            What it is built from, a file or folder: recorded for `ls` and `prune`, and held against itself after the
            build.
        where
            "here"; "child": in a forked child, so that what the build allocates is given back whole; "auto": in a child
            when this process has one thread, those of libraries included, and has imported no framework with devices
            (torch, tensorflow, jax); else here, with a garbage collection and ``malloc_trim`` after it.
        on_wait
            Called at each look, a few to 100 ms apart, while another process builds; None: nothing is said.
        timeout
            Seconds to wait for others; None: ``$ONECOPY_TIMEOUT``, else as long as one of them lives.
        durable
            False: nobody waits for the disk; for what can be made again. `build` may leave its file unflushed
            (``Scratch.save(durable=False)``). The artefact counts until the machine starts again, and for good once
            somebody asks for it half a minute later, when flushing costs nothing any more. On a server, and where the
            kernel does not tell its starts apart, it is flushed as ever.

        Raises
        ------
        TimeoutError
            Others build still; the message names the process.
        FileChanged
            The source was changed while it was being read.
        OSError
            The folder or what stands in the file's place will not do; EDEADLK where a build asks for what it builds.
        FormatError
            The description beside the file is damaged, or is of another key with the same digest.
        ChildProcessError
            The child that built was killed.

        What `build` raises is passed on, and nothing is left of it; it is not remembered either.
        """
        if where not in ("auto", "child", "here"):
            raise ValueError(f"where must be 'auto', 'child' or 'here', not {where!r}")
        timeout = _at_most("timeout", _usual_timeout() if timeout is None else timeout)
        call = announce() if on_wait == "announce" else on_wait
        told = (
            None
            if call is None
            else lambda pid, since, size, waited: call(Waiting(key, pid, since / 1e9, size, waited))
        )
        found = self._core.get_or_build(key, builder(build, where), path_text(source or ""), told, timeout, durable)
        return self._artefact(found)

    def find(self, key: str) -> Artefact | None:
        """Return the artefact of a key, and mark its use; None where there is none that is as it was built."""
        found = self._core.find(key)
        return None if found is None else self._artefact(found)

    def path(self, key: str) -> Path:
        """Return where the artefact of a key is, or would be."""
        return Path(self._core.path(key))

    def ls(self) -> list[Artefact]:
        """List what is in the folder, the last used first; what is being built and what dead builders left included."""
        return sorted(map(self._artefact, self._core.list()), key=lambda artefact: -artefact.last_used)

    def prune(
        self,
        *,
        max_age: float | None = None,
        max_bytes: int | None = None,
        missing_source: bool = False,
        keys: Iterable[str] | None = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> PruneReport:
        """Remove what is asked for, and what dead builders left; never what is being built.

        Parameters
        ----------
        max_age
            Seconds since the last use.
        max_bytes
            Of all together: those used longest ago go first.
        missing_source
            Those whose source is gone, or has changed.
        keys
            These.
        everything
            All.
        dry_run
            Tell, and remove nothing.
        """
        max_age, max_bytes = (
            _at_most("max_age", max_age),
            None if max_bytes is None else non_negative("max_bytes", max_bytes),
        )
        report = self._core.prune(max_age, max_bytes, missing_source, list(keys or ()), everything, dry_run)
        return PruneReport(
            [self._artefact(artefact) for artefact in report.removed],
            [self._artefact(artefact) for artefact in report.kept],
            report.bytes,
        )

    def _artefact(self, found: _core.Artefact) -> Artefact:
        return Artefact(
            key=found.key,
            path=Path(found.path),
            bytes=found.bytes,
            created=found.created,
            last_used=found.last_used,
            source=found.source or None,
            source_present=found.source_present if found.source else None,
            place=self.place,
            state=found.state,  # type: ignore[arg-type]  # text on that side
            built=found.built,
            waited=found.waited,
            seconds=found.seconds,
            reason=found.reason,
            handle=found.handle,
        )

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return type(self), (os.fspath(self.folder),)

    def __repr__(self) -> str:
        return f"<onecopy.Store {os.fspath(self.folder)!r}, {self.place}>"


def default_folder(place: Place = "disk") -> tuple[Path, str]:
    """Return the folder of a `Store` for which none is given, and why it is that one; it may not be there yet."""
    if place not in ("disk", "memory"):
        raise ValueError(f"place must be 'disk' or 'memory', not {place!r}")
    path, reason, obstacle = _core.default_folder(place == "memory")
    if obstacle and obstacle not in _logged:
        _logged.add(obstacle)
        _warn("onecopy: the store is in %s, because of %s", path, obstacle)
    return Path(path), f"{reason}; not {obstacle}" if obstacle else reason


def file_key(path: str | os.PathLike[str], version: str = "") -> str:
    """Return a key that is another one as soon as a file is written or replaced.

    It is text: the real path, the size, the time of the last write, the inode, and `version`, which is yours to raise
    when what is built from the file changes: it knows nothing of the code that reads the file. (`onecopy.share` adds
    the function that it is given.) OSError where there is no such file. A write that keeps the size within one clock
    tick of the file system is not seen.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "labels.json")
    >>> _ = path.write_text("[1, 2]")
    >>> before = oc.file_key(path, version="2")
    >>> _ = path.write_text("[1, 2, 3]")
    >>> before == oc.file_key(path, version="2")
    False
    """
    facts = os.stat(path)  # noqa: PTH116 - any PathLike
    real = os.path.realpath(os.fsdecode(path))
    words = [real, f"{facts.st_size} bytes", f"written {facts.st_mtime_ns}", f"inode {facts.st_ino}"]
    return ", ".join([*words, f"version {version}"] if version else words)


def _usual_timeout() -> float | None:
    text = os.environ.get("ONECOPY_TIMEOUT")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"ONECOPY_TIMEOUT is a number of seconds, not {text!r}") from None


def _at_most(name: str, seconds: float | None) -> float | None:
    """Return a number of seconds that fits 64 bits of nanoseconds; ValueError when it is none."""
    if seconds is not None and not seconds >= 0:
        raise ValueError(f"{name} must not be negative, but is {seconds}")
    return None if seconds is None else min(seconds, 9e9)  # 285 years


def progress(done: int) -> None:
    """Report from a build function how many bytes are done: waiting processes show it. Does nothing elsewhere."""
    _core.report_progress(done)
