"""Query and control which parts of files are in the page cache: `residency`, `warm`, `evict`, `pin`.

The functions accept an open file (`onecopy.Mapping`, `onecopy.ArrayFile`) or a path, and return a report on what the
kernel did. If the kernel refuses a hint, the report states it, and no error is raised. Numbers that the kernel does not
report are None, never zero. If a file was truncated while it was mapped, `onecopy.DataLost` is raised.

All processes on the machine share the page cache, so if one process has warmed a file, it is warm for all of them.
Private copies (``mode="copy"``) are not affected. Every function releases the GIL and may be called from any thread.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, overload

from onecopy import _core
from onecopy._core import EvictReport, MappedPages, PageCache, PinReport, Residency, WarmReport
from onecopy.base.text import byte_count, non_negative, path_text, thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol, TypedDict, Unpack

    class Mapped(Protocol):
        """An object that has a single mapping: an `onecopy.Mapping`, or an `onecopy.ArrayFile` of a single file."""

        @property
        def core(self) -> _core.Mapping:
            """The mapping as an object of the compiled module."""

    class Several(Protocol):
        """An object that maps several files or parts of files, such as an `onecopy.ArrayFile`."""

        def portions(self) -> list[Portion]:
            """Return the mapped ranges, as one or more portions per file."""

    class WarmOptions(TypedDict, total=False):
        """The options of `warm` that control how it reads."""

        threads: int | None
        huge: bool | None
        max_bytes: int | str | None
        mechanism: Mechanism
        in_order: bool


__all__ = [
    "EvictReport",
    "MappedPages",
    "Mechanism",
    "PageCache",
    "PinReport",
    "Portion",
    "Range",
    "Residency",
    "WarmJob",
    "WarmReport",
    "available_memory",
    "cachestat",
    "evict",
    "expect_memory",
    "pin",
    "residency",
    "unpin",
    "warm",
]

Range: TypeAlias = tuple[int, int]
"""(offset, length) in bytes from the start of the mapping; rounded outwards to whole pages."""

Mechanism: TypeAlias = Literal["auto", "populate", "read", "advise", "none"]


class Portion(NamedTuple):
    """Ranges of a mapping. `onecopy.ArrayFile.portions` returns the portions for arrays."""

    mapping: _core.Mapping
    """The mapping as an object of the compiled module."""
    ranges: Sequence[Range] | None = None
    """The ranges. None: the whole mapping; an empty list: no bytes."""
    inspector: _core.Inspector | None = None
    """Checks the bytes while they are read; None: no check."""


Opened: TypeAlias = "Mapped | Several | Portion"
Target: TypeAlias = "Opened | str | os.PathLike[str] | Sequence[Opened | str | os.PathLike[str]]"
"""An open file, a path, or a list of these, which is treated as one file."""


def _portions(
    target: Target,
    ranges: Sequence[Range] | None = None,
    inspector: _core.Inspector | None = None,
    *,
    maps_paths: bool = True,
) -> list[Portion]:
    """Return a target's mappings with their ranges. Without `maps_paths`, raise TypeError for paths."""
    core = getattr(target, "core", None)
    if core is None and maps_paths and not isinstance(target, list) and isinstance(target, str | bytes | os.PathLike):
        core = _core.open_mapping(path_text(target))
    if core is not None:
        if ranges is not None:
            ranges = [(non_negative("offset", offset), non_negative("length", length)) for offset, length in ranges]
        return [Portion(core, ranges, inspector)]
    if type(target) is Portion:
        parts = [target]
    elif isinstance(target, list | tuple):
        parts = []
        for single in target:
            parts += (single,) if type(single) is Portion else _portions(single, maps_paths=maps_paths)
    elif hasattr(target, "portions"):
        parts = target.portions()
    else:
        raise TypeError(f"expected an open onecopy file, not {target!r}: open the file with onecopy.Mapping(path)")
    if ranges is not None or inspector is not None:
        raise TypeError("ranges cannot apply to several files: use names of arrays instead, as in file.warm([...])")
    return parts


def evict(target: Target, ranges: Sequence[Range] | None = None) -> EvictReport:
    """Unmap a file's pages from this process, and drop them from the page cache unless another process maps them.

    Locked pages, and pages that other processes map, stay in memory, and the report gives the reason. Pages of
    ``private=True`` mappings also stay, because they may contain changes. Dirty pages are first written to disk.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> oc.evict(path).bytes
    1048576
    """
    return _core.total_evicted([_core.evict(core, part) for core, part, _ in _portions(target, ranges)])


def residency(target: Target, ranges: Sequence[Range] | None = None) -> Residency:
    """Report how much of a file is in the page cache and in this process's page tables.

    This takes about 0.1 ms per GiB if cachestat can be used (Linux 6.5; files that this process owns or may write to),
    or otherwise up to 4 ms per GiB.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> oc.residency(path).bytes
    1048576
    """
    return _core.total_residency([_core.residency(core, part) for core, part, _ in _portions(target, ranges)])


def cachestat(descriptor: int, byte_range: Range | None = None) -> PageCache:
    """Report how much of an open file is in the page cache, whichever process read it. This takes 0.1 ms per GiB.

    Parameters
    ----------
    descriptor
        An open file descriptor.
    byte_range
        (offset, length) in bytes, rounded outwards to whole pages; None: the whole file.

    Raises
    ------
    OSError
        EPERM: this process neither owns the file nor may write to it, or its container forbids the call. ENOSYS: the
        kernel is older than 6.5. EOPNOTSUPP: the file is on hugetlbfs, or no pages were found, but the pages may
        belong to a file on another file system (overlayfs, FUSE). `residency` uses other interfaces in these cases.

    Examples
    --------
    >>> import os, tempfile
    >>> from onecopy.files.page_cache import cachestat
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(bytes(1 << 20)), file.flush()
    ...     cachestat(file.fileno()).cached
    1048576
    """
    return _core.cachestat(descriptor, byte_range)


def register_with_cuda(portions: Sequence[Portion], *, only_tried: bool = False) -> None:
    """Register pages of open files with the NVIDIA driver as pinned host memory until they are unmapped.

    The pages stay in memory, with one copy for all processes, and a GPU copies from them directly. The CUDA context of
    this thread is used, or else that of the first device.

    Raises
    ------
    OSError
        ENODEV: there is no GPU or no driver. EOPNOTSUPP: the driver cannot register read-only memory, or, with
        `only_tried`, the file is neither on ext4 nor in memory. EINVAL: the pages are copy-on-write. EBUSY: some pages
        are already registered.
    """
    for mapping, ranges, _ in portions:
        _core.register_with_cuda(mapping, ranges, only_tried=only_tried)


def pin(target: Opened | Sequence[Opened], ranges: Sequence[Range] | None = None) -> PinReport:
    """Lock the pages of an open file into memory until `unpin` is called or the mapping is released.

    Missing pages are read. RLIMIT_MEMLOCK (often 8 MiB) limits the locked memory; the report states how many bytes were
    locked.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 16))
    >>> with oc.Mapping(path) as mapping:
    ...     oc.files.pin(mapping).bytes
    65536
    """
    portions = _portions(target, ranges, maps_paths=False)  # the mapping of a path would end with this call
    return _core.total_pinned([_core.pin(core, part) for core, part, _ in portions])


def unpin(target: Opened | Sequence[Opened], ranges: Sequence[Range] | None = None) -> None:
    """Unlock pages that `pin` has locked."""
    for core, part, _ in _portions(target, ranges, maps_paths=False):
        _core.unpin(core, part)


def available_memory() -> int | None:
    """Return how many bytes this process can still allocate within the limits of its control groups and of the machine.

    For the control group and each group above it, this is the limit minus the memory that cannot be reclaimed, which
    includes the memory of other processes in the group. Page cache can be reclaimed; files in ``/dev/shm`` and other
    shared memory cannot. None if the system does not report it.

    Examples
    --------
    >>> available_memory() > 0
    True
    """
    left = _core.available_memory()
    return None if left is None else left[0]


def expect_memory(nbytes: int | str, doing: str = "allocate", path: str = "", *, instead: str = "") -> None:
    """Raise an error if this process cannot allocate `nbytes` and up to 32 MiB of working memory.

    Linux overcommits memory, and ends a process that uses too much. Call this function before you write large amounts
    to new arrays, or to arrays of a file opened with ``private=True``, whose written pages become memory of this
    process. It reserves nothing: other processes may use the memory later.

    Parameters
    ----------
    nbytes
        A number of bytes, or text such as "2 GB".
    doing, path, instead
        The operation, its file and the alternative, to be shown in the message.

    Raises
    ------
    NotEnoughMemory
        A MemoryError and OSError (ENOMEM): `available_memory` is less than `nbytes`; the message states both numbers.

    Examples
    --------
    >>> from onecopy.files.page_cache import expect_memory
    >>> expect_memory("1 MiB")
    """
    _core.expect_memory(byte_count("nbytes", nbytes), doing, path, instead)


_warmed: dict[tuple[int, ...], int] = {}
"""Sizes, by identity, of the last 64 files that this process has read completely into memory."""
_MAX_WARMED = 64


def lost_since_warm(mapping: _core.Mapping, cached: int | None) -> int:
    """Return how many bytes of a completely warmed file are no longer cached; 0 if unknown, or if it was not warmed."""
    expected = _warmed.get(tuple(mapping.identity))
    return 0 if cached is None or expected != mapping.nbytes else max(expected - cached, 0)


def _note_warmed(portions: Sequence[Portion], report: WarmReport) -> None:
    """Remember the files that a call to `warm` has read completely."""
    for core, part, _ in portions if report.complete and report.filled else ():
        if part is None:
            _warmed[tuple(core.identity)] = core.nbytes
    while len(_warmed) > _MAX_WARMED:
        _warmed.pop(next(iter(_warmed)), None)


class WarmJob:
    """A call to `warm` that runs in background threads.

    It shares ownership of the mapping, so the file may be closed while the job runs. After a fork, the job belongs to
    the parent: in the child, `wait` raises OSError (ECHILD).

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> job = oc.warm(path, wait=False)
    >>> job.wait().complete
    True
    """

    def __init__(self, core: _core.WarmJob, portions: Sequence[Portion] = ()) -> None:
        self._core, self._portions = core, portions

    def wait(self, timeout: float | None = None, *, progress: Callable[[int, int], object] | None = None) -> WarmReport:
        """Wait until the job has finished and return its report.

        Parameters
        ----------
        timeout
            Seconds to wait; None: no limit. The job continues after a timeout.
        progress
            Called about 20 times per second with (bytes done, bytes in total). If it raises an exception, the job is
            cancelled and the exception is passed on.

        Raises
        ------
        TimeoutError
            The job has not finished after `timeout` seconds.
        DataLost
            The file was truncated, or the device failed.
        KeyboardInterrupt
            Ctrl-C was pressed; the job is cancelled.
        """
        deadline = None if timeout is None else monotonic() + timeout
        pause = 0.05  # seconds between two checks for progress and signals
        try:
            if progress is not None:
                progress(*self._core.progress)
            while True:
                if deadline is not None:
                    pause = max(0.0, min(0.05, deadline - monotonic()))
                report = self._core.wait_for(pause)
                if progress is not None:
                    progress(*self._core.progress)
                if report is not None:
                    _note_warmed(self._portions, report)
                    return report
                if deadline is not None and monotonic() >= deadline:
                    done, total = self._core.progress
                    break
        except BaseException:
            self._core.cancel()
            raise
        raise TimeoutError(f"warm has read {done} of {total} bytes after {timeout} s, and is still running")

    def cancel(self) -> None:
        """Stop once the pieces that are being read are complete. `wait` then reports on the bytes read so far."""
        self._core.cancel()

    @property
    def done(self) -> bool:
        """Whether the job has finished, so that `wait` returns immediately."""
        return self._core.done

    @property
    def progress(self) -> tuple[int, int]:
        """(bytes done, bytes in total). Bytes that were already in memory count as done."""
        return self._core.progress

    def __repr__(self) -> str:
        done, total = self.progress
        try:
            state = ", done" if self.done else ""
        except OSError:  # this process was forked while it ran
            state = ", owned by the parent process"
        return f"<onecopy.WarmJob {done} of {total} bytes{state}>"


@overload
def warm(
    target: Target,
    ranges: Sequence[Range] | None = None,
    *,
    inspector: _core.Inspector | None = None,
    wait: Literal[True] = True,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[WarmOptions],
) -> WarmReport: ...


@overload
def warm(
    target: Target,
    ranges: Sequence[Range] | None = None,
    *,
    inspector: _core.Inspector | None = None,
    wait: Literal[False],
    **options: Unpack[WarmOptions],
) -> WarmJob: ...


def warm(
    target: Target,
    ranges: Sequence[Range] | None = None,
    *,
    threads: int | None = None,
    huge: bool | None = None,
    max_bytes: int | str | None = None,
    mechanism: Mechanism = "auto",
    in_order: bool = False,
    inspector: _core.Inspector | None = None,
    wait: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> WarmReport | WarmJob:
    """Read a file into the page cache at the speed of the device, and map its pages into this process.

    Parameters
    ----------
    target
        An open file, a path, or a list of these; the files of a list are read at the same time. The pages of a path are
        not mapped, and stay in the page cache until the kernel reclaims the memory.
    ranges
        (offset, length) in bytes; None: the whole file. Small ranges with gaps between them are read without readahead
        and in small pages.
    threads
        Number of threads that read; None: 8, because they wait for the disk and need little CPU time.
    huge
        Whether to request 2 MiB pages before reading. None: yes, except for files larger than half of the available
        memory (a small access would read 512 times its size and evict other pages), and for ranges below 16 MiB with
        gaps between them. True: also in these cases.
    max_bytes
        Maximum number of bytes to read, as a number or text such as "2 GiB"; None: the available memory. The
        kernel's readahead may exceed it by a few MiB.
    mechanism
        "auto", "populate" (MADV_POPULATE_READ), "read" (pread), "advise" (only request huge pages) or "none".
    in_order
        Whether the caller will read the whole file from front to back next. On devices with a readahead of 4 MiB or
        more, this is as fast as `warm`, so only huge pages are requested.
    inspector
        Checks the bytes while they are read; see the parameter ``verify`` of `ArrayFile.warm`.
    wait
        False: return a `WarmJob` immediately. Its threads have a lower priority (nice value + 5), because they would
        otherwise delay the program's own work if there are few CPUs.
    progress
        Called about 20 times per second with (bytes done, bytes in total). If it raises an exception, the work is
        cancelled and the exception is passed on.

    Returns
    -------
    WarmReport or WarmJob
        The report states the size, the number of bytes cached before and after, the share of huge pages, page faults,
        GiB/s, the mechanism, and why it was used.

    Raises
    ------
    DataLost
        The file was truncated while it was mapped, or the device failed.
    OSError
        The path cannot be opened, or a read failed, for example with ENOMEM in a control group.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> report = oc.warm(path)
    >>> report.bytes, report.complete
    (1048576, True)
    """
    if progress is not None and not wait:
        raise ValueError("`progress` cannot be combined with wait=False: pass it to the job's wait()")
    portions = _portions(target, ranges, inspector)
    core = _core.start_warm(
        portions,
        threads=0 if threads is None else thread_count(threads),
        huge=huge,
        budget=None if max_bytes is None else byte_count("max_bytes", max_bytes),
        mechanism=mechanism,
        in_order=in_order,
        low_priority=not wait,
    )
    job = WarmJob(core, portions)
    return job.wait(progress=progress) if wait else job
