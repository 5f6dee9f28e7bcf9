"""`Holder` keeps files in memory, as pages of the page cache or as copies that processes open as "hold:NAME".

The kernel evicts page cache when memory is short, when a backup reads the disk, or when the last process in a container
ends; the next worker then has to wait for the disk again. `Holder.refresh` checks the files, and reads missing pages
back within a budget. ``onecopy hold`` calls it in a loop.

    with Holder(["decoder.safetensors"], names={"encoder": "encoder.safetensors"}, max_bytes="12 GiB") as hold:
        while not stop.wait(10):
            for change in hold.refresh():
                log.info("%s: %s", change.path, change.reason)

**The budget** is assigned to files with names first, then to the other files in order. If the rest of it is too small
for a file, only the first bytes of the file are held. RLIMIT_MEMLOCK limits how many bytes are locked. The kernel may
evict bytes that are not locked; the next `refresh` reads them back.

**Changed files.** If a path refers to a new file, that file is held instead. A file that was truncated, modified in
place or removed is released, and held again when two consecutive refreshes find it unchanged. `refresh` reports each of
these events as a `Change` instead of raising an error.

**Names.** A name refers to a *generation*, a copy of the file in sealed memory. Writing to the file does not change the
copy. When two consecutive refreshes find the same new contents, they become the next generation, and processes open it
from then on. The previous generation is freed after its last use. Only processes of this user can open a name.

**When not to use it.** Do not hold files that a running process constantly reads through a mapping: they stay in memory
anyway. If memory is always short, the holder and other processes evict each other's pages; choose a smaller budget.

**Ownership and threads.** A `Holder` starts no thread, and only one thread may use it at a time. Locks, names and
mappings are released by `close` or when the process ends, even if it is killed; pages of files stay in the page cache
until memory is needed. A forked child does not inherit locks, but it keeps names reserved until it ends.
"""

from __future__ import annotations

import mmap
import os
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from onecopy.base.text import byte_count, counted, non_negative, path_text, size as in_words
from onecopy.files.identity import file_identity
from onecopy.files.mapping import Closeable, Mapping
from onecopy.files.page_cache import available_memory, expect_memory, pin, residency, unpin, warm
from onecopy.memory import proc
from onecopy.run.held_names import HeldName
from onecopy.store import snapshots
from onecopy.store.location import files_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping as Dict

    from onecopy.store.location import Location

__all__ = ["Change", "Holder", "What"]

What: TypeAlias = Literal["held", "warmed", "short", "replaced", "kept", "lost"]


@dataclass(frozen=True, slots=True)
class Change:
    """A change that `Holder.refresh` detected or made to a file, and the file's resulting state.

    Attributes
    ----------
    path
        Path of the file, as given.
    what
        "held": the planned bytes are in memory for the first time. "warmed": evicted bytes were read back. "short":
        fewer bytes than planned are in memory. "replaced": the path refers to a new file, which is now held. "lost":
        the file was truncated, modified in place or removed, or cannot be read; it is released until it stops changing.
        A file with a name is "lost" only before its first generation. "kept": the same happened to a file with a name,
        but its current generation stays in memory.
    reason
        An explanation of the change.
    size, wanted, resident, locked
        Bytes of the file, planned bytes, bytes in memory (None if the kernel does not report them), and locked bytes.
    filled
        Bytes that this refresh read from the disk.
    name
        The name under which the file is held, or "".
    generation
        Number of copies made so far under the name, or 0 without a name.
    """

    path: str
    what: What
    reason: str
    size: int
    wanted: int
    resident: int | None
    locked: int
    filled: int = 0
    name: str = ""
    generation: int = 0


@dataclass(slots=True, eq=False)
class _File:
    """A path, and the part of the file that is held."""

    path: str
    name: HeldName | None = None
    mapping: Mapping | None = None
    """A mapping of the file, or of the current generation under its name."""
    seen: tuple[int, ...] | None = None
    """Identity of the file at the last refresh, if the file is not mapped or has a name."""
    wanted: int = 0
    resident: int | None = 0
    locked: int = 0
    reported: tuple[str, str, int | None, int] | None = None
    """The last reported state. A state is not reported twice in a row."""

    @property
    def size(self) -> int:
        return 0 if self.mapping is None else self.mapping.nbytes

    def change(self, what: What, reason: str, filled: int = 0) -> Change:
        name, generation = ("", 0) if self.name is None else (self.name.name, self.name.generation)
        return Change(
            self.path, what, reason, self.size, self.wanted, self.resident, self.locked, filled, name, generation
        )

    def release(self) -> None:
        if self.mapping is not None:
            self.mapping.close()  # releases the locks too
        self.mapping, self.wanted, self.resident, self.locked = None, 0, 0, 0


class Holder(Closeable):
    """Keeps files in memory within a budget, as long as `refresh` is called regularly.

    Parameters
    ----------
    paths
        Files, model folders, or URLs, in the order in which the budget is assigned. An index or a model includes the
        files that it names. Duplicates count once.
    names
        A mapping from names to files. Under each name, either a complete copy of the file or nothing is held.
        ``oc.open("hold:NAME")`` opens the newest copy. A name consists of letters, digits and "_-.".
    max_bytes
        Maximum bytes of all files in memory, as a number or text such as "12 GiB". None means half of the available
        memory of the machine or control group. Older generations that are still in use need additional memory.
    pin
        Maximum number of bytes to lock. None means as many as RLIMIT_MEMLOCK allows (for root, the whole budget).
    threads, huge
        Options of `onecopy.warm`.

    Raises
    ------
    OSError
        A path cannot be opened; ``filename`` is the path. Later, `refresh` reports such a path as "lost". The error is
        EBUSY if another process holds a name; the message contains its PID.
    ValueError
        A name contains characters that are not allowed.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy.run.holder import Holder
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> with Holder([path], pin=0) as hold:
    ...     first = hold.refresh()
    ...     first[0].what, first[0].resident, hold.refresh()
    ('held', 1048576, [])
    """

    def __init__(
        self,
        paths: Iterable[Location] = (),
        *,
        names: Dict[str, str | os.PathLike[str]] | None = None,
        max_bytes: int | str | None = None,
        pin: int | None = None,
        threads: int | None = None,
        huge: bool | None = None,
    ) -> None:
        if isinstance(paths, str | bytes | os.PathLike):
            raise TypeError(f"paths must be a list of paths such as [{paths!r}], not one path")
        if max_bytes is None:
            available = available_memory()
            max_bytes = mmap.PAGESIZE << 50 if available is None else available // 2
        self.max_bytes = byte_count("max_bytes", max_bytes)
        """Maximum bytes of all files in memory."""
        self._pin = None if pin is None else non_negative("pin", pin)
        self._threads, self._huge = threads, huge
        self._files: list[_File] = []
        try:
            for name, path in (names or {}).items():
                with Mapping(path):  # an error now, not at the first refresh
                    self._files.append(_File(path_text(path), HeldName(name)))
            for text in dict.fromkeys(file for path in paths for file in files_of(path)):
                self._files.append(_File(text, mapping=Mapping(text)))
        except BaseException:
            self.close()
            raise

    @property
    def files(self) -> int:
        """Number of files, including lost ones."""
        return len(self._files)

    @property
    def wanted(self) -> int:
        """Number of planned bytes at the last refresh."""
        return sum(file.wanted for file in self._files)

    @property
    def resident(self) -> int | None:
        """Number of planned bytes in memory at the last refresh, or None if the kernel does not report it."""
        known = [file.resident for file in self._files if file.resident is not None]
        return sum(known) if len(known) == len(self._files) else None

    @property
    def locked(self) -> int:
        """Number of locked bytes."""
        return sum(file.locked for file in self._files)

    def refresh(self) -> list[Change]:
        """Check every file once, read back missing pages, and return the changes since the last refresh.

        If pages are missing, the call waits for the disk; the first refresh takes as long as `onecopy.warm` for all
        files. After a KeyboardInterrupt, the next refresh continues.
        """
        changes, left = [], self.max_bytes
        for file in self._files:
            found = _compared(file) if file.name is None else _renewed(file, file.name, left)
            changes += [] if found is None else [found]
            file.wanted = file.size if file.size <= left else left // mmap.PAGESIZE * mmap.PAGESIZE
            left -= file.wanted
            if file.mapping is not None and file.locked > file.wanted:
                unpin(file.mapping)
                file.locked = 0
        lockable = self.max_bytes if self._pin is None else self._pin
        for file in self._files:
            if file.mapping is not None and (change := self._fill(file, file.mapping, lockable)) is not None:
                changes.append(change)
            lockable -= file.locked
        return changes

    def close(self) -> None:
        """Release all files. Their pages stay in memory until memory is needed. Closing twice has no effect."""
        for file in self._files:
            file.release()
            if file.name is not None:
                file.name.close()
        self._files = []

    def _fill(self, file: _File, mapping: Mapping, lockable: int) -> Change | None:
        part = [(0, file.wanted)]
        filled, short, reason = 0, file.wanted < file.size, ""
        try:
            found = residency(mapping, part)
            file.resident = found.mapped if found.cached is None else found.cached
            if file.resident is None or file.resident < found.bytes or file.reported is None:
                report = warm(mapping, part, threads=self._threads, huge=self._huge)
                filled, file.resident = report.filled, report.cached_after
                short, reason = short or not report.complete, "" if report.complete else report.reason
            if not reason:  # otherwise memory is short, and locking would evict pages of other processes
                file.locked = _lock(mapping, file.locked, min(file.wanted, lockable))
        except OSError as error:  # DataLost: the file was truncated during this call
            return _lost(file, error.strerror or str(error))
        if file.reported is not None and file.reported[0] == "kept":
            return None
        if file.wanted < file.size and not reason:
            reason = f"the budget of {in_words(self.max_bytes)} is used up"
        what: What = "short" if short else "held" if file.reported is None else "warmed"
        state = ("short" if short else "held", reason, file.resident, file.locked)
        known, file.reported = file.reported, state
        if known == state and not filled:
            return None
        return file.change(what, reason or ("in memory" if what == "held" else "read back"), filled)

    def __repr__(self) -> str:
        resident = "unknown" if self.resident is None else in_words(self.resident)
        return f"<onecopy.Holder {counted(self.files, 'file')}, {resident} of {in_words(self.wanted)} in memory>"


def _compared(file: _File) -> Change | None:
    """Compare a path with the mapped file. If it has changed, map it again or release it."""
    try:
        status = os.stat(file.path)  # noqa: PTH116 - text
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
            return _lost(file, f"truncated from {before[2]} to {now[2]} bytes" if less else "modified in place")
    elif now != file.seen:
        file.seen = now  # it may be partly written: wait for the next refresh
        return None
    replaced = file.mapping is not None
    file.release()
    try:
        file.mapping = Mapping(file.path)
    except OSError as error:
        return _lost(file, str(error.strerror))
    file.reported = None
    return file.change("replaced", "the path refers to another file") if replaced else None


def _renewed(file: _File, name: HeldName, left: int) -> Change | None:
    """Compare a path with the copied file. If it has changed and is stable, copy it unless it exceeds `left` bytes."""
    try:
        name.restore()
        now = file_identity(file.path)
        known, file.seen = file.seen, now
        if now == name.made_of:
            return None
        if known not in (None, now):
            return None  # it may be partly written: wait for the next refresh
        if now.nbytes > left:
            return _lost(file, f"its size is {in_words(now.nbytes)}, but only {in_words(left)} of the budget is left")
        expect_memory(now.nbytes, "copy", file.path)
        copied, made_of = snapshots.copy(file.path, name.name)
        generation = Mapping.from_descriptor(copied.fileno(), file.path)
        copied.close()
    except (OSError, MemoryError, snapshots.NoSnapshot) as error:
        return _lost(file, getattr(error, "strerror", None) or str(error))
    name.lead_to(generation, made_of)
    replaced = file.mapping is not None
    file.release()
    file.mapping, file.reported = generation, None
    return file.change("replaced", "the file was replaced or modified") if replaced else None


def _lost(file: _File, reason: str) -> Change | None:
    """Release a file, or keep the current generation if the file has a name. Report each reason once."""
    kept = file.name is not None and file.mapping is not None
    if file.name is None:
        file.release()
    what: What = "kept" if kept else "lost"
    known, file.reported = file.reported, (what, reason, 0, 0)
    return None if known == file.reported else file.change(what, reason)


def _lock(mapping: Mapping, locked: int, wanted: int) -> int:
    """Lock the first `wanted` bytes of a mapping, as far as RLIMIT_MEMLOCK allows. Return how many are locked."""
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
