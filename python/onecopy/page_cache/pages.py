"""Query, evict and lock the pages of files, and report how much memory is available."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy import _core
from onecopy.arguments import non_negative
from onecopy.page_cache.targets import of_opened, of_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy._core import EvictReport, MappedPages, PageCache, PinReport, Residency
    from onecopy.page_cache.targets import Opened, Range, Target

__all__ = ["available_memory", "cachestat", "evict", "mapped_in", "pin", "residency", "unpin"]


def evict(target: Target, ranges: Sequence[Range] | None = None) -> EvictReport:
    """Unmap the pages of a file from this process, and drop them from the page cache where no other process maps them.

    Pages that other processes map, or that are locked, stay in memory, and the report gives the reason. Pages of
    ``private=True`` mappings stay as well, because they may contain changes. Dirty pages are written to disk first.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> oc.evict(path).bytes
    1048576
    """
    return _core.total_evicted([_core.evict(core, part) for core, part, _ in of_target(target, ranges)])


def residency(target: Target, ranges: Sequence[Range] | None = None) -> Residency:
    """Report how much of a file is in the page cache and in the page tables of this process.

    Takes about 0.1 ms per GiB where cachestat can be used (Linux 6.5; files that this process owns or may write), else
    up to 4 ms per GiB.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> oc.residency(path).bytes
    1048576
    """
    return _core.total_residency([_core.residency(core, part) for core, part, _ in of_target(target, ranges)])


def cachestat(descriptor: int, offset: int = 0, length: int = 0) -> PageCache:
    """Report how much of an open file is in the page cache, whichever process read it; takes 0.1 ms per GiB.

    Parameters
    ----------
    descriptor
        An open file descriptor.
    offset, length
        The range in bytes, rounded outwards to whole pages; ``length=0``: to the end of the file.

    Raises
    ------
    OSError
        EPERM: this process neither owns the file nor may write to it, or its container forbids the call. ENOSYS: before
        Linux 6.5. EOPNOTSUPP: a file on hugetlbfs. `residency` uses other interfaces in these cases.

    Examples
    --------
    >>> import os, tempfile
    >>> from onecopy.page_cache import cachestat
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(bytes(1 << 20)), file.flush()
    ...     cachestat(file.fileno()).cached
    1048576
    """
    return _core.page_cache(descriptor, non_negative("offset", offset), non_negative("length", length))


def mapped_in(pid: int, address: int, length: int) -> MappedPages:
    """Report how many bytes of an address range of a process are mapped, and how many of them in huge pages.

    Takes 0.5 ms per GiB.

    Parameters
    ----------
    pid
        The process.
    address, length
        The range of addresses in that process, in bytes.

    Raises
    ------
    OSError
        ENOENT or ESRCH: the process has ended. EACCES or EPERM: it belongs to another user. ENOTTY: before Linux 6.7.

    Examples
    --------
    >>> import mmap, os, ctypes
    >>> from onecopy.page_cache import mapped_in
    >>> memory = mmap.mmap(-1, 1 << 20)
    >>> address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    >>> memory[:8192] = bytes(8192)
    >>> mapped_in(os.getpid(), address, 1 << 20).mapped >= 8192
    True
    """
    return _core.mapped_in(non_negative("pid", pid), non_negative("address", address), non_negative("length", length))


def pin(target: Opened, ranges: Sequence[Range] | None = None) -> PinReport:
    """Lock the pages of an open file into memory until `unpin` is called or the mapping is released.

    Pages that are not in memory are read. RLIMIT_MEMLOCK (often 8 MiB) limits how much can be locked; the report has
    the number of locked bytes.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 16))
    >>> with oc.Mapping(path) as mapping:
    ...     oc.pin(mapping).bytes
    65536
    """
    portions = of_opened(target, ranges)  # not a path: its mapping, and with it the lock, would end with this call
    return _core.total_pinned([_core.pin(core, part) for core, part, _ in portions])


def unpin(target: Opened, ranges: Sequence[Range] | None = None) -> None:
    """Unlock pages that `pin` has locked."""
    for core, part, _ in of_opened(target, ranges):
        _core.unpin(core, part)


def available_memory() -> int | None:
    """Return the bytes of memory that this process can still allocate: the minimum over the machine and its cgroups.

    For a control group and each group above it, this is its limit minus the charged memory that cannot be reclaimed.
    Memory of other processes in the group is charged too. Files in ``/dev/shm`` and other shared memory cannot be
    reclaimed; page cache can. None where the system does not report it (macOS).

    Examples
    --------
    >>> available_memory() > 0
    True
    """
    left = _core.available_memory()
    return None if left is None else left[0]
