"""What of a file is in memory, dropping it, and locking it; how much memory there is for more."""

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
    """Take a file out of memory: out of this process and, where nobody else holds it, out of the page cache.

    Pages that are mapped by other processes or locked stay, and the report says so. Pages of ``private=True`` mappings
    stay, because they may hold your changes. Unsaved pages are written to the disk first.

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
    """Report how much of a file is in memory.

    Costs about 0.1 ms per GiB where the kernel has cachestat (Linux 6.5, own or writable files), else up to 4 ms.

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
    """Report what the page cache holds of an open file, for all processes; 0.1 ms per GiB.

    Parameters
    ----------
    descriptor
        Of the file.
    offset, length
        Bytes, rounded outwards to whole pages; 0: to the end.

    Raises
    ------
    OSError
        The kernel does not tell: EPERM of a file that this process neither owns nor may write, ENOSYS before Linux 6.5,
        EOPNOTSUPP of hugetlbfs. (`residency` asks others then.)

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
    """Report how much of an address range a process has in its page tables, and in huge pages; 0.5 ms per GiB.

    Raises
    ------
    OSError
        The kernel does not tell: the process has ended (ENOENT, ESRCH), is somebody else's (EACCES, EPERM), or this
        is a kernel before Linux 6.7 (ENOTTY).

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
    """Lock an open file's pages into memory until `unpin`, or until the mapping is gone.

    Bounded by RLIMIT_MEMLOCK (often 8 MiB): the report says how much was locked. Reads what is not in memory.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 16))
    >>> with oc.Mapping(path) as mapping:
    ...     oc.pin(mapping).bytes
    65536
    """
    portions = of_opened(target, ranges)  # of a path, nothing would hold the lock
    return _core.total_pinned([_core.pin(core, part) for core, part, _ in portions])


def unpin(target: Opened, ranges: Sequence[Range] | None = None) -> None:
    """Let go of what `pin` locked."""
    for core, part, _ in of_opened(target, ranges):
        _core.unpin(core, part)


def available_memory() -> int | None:
    """Return the bytes of memory that this process may still take: what the machine has, or less in a container.

    Of a control group, and of all above it, that is the limit less what is charged to it, by other processes too, but
    for page cache that the kernel can drop: files in ``/dev/shm`` and shared memory cannot be dropped. None where the
    system does not say (macOS).

    Examples
    --------
    >>> available_memory() > 0
    True
    """
    left = _core.available_memory()
    return None if left is None else left[0]
