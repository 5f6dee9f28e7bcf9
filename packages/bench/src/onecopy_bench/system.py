"""What the kernel knows: facts about the machine, memory of processes, bytes of disks, and the state of the page cache.

Facts have no host name, no user name and no folder; what cannot be read is None.

A time means nothing without the state of the cache it started from. *Cold* is `fdatasync` and `POSIX_FADV_DONTNEED` on
that one file; no root is needed and nothing else on the machine is disturbed. *Warm* is the same, and then the file
read once from front to back: how pages got into the cache decides how big they are (a 2 MiB folio is mapped by one
fault, 4 KiB pages by 512), so every warm sample gets the same filling.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import mmap
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecopy.files import page_cache
from onecopy.memory import cgroup, proc

ROOT = Path("/")
STRIDE = 4096
"""Bytes between two touches: the smallest page of the machines that we know."""
READ = 8 << 20
"""Bytes per request; a multiple of the stride."""
HUGE = 2 << 20
BACKED_MORE = 256 << 20
"""Bytes that a sample takes beside its data: page tables, interpreters, what the kernel reads ahead."""
PACKAGES = (
    "onecopy", "numpy", "safetensors", "torch", "runai-model-streamer", "fastsafetensors", "tensorizer", "pyarrow",
    "datasets", "lmdb", "msgspec", "orjson", "polars", "psutil",
)  # fmt: skip


def disk_counters(device: int, *, root: Path = ROOT) -> tuple[int, int] | None:
    """Return the bytes that a disk or partition (an ``st_dev``) has read and written since boot, for all processes.

    None for file systems without a single block device: tmpfs, overlayfs, btrfs, network file systems.
    """
    path = Path(root, f"sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    if not path.exists():
        return None
    words = path.read_text().split()
    return int(words[2]) * 512, int(words[6]) * 512  # in sectors of 512 bytes, whatever the disk


def read_ahead(device: int, *, root: Path = ROOT) -> int | None:
    """Return the read-ahead of a device (an ``st_dev``) in bytes; None if the kernel does not report it."""
    name = f"{os.major(device)}:{os.minor(device)}"
    # The setting belongs to the disk; a partition is a link into the folder of its disk.
    for place in (f"class/bdi/{name}", f"dev/block/{name}/queue", f"dev/block/{name}/../queue"):
        path = Path(root, "sys", place, "read_ahead_kb")
        if path.exists():
            return int(path.read_text()) * 1024
    return None


def memory_of_machine() -> dict[str, int]:
    """Return the lines of ``/proc/meminfo`` in bytes."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(number) << 10 for name, number, *unit in lines if unit == ["kB"]}


def facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what is known about this machine and the device that holds `path`."""
    device, cpus = Path(path).stat().st_dev, _read("/proc/cpuinfo")
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
        "file_system": file_system(_read("/proc/self/mountinfo"), device),
        "read_ahead_bytes": read_ahead(device),
        "thp": _found(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "python": platform.python_version(),
        "packages": packages,
    }


def known_facts(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is known of a machine and its disk, for a sentence."""
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


def file_system(mountinfo: str, device: int) -> str | None:
    """Return the type of the file system with that device number from the text of mountinfo.

    Examples
    --------
    >>> file_system("21 1 8:1 / /data rw - ext4 /dev/sda1 rw", os.makedev(8, 1))
    'ext4'
    """
    mounts = cgroup.parse_mountinfo(mountinfo)
    return next((mount.fs_type for mount in mounts if mount.device == device), None)


def _found(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else None


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""


# --- memory and disks -------------------------------------------------------------------------------------------------


def family_of(pids: Iterable[int]) -> list[int]:
    """Return some processes and all their descendants."""
    found = list(pids)
    for pid in found:  # which grows
        found += proc.children_of(pid)
    return found


def anonymous_of(pids: Iterable[int]) -> int:
    """Return the anonymous bytes of some processes; cheap enough to poll."""
    found = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            found += proc.status(pid).rss_anon or 0
    return found


def totals_of(pids: Iterable[int]) -> dict[str, Any]:
    """Return what some processes hold together, in bytes, and their faults; None where the kernel is silent.

    `pss` splits into `anonymous_pss`, `file` and `shmem`: each page divided by the number of its mappers, so copies
    add up. `private` is what only one process maps now: a lone mapper's clean file pages are in it. `anonymous` is
    memory without a file. Faults and `read_bytes` (from a disk) are those of the processes that live.
    """
    names = ("processes", "pss", "anonymous", "private", "swap", "page_tables", "minor_faults", "major_faults")
    sums: dict[str, Any] = dict.fromkeys((*names, "anonymous_pss", "file", "shmem", "read_bytes"), 0)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended, and counts nothing
            one = _numbers_of(pid)
            sums = {name: None if None in (each, one[name]) else each + one[name] for name, each in sums.items()}
    return sums


def _numbers_of(pid: int) -> dict[str, int | None]:
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
        "read_bytes": bytes_read_by(pid),
    }


def bytes_read_by(pid: int) -> int | None:
    """Return the bytes that a process has made a disk read so far; None where the kernel does not count."""
    with contextlib.suppress(PermissionError, FileNotFoundError):
        return proc.io(pid).read_bytes
    return None


class Peak:
    """The highest sum of RssAnon over some processes so far, in bytes."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self.bytes = 0

    def poll(self) -> None:
        """Measure once; a process that has ended counts 0."""
        self.bytes = max(self.bytes, anonymous_of(self._pids()))


def disk_bytes(path: str | os.PathLike[str], *, written: bool = False) -> int | None:
    """Return the bytes that the disk of a file has read (or written) since boot, for any process; None: unknown."""
    disk = disk_counters(Path(path).stat().st_dev)
    return None if disk is None else disk[written]


def difference(after: int | None, before: int | None) -> int | None:
    """Return after - before, or None where either is unknown."""
    return None if after is None or before is None else after - before


def fresh_memory(size: int, *, huge: bool) -> tuple[mmap.mmap, NDArray[np.uint8]]:
    """Return new private memory of at least `size` bytes, beginning on a 2 MiB boundary, none of it touched.

    MAP_PRIVATE is explicit: Python's default for anonymous memory is MAP_SHARED, which is shmem, has a huge page switch
    of its own and does not count as anonymous.
    """
    length = -(-size // HUGE) * HUGE + HUGE
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    return memory, whole[-whole.ctypes.data % HUGE :]


def back_memory(size: int) -> None:
    """Touch and free as much memory as a sample will need, so that the host has provided it.

    The host of a virtual machine may take free memory back and give it again on first access, a page at a time and at
    less than 1 GB/s. What was used a moment ago is still backed, as all memory of a physical machine is.
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
    """Evict ("cold") or fill ("warm") the cache of a file; return the bytes cached then (None: unknown).

    The caller records whether that succeeded.
    """
    cached = evict(path)
    return fill(path) if state == "warm" else cached


def evict(path: str | os.PathLike[str]) -> int | None:
    """Write the file back, drop its cached pages and return how many bytes are cached now (None: unknown)."""
    with Path(path).open("rb", buffering=0) as file:
        with contextlib.suppress(OSError):  # a read-only file system has nothing to write back
            os.fdatasync(file.fileno())
        for _ in range(3):  # the kernel's own scanners hold a page for an instant now and then, and it stays
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not (left := cached_bytes(path)):
                break
    return left


def fill(path: str | os.PathLike[str]) -> int | None:
    """Read the file once from front to back in 8 MiB requests and return the bytes cached then."""
    with Path(path).open("rb", buffering=0) as file, memoryview(bytearray(READ)) as buffer:
        while file.readinto(buffer):
            pass
    return cached_bytes(path)


def cached_bytes(path: str | os.PathLike[str]) -> int | None:
    """Return how many bytes of a file are in the page cache (None: unknown); changes nothing."""
    size = Path(path).stat().st_size
    known = page_cache.residency(path).cached if size else 0
    return None if known is None else min(known, size)


def identity(path: str | os.PathLike[str]) -> tuple[int, int, int, int]:
    """Return what distinguishes one state of a file from another: device, inode, size and time of change."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
