"""Files that stay in memory: `Hold` maps and locks them, and brings back what the kernel dropped.

Page cache is lent: when memory is short, when a backup reads the disk once, or when a container's last process goes,
the kernel takes pages back, and the next worker that starts waits for the disk again. A `Hold` looks at its files now
and then, and warms what is missing, within a budget; `onecopy warm --hold` is this and a loop.

    with Hold(["encoder.safetensors", "decoder.safetensors"], max_bytes="12 GiB") as hold:
        while not stop.wait(10):
            for change in hold.look():
                log.info("%s: %s", change.path, change.reason)

**The plan** is the order in which the files are given: each gets what the budget has left, from its first byte on.
Of that, as much is locked as RLIMIT_MEMLOCK allows; the rest the kernel may take, and the next look brings it back.

**Files change.** A path that leads to another file is held anew; a file that was truncated, written in place or
removed is let go, and held again once two looks found it the same. None of it raises: `look` tells it as a `Change`.

**When not to use it.** For files that one living process maps and reads all the time: these stay by themselves. Where
memory is short for good: a hold and its neighbours would then read the disk by turns; give it a budget that fits.

**Ownership and threads.** There is no thread of its own: a look is a call, and belongs to one thread at a time. Locks
and mappings end with `close` or with the process, however it ends; what is in the page cache stays until memory is
needed. A forked child has no locks: they are its parent's.
"""

from __future__ import annotations

import mmap
import os
import resource
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from onecopy.arguments import byte_count, non_negative, path_text
from onecopy.files import Closeable, Mapping
from onecopy.memory import proc
from onecopy.page_cache import available_memory, pin, residency, unpin, warm
from onecopy.text import size as in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecopy.files import Identity

__all__ = ["Change", "Hold", "What"]

What: TypeAlias = Literal["held", "warmed", "short", "replaced", "lost"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a look found or did, and where a file stands since.

    Attributes
    ----------
    path
        As it was given.
    what
        "held": in memory as planned, for the first time. "warmed": bytes that had been dropped are back. "short": less
        than planned is in memory. "replaced": the path leads to another file, which is held now. "lost": truncated,
        written in place, removed or unreadable, and let go until it is at rest.
    reason
        A sentence about it.
    size, wanted, resident, locked
        Bytes: of the file, of these planned, in memory (None: the kernel does not tell), and locked.
    filled
        Bytes that this look brought in.
    """

    path: str
    what: What
    reason: str
    size: int
    wanted: int
    resident: int | None
    locked: int
    filled: int = 0


@dataclass(slots=True, eq=False)
class _File:
    """A path and what of it is held now."""

    path: str
    mapping: Mapping | None = None
    seen: Identity | None = None
    """At the last look, where there is no mapping."""
    wanted: int = 0
    resident: int | None = 0
    locked: int = 0
    told: tuple[What, str, int | None, int] | None = field(default=None)
    """The last change about memory: the same is not told twice."""

    @property
    def size(self) -> int:
        return 0 if self.mapping is None else self.mapping.nbytes

    def change(self, what: What, reason: str, filled: int = 0) -> Change:
        return Change(self.path, what, reason, self.size, self.wanted, self.resident, self.locked, filled)

    def let_go(self) -> None:
        if self.mapping is not None:
            self.mapping.close()  # and with it the locks
        self.mapping, self.wanted, self.resident, self.locked = None, 0, 0, 0


class Hold(Closeable):
    """Keep files in memory, within a budget, as long as it is looked after.

    Parameters
    ----------
    paths
        Regular files; the first ones get the budget first. A path that is given twice counts once.
    max_bytes
        Bytes of all files at most; None: half of the memory that may be used, of the machine or of the control group.
    pin
        Bytes to lock at most; None: as many as RLIMIT_MEMLOCK allows (all of the budget, for root), 0: none.
    threads, huge
        As of `onecopy.warm`.

    Raises
    ------
    OSError
        A path that cannot be opened now, with ``filename``; later, `look` tells it.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy.holding import Hold
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> with Hold([path], pin=0) as hold:
    ...     first = hold.look()
    ...     first[0].what, first[0].resident, hold.look()
    ('held', 1048576, [])
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        max_bytes: int | str | None = None,
        pin: int | None = None,
        threads: int | None = None,
        huge: bool | None = None,
    ) -> None:
        if isinstance(paths, str | bytes | os.PathLike):
            raise TypeError(f"expected several paths, such as [{paths!r}], not one")
        if max_bytes is None:
            available = available_memory()
            max_bytes = mmap.PAGESIZE << 50 if available is None else available // 2
        self._budget = byte_count("max_bytes", max_bytes)
        self._pin = None if pin is None else non_negative("pin", pin)
        self._threads, self._huge = threads, huge
        self._files = [_File(path) for path in dict.fromkeys(map(path_text, paths))]
        try:
            for file in self._files:
                file.mapping = Mapping(file.path)
        except BaseException:
            self.close()
            raise

    @property
    def max_bytes(self) -> int:
        """Bytes of all files at most."""
        return self._budget

    @property
    def files(self) -> int:
        """How many files there are, those that are lost at the moment among them."""
        return len(self._files)

    @property
    def wanted(self) -> int:
        """Bytes planned at the last look."""
        return sum(file.wanted for file in self._files)

    @property
    def resident(self) -> int | None:
        """Bytes of the plan that were in memory at the last look; None where the kernel does not tell."""
        known = [file.resident for file in self._files if file.resident is not None]
        return sum(known) if len(known) == len(self._files) else None

    @property
    def locked(self) -> int:
        """Bytes that are locked."""
        return sum(file.locked for file in self._files)

    def look(self) -> list[Change]:
        """Look at every file once, bring back what is missing, and tell what changed since the last look.

        Waits for the disk where something is missing: the first look takes as long as `onecopy.warm` of everything.
        KeyboardInterrupt leaves it in between, and the next look goes on.
        """
        changes = [change for file in self._files if (change := _compared(file)) is not None]
        self._plan()
        lockable = self._budget if self._pin is None else self._pin
        for file in self._files:
            if file.mapping is not None and (change := self._fill(file, file.mapping, lockable)) is not None:
                changes.append(change)
            lockable -= file.locked
        return changes

    def close(self) -> None:
        """Let go of everything; the pages stay in memory until somebody needs it. Closing twice is fine."""
        for file in self._files:
            file.let_go()
        self._files = []

    def _plan(self) -> None:
        """Assign each file its part of the budget, and unlock pages where that part has shrunk."""
        left = self._budget
        for file in self._files:
            file.wanted = file.size if file.size <= left else left // mmap.PAGESIZE * mmap.PAGESIZE
            left -= file.wanted
            if file.mapping is not None and file.locked > file.wanted:
                unpin(file.mapping)
                file.locked = 0

    def _fill(self, file: _File, mapping: Mapping, lockable: int) -> Change | None:
        part = [(0, file.wanted)]
        filled, short, reason = 0, file.wanted < file.size, ""
        try:
            told = residency(mapping, part)
            file.resident = told.mapped if told.cached is None else told.cached
            if file.resident is None or file.resident < told.bytes or file.told is None:
                report = warm(mapping, part, threads=self._threads, huge=self._huge)
                filled, file.resident = report.filled, report.cached_after
                short, reason = short or not report.complete, "" if report.complete else report.reason
            if not reason:  # to lock what there is no memory for would take it from somebody
                file.locked = _lock(mapping, file.locked, min(file.wanted, lockable))
        except OSError as error:  # DataLost: truncated between two lines of this function
            return _lost(file, error.strerror or str(error))
        if file.wanted < file.size and not reason:
            reason = f"the budget of {in_words(self._budget)} ends here"
        return _told(file, filled, reason, short=short)

    def __repr__(self) -> str:
        count = len(self._files)
        resident = "unknown" if self.resident is None else in_words(self.resident)
        return (
            f"<onecopy.Hold {count} file{'' if count == 1 else 's'}, {resident} of {in_words(self.wanted)} in memory>"
        )


def _told(file: _File, filled: int, reason: str, *, short: bool) -> Change | None:
    """Return what to tell of a file that was filled; None where that is what was told last."""
    what: What = "short" if short else "held" if file.told is None else "warmed"
    state: tuple[What, str, int | None, int] = ("short" if short else "held", reason, file.resident, file.locked)
    known, file.told = file.told, state
    if known is not None and not filled and known == state:
        return None
    return file.change(what, reason or ("in memory" if what == "held" else "brought back"), filled)


def _compared(file: _File) -> Change | None:
    """Look where the path leads now; open or let go of what it leads to."""
    try:
        status = os.stat(file.path)  # noqa: PTH116 - once a look for each file
    except OSError as error:
        return _lost(file, str(error.strerror))
    now = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if file.mapping is not None:
        before = file.mapping.identity
        if now == before:
            return None
        if now[:2] == before[:2]:
            file.seen = now
            less = now[2] < before[2]
            return _lost(file, f"truncated from {before[2]} to {now[2]} bytes" if less else "written in place", now)
    elif now != file.seen:
        file.seen = now  # it may be half written: let us see it twice
        return None
    return _opened(file)


def _opened(file: _File) -> Change | None:
    """Map what the path leads to now."""
    replaced = file.mapping is not None
    file.let_go()
    try:
        file.mapping = Mapping(file.path)
    except OSError as error:
        return _lost(file, str(error.strerror), file.seen)
    file.told = None
    return file.change("replaced", "another file is there now") if replaced else None


def _lost(file: _File, reason: str, seen: Identity | None = None) -> Change | None:
    """Let go of a file; the same reason is not told twice."""
    file.let_go()
    file.seen = seen
    state: tuple[What, str, int | None, int] = ("lost", reason, 0, 0)
    known, file.told = file.told, state
    return None if known == state else file.change("lost", reason)


def _lock(mapping: Mapping, locked: int, wanted: int) -> int:
    """Lock the first bytes of a mapping, as many as the system lets us; return how many are locked."""
    if wanted <= locked:
        return locked
    if pin(mapping, [(0, wanted)]).pinned:
        return wanted
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY:
        return locked
    room = limit - (proc.status(os.getpid()).vm_lck or 0) + locked
    part = min(wanted, room) // mmap.PAGESIZE * mmap.PAGESIZE
    return part if part > locked and pin(mapping, [(0, part)]).pinned else locked
