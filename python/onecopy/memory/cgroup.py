"""Read the limits, the reclaimable memory and the memory shortage of a process's control group.

A container's limit is the tightest of the limits on its memory cgroup and on all groups above it. `container` finds the
groups in ``/proc/PID/cgroup`` and the mount points in ``/proc/self/mountinfo``, for cgroup v1, v2 and machines that
mount both. A control group is also charged for the page cache of files that its processes read first; most of that can
be dropped at any time. Anonymous memory, shared memory and kernel memory cannot be dropped. Kubernetes and ``docker
stats`` show the *working set*, usage minus inactive file pages, which includes files that are read repeatedly.
`pressure` reports the time that tasks lost waiting for memory (PSI). This requires Linux 4.20, cgroup v2 for the
pressure of groups, and on some kernels the boot option ``psi=1``.

**Units and None** are the same as in `onecopy.memory.proc`: bytes, and None if the kernel does not report a number or
hides it from this container.

**When not to use it.** To measure a single process, use `onecopy.memory.proc`.

**Errors.** ``parse_x`` raises ValueError with the kind of file and the line. Functions that read a process raise the
same errors as `onecopy.memory.proc`.

**Ownership and threads.** Results are immutable, no file stays open, and any thread may call any function. A group's
files are read one after the other, so their numbers may be slightly inconsistent. `root` is the root of the file
system: ``/``, or a recorded copy that contains ``proc`` and ``sys``.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from onecopy._core import held_by_group
from onecopy.base.text import significant, size
from onecopy.memory.proc import process_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onecopy.memory.proc import Key

ROOT = Path("/")

_MEMORY_NAMES = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")  # noqa: S108 - as the kernel prints them
_STALL_LINE = re.compile(r"(some|full) avg10=(\d+\.\d+) avg60=(\d+\.\d+) avg300=(\d+\.\d+) total=(\d+)", re.ASCII)
_OCTAL = re.compile(r"\\([0-7]{3})")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _OF_FILE, _FRAME = 1 << 63, 1 << 61, (1 << 55) - 1
"""Bits in a pagemap entry."""
_MAX_SAMPLED = 1024
_STAT_LINE = re.compile(r"([^ ]+) ([0-9]+)")
_UNLIMITED = 2**63 - 2**16  # v1 prints the last multiple of the page size, and pages have up to 64 KiB
_REFAULTS = "workingset_refault_file"
_V2_NAMES = {
    "rss": "anon",
    "cache": "file",
    "mapped_file": "file_mapped",
    "dirty": "file_dirty",
    "writeback": "file_writeback",
    "workingset_refault": _REFAULTS,  # before Linux 5.9 also in v2
}
_KERNEL = ("slab_reclaimable", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu", "sock")
"""The parts of kernel memory. v2 reports their total from Linux 5.18 on."""
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes"),
    2: ("memory.max", "memory.current", "memory.peak"),
}


@dataclass(frozen=True, slots=True)
class Mount:
    """A line in mountinfo: the directory `root` of a file system is mounted at `mount_point`.

    `device` is the ``st_dev`` of `os.stat`. `options` are the options of the file system, which for a v1 hierarchy
    include its controllers.
    """

    device: int
    root: str
    mount_point: str
    fs_type: str
    source: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stall:
    """Time spent waiting for memory, as shares (0 to 1) of the last 10, 60 and 300 s, and in seconds since boot."""

    avg10: float
    avg60: float
    avg300: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Pressure:
    """`some`: at least one task waited for memory. `full`: all tasks that were not idle were waiting at once."""

    some: Stall
    full: Stall


@dataclass(frozen=True, slots=True)
class Container:
    """The memory of a control group in bytes, where None means unlimited or not reported. `str` returns sentences."""

    version: int
    """Version of control groups: 1 or 2."""
    directory: str
    """Directory of the group."""
    limit: int | None
    """The tightest limit of the group and of the groups above it."""
    limited_by: str | None
    """Directory of the group to which `limit` belongs."""
    held: int
    """Unreclaimable bytes charged to the group in `limited_by`, including groups below it: usage minus page cache."""
    usage: int | None
    """Bytes charged to the group now, including page cache."""
    peak: int | None
    """Maximum of `usage` so far."""
    anonymous: int
    """Bytes of anonymous memory."""
    kernel: int | None
    """Bytes of kernel memory: page tables, stacks, slab."""
    kernel_reclaimable: int
    """The part of `kernel` that consists of reclaimable caches; 0 on v1, which does not report it."""
    shmem: int
    """Bytes of shared memory (tmpfs, /dev/shm, memfd), which can only be swapped out."""
    file_clean: int
    """Bytes of page cache that can be dropped without writing."""
    file_dirty: int
    """Bytes of page cache that must be written before they can be dropped."""
    working_set: int | None
    """The number that Kubernetes, cAdvisor and ``docker stats`` show: `usage` minus inactive file pages."""
    active_file: int | None
    """Bytes of page cache that can be dropped although the working set includes them."""
    refaults: int | None
    """Bytes that were read again after they had been dropped, which is a sign of memory shortage."""
    kills: int | None
    """Number of processes in the group that the OOM killer has killed so far."""
    pressure: Pressure | None
    """Time spent waiting for memory (PSI)."""
    pressure_of: str
    """"group", or "machine" if the kernel does not report the pressure of groups (v1)."""

    @property
    def unreclaimable(self) -> int:
        """Number of bytes that cannot be dropped: anonymous and shared memory (without swapping), and kernel memory."""
        return self.anonymous + self.shmem + max((self.kernel or 0) - self.kernel_reclaimable, 0)

    @property
    def left(self) -> int | None:
        """Number of bytes that can be allocated before the OOM killer acts (`limit` - `held`); None without a limit."""
        return None if self.limit is None else max(self.limit - self.held, 0)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> Iterator[str]:
        """Yield the measurements as sentences, the most important first."""
        held = f"{size(self.anonymous)} anonymous, {size(self.shmem)} shmem"
        held += "" if self.kernel is None else f", {size(self.kernel)} kernel"
        cannot = f"{size(self.unreclaimable)} cannot be dropped ({held})"
        yield f"{cannot}; there is no limit" if self.limit is None else cannot
        if self.limit is not None and self.left is not None:
            where = "" if self.limited_by in (None, self.directory) else f" of {self.limited_by}"
            share = f"{100 * self.held / self.limit:.0f} % of it is used" if self.limit else "all of it is used"
            left = f"{size(self.left)} are left before the OOM killer acts"
            yield f"limit{where}: {size(self.limit)}, {share}: {left}"
        if self.kills:
            yield f"the OOM killer has killed {self.kills} processes in this group so far"
        yield (
            f"page cache: {size(self.file_clean)} clean, which the kernel drops when memory is short; "
            f"{size(self.file_dirty)} dirty, which must be written first. A file is charged to the group whose process "
            "read it first"
        )
        if self.working_set is not None and self.usage is not None:
            yield (
                f"Kubernetes and docker stats show {size(self.working_set)}: the usage ({size(self.usage)}) minus "
                f"inactive file pages. {size(self.active_file or 0)} of it are active file pages, which can be dropped "
                "too"
            )
        if self.refaults:
            yield f"{size(self.refaults)} were read again after the kernel had dropped them"
        if self.pressure is not None and self.pressure.some.avg60 > 0:
            some, full = (significant(100 * stall.avg60) for stall in (self.pressure.some, self.pressure.full))
            yield (
                f"in the last minute, tasks of this {self.pressure_of} waited for memory {some} % of the time, and all "
                f"of them at once {full} % of the time"
            )


def container(pid: int | None = None, *, root: Path = ROOT) -> Container | None:
    """Measure the control group to which a process's memory is charged.

    Parameters
    ----------
    pid
        The process; None: this process.
    root
        Root of the file system: ``/``, or a recorded copy.

    Returns
    -------
    Container or None
        None if there are no memory control groups or the group is not visible.

    Raises
    ------
    ProcessLookupError
        There is no such process.

    Examples
    --------
    >>> from onecopy.memory import container
    >>> found = container()
    >>> found is None or found.unreclaimable >= found.anonymous
    True
    """
    membership = parse_membership(process_text(os.getpid() if pid is None else pid, "cgroup", root=root / "proc"))
    version = 1 if "memory" in membership else 2
    mounts = parse_mountinfo(Path(root, "proc/self/mountinfo").read_text("utf-8", "surrogateescape"))
    every = _levels(membership.get("memory", membership.get("")), version, mounts, root)
    levels = [level for level in every if (level / "memory.stat").exists()]
    return _measured(version, levels, root) if levels else None


def _measured(version: int, levels: list[Path], root: Path) -> Container:
    """Measure a group, given its directory and the directories of the groups above it."""
    directory = levels[0]
    limit_file, usage_file, peak_file = _FILES[version]
    stat = parse_memory_stat((directory / "memory.stat").read_text())
    limit, limited_by = _tightest([(parse_limit(_text(at / limit_file) or "max"), at) for at in levels], stat)
    kernel = _number(directory / "memory.kmem.usage_in_bytes") if version == 1 else stat.get("kernel")
    if kernel is None and stat.keys() & set(_KERNEL):
        kernel = sum(stat.get(name, 0) for name in _KERNEL)
    usage, inactive, refaults = _number(directory / usage_file), stat.get("inactive_file"), stat.get(_REFAULTS)
    dirty, shmem = stat.get("file_dirty", 0) + stat.get("file_writeback", 0), stat.get("shmem", 0)
    of_group = pressure(directory, root=root) if version == 2 else None
    return Container(
        version=version,
        directory=str(directory),
        limit=limit,
        limited_by=None if limited_by is None else str(limited_by),
        held=held_by_group(str(limited_by or directory), version),
        usage=usage,
        peak=_number(directory / peak_file),
        anonymous=stat["anon"],
        kernel=kernel,
        kernel_reclaimable=stat.get("slab_reclaimable", 0),
        shmem=shmem,
        file_clean=max(stat["file"] - shmem - dirty, 0),
        file_dirty=dirty,
        working_set=None if usage is None or inactive is None else max(usage - inactive, 0),
        active_file=stat.get("active_file"),
        refaults=None if refaults is None else refaults * _PAGE,
        kills=kills(directory),
        pressure=of_group or pressure(root=root),
        pressure_of="group" if of_group else "machine",
    )


def parse_mountinfo(text: str) -> list[Mount]:
    r"""Parse the text of mountinfo, in the order of mounting.

    >>> parse_mountinfo("36 35 98:0 / /a\\040b rw shared:1 - ext4 /dev/sda rw,discard\n")[0].mount_point
    '/a b'
    """
    return [_mount(line) for line in text.split("\n") if line]


def kind_of(key: Key, path: str) -> Literal["file", "shmem"]:
    """Return "shmem" for files on tmpfs and other file systems in memory, otherwise "file".

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
    r"""Parse the text of ``/proc/PID/cgroup``. Return paths of groups by controller, with the key "" for v2.

    >>> parse_membership("4:memory:/a\n2:cpu,cpuacct:/b\n0::/c\n")
    {'memory': '/a', 'cpu': '/b', 'cpuacct': '/b', '': '/c'}
    """
    groups: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        hierarchy, *rest = line.split(":", 2)
        if len(rest) != 2 or not hierarchy.isdecimal():
            raise ValueError(f"cgroup: cannot parse line {line!r}")
        groups |= dict.fromkeys(rest[0].split(","), rest[1])
    return groups


def parse_limit(text: str) -> int | None:
    """Parse a limit in bytes. Return None if there is no limit: "max" in v2, a number near 2**63 in v1.

    >>> parse_limit("1048576"), parse_limit("max"), parse_limit("9223372036854771712")
    (1048576, None, None)
    """
    limit = _UNLIMITED if text.strip() == "max" else _count("memory limit", text)
    return limit if limit < _UNLIMITED else None


def parse_memory_stat(text: str) -> dict[str, int]:
    r"""Parse the text of memory.stat in either version. Return numbers by v2 name. They include the groups below.

    Numbers are in bytes, except that ``workingset_refault_*`` counts pages that were read again after their eviction,
    which is a sign of memory shortage. ``file`` is page cache, including ``shmem``. ``hierarchical_memory_limit`` (v1
    only) is the tightest limit, including those of groups that are not visible.

    >>> parse_memory_stat("cache 4096\nrss 0\ntotal_cache 8192\ntotal_rss 0\n")["file"]
    8192
    """
    numbers: dict[str, int] = {}
    for line in filter(None, text.split("\n")):
        match = _STAT_LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"memory.stat: cannot parse line {line!r}")
        name = match[1].removeprefix("total_")  # v1 only: these lines include descendants, and come last
        numbers[_V2_NAMES.get(name, name)] = int(match[2])
    if missing := {"anon", "file"} - numbers.keys():
        raise ValueError(f"memory.stat: the line for {min(missing)!r} is missing")
    return numbers


def parse_pressure(text: str) -> Pressure:
    r"""Parse the text of ``/proc/pressure/memory``, or of a group's memory.pressure.

    >>> stall = "avg10=1.50 avg60=0.00 avg300=0.00 total=2000000"
    >>> parse_pressure(f"some {stall}\nfull {stall}\n").some
    Stall(avg10=0.015, avg60=0.0, avg300=0.0, total_s=2.0)
    """
    stalls: dict[str, Stall] = {}
    for line in filter(None, text.split("\n")):
        match = _STALL_LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"pressure: cannot parse line {line!r}")
        stalls[match[1]] = Stall(
            float(match[2]) / 100, float(match[3]) / 100, float(match[4]) / 100, int(match[5]) / 1e6
        )
    if stalls.keys() != {"some", "full"}:
        raise ValueError("pressure: the line for 'some' or 'full' is missing")
    return Pressure(stalls["some"], stalls["full"])


def pressure(group: Path | None = None, *, root: Path = ROOT) -> Pressure | None:
    """Read the pressure of a group, given its directory, or of the machine. None if the kernel does not report it.

    >>> found = pressure()
    >>> found is None or 0 <= found.full.avg10 <= 1
    True
    """
    text = _text(Path(root, "proc/pressure/memory") if group is None else group / "memory.pressure")
    return parse_pressure(text) if text else None


def parse_kills(text: str) -> int | None:
    r"""Return the number of OOM kills from the text of memory.events (v2) or memory.oom_control (v1).

    >>> parse_kills("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n"), parse_kills("oom_kill_disable 0\n")
    (1, None)
    """
    for line in text.split("\n"):
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            if not number.isdecimal():
                raise ValueError(f"kills: cannot parse line {line!r}")
            return int(number)
    return None


def kills(group: Path) -> int | None:
    """Return the number of OOM kills in a group, given its directory, or None if the kernel does not report it.

    >>> kills(Path("/proc"))
    """
    for name in ("memory.events", "memory.oom_control"):
        if (text := _text(group / name)) is not None:
            return parse_kills(text)
    return None


def charged_to(pid: int, ranges: Iterable[tuple[int, int]]) -> dict[str, float] | None:
    """Return which control groups are charged for the file pages that a process maps, and each group's share.

    A page of a file is charged to the group of the process that read it first, even if other groups map it. Up to
    1,024 pages of each range are looked up in ``/proc/kpagecgroup``.

    Parameters
    ----------
    pid
        The process.
    ranges
        (address, length in bytes) of each mapping of the file in that process.

    Returns
    -------
    dict or None
        Shares (0 to 1) by the directory of the group; "" stands for groups that were removed or are outside of this
        container. The dict is empty if no page is mapped. None if the kernel hides the groups from this process.

    Examples
    --------
    >>> import os
    >>> charged_to(os.getpid(), []) in ({}, None)
    True
    """
    found: Counter[int] = Counter()
    try:
        with (
            Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap,
            Path("/proc/kpagecgroup").open("rb", buffering=0) as groups,
        ):
            for address, length in ranges:
                first, last = address // _PAGE, (address + length - 1) // _PAGE
                for page in range(first, last + 1, max((last - first) // _MAX_SAMPLED, 1)):
                    entry = int.from_bytes(os.pread(pagemap.fileno(), 8, page * 8), "little")
                    if not entry & _PRESENT or not entry & _OF_FILE:
                        continue
                    if not (frame := entry & _FRAME):
                        return None  # the kernel hides frame numbers
                    found[int.from_bytes(os.pread(groups.fileno(), 8, frame * 8), "little")] += 1
    except OSError:
        return None
    names = _directories(set(found))
    shares: Counter[str] = Counter()
    for inode, count in found.items():
        shares[names.get(inode, "")] += count
    return {name: count / found.total() for name, count in shares.most_common()}


def _directories(inodes: set[int]) -> dict[int, str]:
    """Return the directories of memory control groups by inode."""
    names: dict[int, str] = {}
    version = 1 if "memory" in parse_membership(process_text(os.getpid(), "cgroup")) else 2
    for mount in parse_mountinfo(process_text(os.getpid(), "mountinfo")):
        if _has_memory(mount, version):
            for directory, _, _ in os.walk(mount.mount_point):
                if names.keys() >= inodes:
                    return names
                with suppress(OSError):
                    inode = os.stat(directory).st_ino  # noqa: PTH116 - text
                    if inode in inodes:
                        names.setdefault(inode, directory)
    return names


def _has_memory(mount: Mount, version: int) -> bool:
    return mount.fs_type == "cgroup2" if version == 2 else mount.fs_type == "cgroup" and "memory" in mount.options


def _mount(line: str) -> Mount:
    place, _, what = line.partition(" - ")
    try:
        _, _, device, inside, mount_point, *_ = place.split(" ")
        fs_type, source, options = what.split(" ")
        major, minor = (int(part) for part in device.split(":"))
        number = os.makedev(major, minor)
    except (ValueError, OverflowError):
        raise ValueError(f"mountinfo: cannot parse line {line!r}") from None
    inside, mount_point, source = (
        _OCTAL.sub(lambda match: chr(int(match[1], 8)), name) for name in (inside, mount_point, source)
    )
    return Mount(number, inside, mount_point, fs_type, source, tuple(options.split(",")))


def _levels(group: str | None, version: int, mounts: list[Mount], root: Path) -> list[Path]:
    """Return the directories of a group and all groups above it, up to the mount point."""
    for mount in mounts:
        if group is None or not _has_memory(mount, version) or not PurePosixPath(group).is_relative_to(mount.root):
            continue
        below = PurePosixPath(group).relative_to(mount.root)
        if ".." not in below.parts:  # "..": outside of the cgroup namespace
            return [Path(root, mount.mount_point.lstrip("/"), part) for part in (below, *below.parents)]
    return []


def _tightest(limits: list[tuple[int | None, Path]], stat: dict[str, int]) -> tuple[int | None, Path | None]:
    known = [(limit, at) for limit, at in limits if limit is not None]
    if "hierarchical_memory_limit" in stat:  # of v1: includes hidden groups, and respects use_hierarchy=0
        tightest = parse_limit(str(stat["hierarchical_memory_limit"]))
        return tightest, next((at for limit, at in known if limit == tightest), None)
    return min(known, key=lambda pair: pair[0]) if known else (None, None)


def _count(kind: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{kind}: cannot parse line {text!r}")
    return int(text.strip())  # strip() removes more characters than int() does


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.EOPNOTSUPP):
            return None  # this kernel does not have it, or the group was removed
        raise


def _number(path: Path) -> int | None:
    text = _text(path)
    return None if text is None else _count(path.name, text)
