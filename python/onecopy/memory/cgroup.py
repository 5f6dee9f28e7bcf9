"""Read the environment of a process: its memory cgroup, the memory of the machine, the disk of a file.

The memory limit of a container is the tightest limit of its memory cgroup and of all groups above it. `memory_group`
finds them on cgroup v1, v2 and machines that mount both, from ``/proc/PID/cgroup`` and the mount points in
``/proc/self/mountinfo``. `meminfo` reads the memory of the machine, and `block_stat` the counters of a disk.

**Units and None** are those of `onecopy.memory.proc`: bytes, and None where the kernel does not report a number or
hides it from this container.

**When not to use it.** To measure one process. A group is also charged for kernel memory, and for page cache of every
file that one of its processes was the *first* to read, including processes that have ended.

**Errors.** ``parse_x`` raises ValueError with the kind of file and the line; functions of a process raise the errors of
`onecopy.memory.proc`.

**Ownership and threads.** Results are immutable, no file stays open, and any thread may call any function. The files of
a group are read one after the other, so its numbers may be slightly inconsistent. `root` is the root of the file
system: ``/``, or a recorded copy with ``proc`` and ``sys``.
"""

import errno
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal

from onecopy.memory.proc import (  # shared with `proc`; two files because of their size
    Key,
    _build,
    _numbers,
    process_text,
)

ROOT = Path("/")

_MEMORY_NAMES = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")  # noqa: S108 - as the kernel prints them
_OCTAL = re.compile(r"\\([0-7]{3})")
_STAT_LINE = re.compile(r"([^ ]+) ([0-9]+)")
_UNLIMITED = 2**63 - 2**16  # v1 prints the last multiple of the page size, and pages have up to 64 KiB
_SECTOR = 512  # the unit of block statistics, whatever the disk
_V2_NAMES = {
    "rss": "anon",
    "cache": "file",
    "mapped_file": "file_mapped",
    "dirty": "file_dirty",
    "writeback": "file_writeback",
    "workingset_refault": "workingset_refault_file",  # before Linux 5.9 also in v2
}
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes"),
    2: ("memory.max", "memory.current", "memory.peak"),
}


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: the directory `root` of a file system is mounted at `mount_point`.

    `device` is the ``st_dev`` of `os.stat`. `options` are those of the file system: in a v1 hierarchy, its controllers.
    """

    device: int
    root: str
    mount_point: str
    fs_type: str
    source: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryStat:
    """The contents of memory.stat with v2 names, including descendants: bytes, but pages for ``workingset_refault_*``.

    `file` is page cache, including `shmem`. `kernel` is all kernel memory (v2: from Linux 5.18; v1: from another file,
    which `memory_group` reads). A refault is a page that was read again after its eviction, a sign of memory shortage.
    `hierarchical_memory_limit` (v1 only) is the tightest limit, including groups that are not visible.
    """

    anon: int
    file: int
    shmem: int | None = None
    kernel: int | None = None
    file_mapped: int | None = None
    file_dirty: int | None = None
    file_writeback: int | None = None
    inactive_anon: int | None = None
    active_anon: int | None = None
    inactive_file: int | None = None
    active_file: int | None = None
    unevictable: int | None = None
    slab_reclaimable: int | None = None
    slab_unreclaimable: int | None = None
    kernel_stack: int | None = None
    pagetables: int | None = None
    percpu: int | None = None
    sock: int | None = None
    workingset_refault_anon: int | None = None
    workingset_refault_file: int | None = None
    hierarchical_memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """The memory cgroup that a process is charged to.

    Attributes
    ----------
    version : int
        Version of control groups: 1 or 2.
    directory : Path
        Directory of the group; of the nearest group above with memory files if that of the process is hidden.
    limit : int or None
        The tightest visible limit of the group and of those above, in bytes; None if unlimited.
    limited_by : Path or None
        The group that has `limit`; None if unlimited, or if the limit (v1) is that of a group that is not visible.
    usage, peak : int or None
        Bytes charged now, including page cache, and their maximum so far. None for the root of v2; the peak is
        reported by v2 from Linux 5.19.
    stat : MemoryStat
        The parts of the usage.
    """

    version: int
    directory: Path
    limit: int | None
    limited_by: Path | None
    usage: int | None
    peak: int | None
    stat: MemoryStat


@dataclass(frozen=True, slots=True)
class Meminfo:
    """Memory of the whole machine in bytes, also inside a container; `cached` includes `shmem`.

    `mem_available` (free, or reclaimable without swapping) is None before Linux 3.14. `committed_as` is the private
    writable memory that programs have allocated, used or not.
    """

    mem_total: int
    mem_free: int
    buffers: int
    cached: int
    dirty: int
    writeback: int
    anon_pages: int
    mapped: int
    shmem: int
    sreclaimable: int
    page_tables: int
    swap_total: int
    swap_free: int
    mem_available: int | None = None
    committed_as: int | None = None


@dataclass(frozen=True, slots=True)
class BlockStat:
    """Completed requests of a disk or partition since boot, by all processes, and their sizes in bytes."""

    reads: int
    bytes_read: int
    writes: int
    bytes_written: int


def parse_mountinfo(text: str) -> list[Mount]:
    r"""Parse the text of mountinfo, in the order of mounting.

    >>> parse_mountinfo("36 35 98:0 / /a\\040b rw shared:1 - ext4 /dev/sda rw,discard\n")[0].mount_point
    '/a b'
    """
    return [_mount(line) for line in text.split("\n") if line]


def kind_of(key: Key, path: str) -> Literal["file", "shmem"]:
    """Return "shmem" for files of tmpfs and similar file systems in memory, else "file".

    >>> kind_of((0, 1), "/memfd:numbers")
    'shmem'
    """
    return "shmem" if path.startswith(_MEMORY_NAMES) or key[0] in _memory_devices() else "file"


@cache
def _memory_devices() -> frozenset[int]:
    with suppress(OSError, ValueError):
        mounts = parse_mountinfo(process_text(os.getpid(), "mountinfo"))
        return frozenset(mount.device for mount in mounts if mount.fs_type in ("tmpfs", "devtmpfs", "ramfs"))
    return frozenset()


def parse_membership(text: str) -> dict[str, str]:
    r"""Parse the text of ``/proc/PID/cgroup``: paths of groups by controller; that of v2 has the key "".

    >>> parse_membership("4:memory:/a\n2:cpu,cpuacct:/b\n0::/c\n")
    {'memory': '/a', 'cpu': '/b', 'cpuacct': '/b', '': '/c'}
    """
    groups: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        hierarchy, *rest = line.split(":", 2)
        if len(rest) != 2 or not hierarchy.isdecimal():
            raise ValueError(f"cgroup: cannot read line {line!r}")
        groups |= dict.fromkeys(rest[0].split(","), rest[1])
    return groups


def parse_limit(text: str) -> int | None:
    """Parse a limit in bytes; None for no limit, which is "max" in v2 and nearly 2**63 in v1.

    >>> parse_limit("1048576"), parse_limit("max"), parse_limit("9223372036854771712")
    (1048576, None, None)
    """
    limit = _UNLIMITED if text.strip() == "max" else _count("memory limit", text)
    return limit if limit < _UNLIMITED else None


def parse_memory_stat(text: str) -> MemoryStat:
    r"""Parse the text of memory.stat, of either version.

    >>> parse_memory_stat("cache 4096\nrss 0\ntotal_cache 8192\ntotal_rss 0\n").file
    8192
    """
    numbers: dict[str, int] = {}
    for line in filter(None, text.split("\n")):
        match = _STAT_LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"memory.stat: cannot read line {line!r}")
        name = match[1].removeprefix("total_")  # v1 only: lines that include descendants come last, and are used
        numbers[_V2_NAMES.get(name, name)] = int(match[2])
    return _build(MemoryStat, "memory.stat", numbers)


def memory_group(pid: int, *, root: Path = ROOT) -> MemoryGroup | None:
    """Measure the memory cgroup of a process; None if none is mounted, or the group is outside of the mount.

    >>> group = memory_group(os.getpid())
    >>> group is None or group.version in (1, 2)
    True
    """
    membership = parse_membership(process_text(pid, "cgroup", root=root / "proc"))
    version = 1 if "memory" in membership else 2
    group = membership.get("memory", membership.get(""))
    mounts = parse_mountinfo(Path(root, "proc/self/mountinfo").read_text("utf-8", "surrogateescape"))
    levels = [level for level in _levels(group, version, mounts, root) if (level / "memory.stat").exists()]
    if not levels:
        return None
    limit_file, usage_file, peak_file = _FILES[version]
    stat = parse_memory_stat((levels[0] / "memory.stat").read_text())
    if version == 1:
        stat = replace(stat, kernel=_number(levels[0] / "memory.kmem.usage_in_bytes"))
    limit, limited_by = _tightest(((parse_limit(_text(at / limit_file) or "max"), at) for at in levels), stat)
    usage, peak = _number(levels[0] / usage_file), _number(levels[0] / peak_file)
    return MemoryGroup(version, levels[0], limit, limited_by, usage, peak, stat)


def parse_meminfo(text: str) -> Meminfo:
    """Parse the text of meminfo.

    >>> parse_meminfo(Path("/proc/meminfo").read_text()).mem_total > 2**20
    True
    """
    return _build(Meminfo, "meminfo", _numbers("meminfo", text))


def meminfo(*, root: Path = ROOT) -> Meminfo:
    """Read the size and the use of the memory of the machine.

    >>> memory = meminfo()
    >>> 0 < memory.mem_free < memory.mem_total
    True
    """
    return parse_meminfo(Path(root, "proc/meminfo").read_text())


def parse_block_stat(text: str) -> BlockStat:
    """Parse the text of ``/sys/dev/block/M:m/stat``: 11 numbers or more, sizes in sectors of 512 bytes.

    >>> parse_block_stat("3 0 8 1 2 0 16 1 0 1 1").bytes_read
    4096
    """
    words = text.split()
    if len(words) < 11 or not all(word.isdecimal() for word in words):
        raise ValueError(f"block stat: cannot read line {text!r}")
    reads, _, sectors_read, _, writes, _, sectors_written = (int(word) for word in words[:7])
    return BlockStat(reads, sectors_read * _SECTOR, writes, sectors_written * _SECTOR)


def block_stat(device: int, *, root: Path = ROOT) -> BlockStat | None:
    """Read the counters since boot of the disk or partition `device` (an ``st_dev``).

    None for file systems without a single block device: tmpfs, overlayfs, btrfs, network file systems.

    >>> disk = block_stat(Path("/").stat().st_dev)
    >>> disk is None or disk.bytes_read >= 0
    True
    """
    text = _text(Path(root, f"sys/dev/block/{os.major(device)}:{os.minor(device)}/stat"))
    return None if text is None else parse_block_stat(text)


def read_ahead(device: int, *, root: Path = ROOT) -> int | None:
    """Return the readahead of `device` (an ``st_dev``) in bytes; None if the kernel does not report it.

    >>> ahead = read_ahead(Path("/").stat().st_dev)
    >>> ahead is None or ahead % 1024 == 0
    True
    """
    name = f"{os.major(device)}:{os.minor(device)}"
    # The setting belongs to the disk; a partition is a link into the folder of its disk.
    for place in (f"class/bdi/{name}", f"dev/block/{name}/queue", f"dev/block/{name}/../queue"):
        number = _number(Path(root, "sys", place, "read_ahead_kb"))
        if number is not None:
            return number * 1024
    return None


def _mount(line: str) -> Mount:
    place, _, what = line.partition(" - ")
    try:
        _, _, device, inside, mount_point, *_ = place.split(" ")
        fs_type, source, options = what.split(" ")
        major, minor = (int(part) for part in device.split(":"))
        number = os.makedev(major, minor)
    except (ValueError, OverflowError):
        raise ValueError(f"mountinfo: cannot read line {line!r}") from None
    inside, mount_point, source = (
        _OCTAL.sub(lambda match: chr(int(match[1], 8)), name) for name in (inside, mount_point, source)
    )
    return Mount(number, inside, mount_point, fs_type, source, tuple(options.split(",")))


def _levels(group: str | None, version: int, mounts: list[Mount], root: Path) -> list[Path]:
    """Return the directories of a group and of the groups above it, up to the mount point."""
    for mount in mounts:
        v1 = mount.fs_type == "cgroup" and "memory" in mount.options
        wanted = v1 if version == 1 else mount.fs_type == "cgroup2"
        if group is None or not wanted or not PurePosixPath(group).is_relative_to(mount.root):
            continue
        below = PurePosixPath(group).relative_to(mount.root)
        if ".." not in below.parts:  # "..": outside of the cgroup namespace, with unknown names
            return [Path(root, mount.mount_point.lstrip("/"), part) for part in (below, *below.parents)]
    return []


def _tightest(limits: Iterable[tuple[int | None, Path]], stat: MemoryStat) -> tuple[int | None, Path | None]:
    known = [(limit, at) for limit, at in limits if limit is not None]
    if stat.hierarchical_memory_limit is not None:  # of v1: includes hidden groups, and respects use_hierarchy=0
        tightest = parse_limit(str(stat.hierarchical_memory_limit))
        return tightest, next((at for limit, at in known if limit == tightest), None)
    return min(known, key=lambda pair: pair[0]) if known else (None, None)


def _count(kind: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{kind}: cannot read line {text!r}")
    return int(text)


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.EOPNOTSUPP):
            return None  # not on this kernel, or the group was removed
        raise


def _number(path: Path) -> int | None:
    text = _text(path)
    return None if text is None else _count(path.name, text)
