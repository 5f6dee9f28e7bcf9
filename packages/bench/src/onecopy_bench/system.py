"""Reads the kernel's numbers about the machine, the memory of processes, disk transfers, and the page cache.

Facts contain no host name, user name or folder; a fact that cannot be read is None.

A time means nothing unless the initial page cache state is known. *Cold* means that `fdatasync` and
`POSIX_FADV_DONTNEED` were called on the file, which requires no privileges and affects nothing else on the machine.
*Warm* means the same, followed by one sequential read of the file. How pages enter the cache determines their size (a
fault maps a 2 MiB folio or a 4 KiB page), so every warm sample fills the cache in the same way.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import mmap
import os
import platform
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecopy.files import page_cache
from onecopy.memory import cgroup, proc

STRIDE = 4096
"""Bytes between two touches: the smallest page size of supported machines."""
READ = 8 << 20
"""Bytes per request; a multiple of the stride."""
HUGE = 2 << 20
BACKED_MORE = 256 << 20
"""Bytes that a sample needs in addition to its data: page tables, interpreters, readahead."""
PACKAGES = ("onecopy", "numpy", "safetensors", "torch", "runai-model-streamer", "pyarrow", "datasets", "lmdb")


def read_ahead(device: int) -> int | None:
    """Return the readahead of a device (an ``st_dev``) in bytes, or None if the kernel does not report it."""
    name = f"{os.major(device)}:{os.minor(device)}"
    # The setting belongs to the disk; a partition is a link into the folder of its disk.
    for place in (f"class/bdi/{name}", f"dev/block/{name}/queue", f"dev/block/{name}/../queue"):
        path = Path("/sys", place, "read_ahead_kb")
        if path.exists():
            return int(path.read_text()) * 1024
    return None


def memory_of_machine() -> dict[str, int]:
    """Return the values in ``/proc/meminfo``, in bytes."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(number) << 10 for name, number, *unit in lines if unit == ["kB"]}


def facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the known facts about this machine and the device that holds `path`."""
    device, cpus = Path(path).stat().st_dev, _read("/proc/cpuinfo")
    mounts = cgroup.parse_mountinfo(_read("/proc/self/mountinfo"))
    packages = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": _found(r"^(?:model name|Processor|cpu model)\s*:\s*(.+?)\s*$", cpus),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "hypervisor": "hypervisor" in cpus.split(),
        "file_system": next((mount.fs_type for mount in mounts if mount.device == device), None),
        "read_ahead_bytes": read_ahead(device),
        "thp": _found(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "python": platform.python_version(),
        "packages": packages,
    }


def known_facts(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the known facts about a machine and its disk, for a sentence."""
    memory, ahead = facts.get("memory_bytes"), facts.get("read_ahead_bytes")
    known = (
        facts.get("cpu"),
        f"{facts['cores_usable']} cores" if facts.get("cores_usable") else None,
        f"{memory / 2**30:.0f} GiB" if memory else None,
        "virtual" if facts.get("hypervisor") else None,
        facts.get("kernel"),
        facts.get("file_system"),
        None if ahead is None else f"read-ahead {ahead >> 10} KiB",
        f"Python {facts['python']}" if facts.get("python") else None,
        *(f"{name} {version}" for name, version in (facts.get("packages") or {}).items()),
    )
    return tuple(str(fact) for fact in known if fact)


def _found(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else None


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""


# --- memory and disks -------------------------------------------------------------------------------------------------


def family_of(pids: Iterable[int]) -> list[int]:
    """Return the given processes and all their descendants."""
    found = list(pids)
    for pid in found:  # which grows
        found += proc.children_of(pid)
    return found


def totals_of(pids: Iterable[int]) -> dict[str, Any]:
    """Return the total memory of some processes in bytes, and their faults; None for values that are not reported.

    `pss` is the sum of `anonymous_pss`, `file` and `shmem`. Each page is divided by the number of processes that map
    it, so the sum counts each copy once. `private` is memory that currently only one process maps, including clean
    pages of files. `anonymous` is memory that is not backed by a file. Faults are counted for live processes only.
    """
    sums: dict[str, Any] = defaultdict(int)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a process that has ended holds nothing
            for name, value in _numbers_of(pid).items():
                sums[name] = None if None in (sums[name], value) else sums[name] + value
    return sums


def _numbers_of(pid: int) -> dict[str, Any]:
    memory, stat = proc.rollup(pid), proc.stat(pid)
    return {
        "processes": 1,
        "pss": memory.pss,
        "anonymous": memory.anonymous,
        "private": memory.uss,
        "swap": memory.swap if memory.swap_pss is None else memory.swap_pss,
        "page_tables": proc.status(pid).vm_pte or 0,
        "minor_faults": stat.minflt,
        "major_faults": stat.majflt,
        "anonymous_pss": memory.pss_anon,
        "file": memory.pss_file,
        "shmem": memory.pss_shmem,
    }


class Peak:
    """The highest total RssAnon of some processes so far, in bytes."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self.bytes = 0

    def poll(self) -> None:
        """Measure once. A process that has ended counts as 0."""
        found = 0
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                found += proc.status(pid).rss_anon or 0
        self.bytes = max(self.bytes, found)


def disk_bytes(path: str | os.PathLike[str], *, written: bool = False) -> int | None:
    """Return the bytes that a file's disk has read (or written) since boot, for all processes.

    Return None for file systems without a single block device: tmpfs, overlayfs, btrfs, network file systems.
    """
    device = Path(path).stat().st_dev
    counters = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    if not counters.exists():
        return None
    return int(counters.read_text().split()[6 if written else 2]) * 512  # in sectors of 512 bytes, whatever the disk


def sum_of(values: Iterable[int | None]) -> int | None:
    """Return the sum of the numbers, or None if one of them is unknown."""
    known = list(values)
    return None if None in known else sum(filter(None, known))


def difference(after: int | None, before: int | None) -> int | None:
    """Return after - before, or None if either is unknown."""
    return None if after is None or before is None else after - before


def fresh_memory(size: int, *, huge: bool) -> tuple[mmap.mmap, NDArray[np.uint8]]:
    """Return new, untouched private memory of at least `size` bytes that begins on a 2 MiB boundary.

    MAP_PRIVATE is explicit, because Python's default for anonymous memory is MAP_SHARED, which is shared memory, has a
    separate huge page setting, and does not count as anonymous.
    """
    length = -(-size // HUGE) * HUGE + HUGE
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    return memory, whole[-whole.ctypes.data % HUGE :]


def back_memory(size: int) -> None:
    """Touch and free as much memory as a sample will need, so that the host provides the memory in advance.

    The host of a virtual machine may reclaim free memory and provide it again on first access, page by page, at less
    than 1 GB/s. Memory that was recently in use is still backed, like all memory on a physical machine.
    """
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            memory, data = fresh_memory(size + BACKED_MORE, huge=True)
            data[::STRIDE] = 1
            del memory
        os._exit(0)
    os.waitpid(pid, 0)


# --- the page cache ---------------------------------------------------------------------------------------------------


def set_cache_state(path: str | os.PathLike[str], state: str) -> int | None:
    """Evict a file from the cache ("cold"), or fill the cache ("warm"). Return the bytes then cached (None: unknown).

    The caller records whether this succeeded.
    """
    cached = evict(path)
    return fill(path) if state == "warm" else cached


def evict(path: str | os.PathLike[str]) -> int | None:
    """Write back the file, drop its cached pages, and return the number of bytes still cached (None: unknown)."""
    with Path(path).open("rb", buffering=0) as file:
        with contextlib.suppress(OSError):  # a read-only file system has nothing to write back
            os.fdatasync(file.fileno())
        for _ in range(3):  # a page that a kernel scanner is using is not dropped
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not (left := cached_bytes(path)):
                break
    return left


def fill(path: str | os.PathLike[str]) -> int | None:
    """Read the file once from front to back in 8 MiB requests, and return the number of bytes then cached."""
    with Path(path).open("rb", buffering=0) as file, memoryview(bytearray(READ)) as buffer:
        while file.readinto(buffer):
            pass
    return cached_bytes(path)


def cached_bytes(path: str | os.PathLike[str]) -> int | None:
    """Return the number of bytes of a file in the page cache (None: unknown), without changing the page cache."""
    size = Path(path).stat().st_size
    known = page_cache.residency(path).cached if size else 0
    return None if known is None else min(known, size)


def identity(path: str | os.PathLike[str]) -> tuple[int, int, int, int]:
    """Return the attributes that identify a file's current state: device, inode, size and time of change."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
