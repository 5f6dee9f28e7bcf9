"""What the Linux kernel says about a process: text in, numbers out.

Every memory proof, the benchmarks and the monitor read the kernel here, and in `onecopy.memory.cgroup` what is
around a process. ``parse_x(text)`` holds the logic; ``x(pid)`` reads one file and parses it.

**Units.** Bytes and seconds, never kB or ticks. Names are the kernel's in snake_case. None: the kernel did
not say; a missing line is 0 only where nothing else can be true. Numbers not known here are skipped.

**When not to use it.** `rollup`, `smaps` and `regions_of` walk page tables under a lock of the *observed*
process: 6 ms per GiB of mapped file, 22 ms per GiB of anonymous memory, each time. `status` takes 15 us.

**Errors.** ``parse_x``: ValueError with the kind of file and the line. ``x(pid)``: ProcessLookupError (it
vanished, or has no memory to walk: zombie, kernel thread), PermissionError, FileNotFoundError (this kernel
lacks the file).

**Ownership and threads.** Results are immutable snapshots, no file stays open, nothing is remembered: any
thread may call anything. Two calls see two moments. `root` is where ``/proc`` is mounted, or a recorded copy.
"""

import errno
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

PROC = Path("/proc")

_RecordT = TypeVar("_RecordT")
_NUMBER_LINE = re.compile(r"(?m)^([^:\n]+):[ \t]*([0-9]+)( kB)?$")
_HEX = "([0-9a-f]+)"
_DEV = "([0-9a-f]{2,5})"
_REGION_LINE = re.compile(rf"(?s){_HEX}-{_HEX} ([r-][w-][x-][ps]) {_HEX} {_DEV}:{_DEV} ([0-9]+) *(.*)")
_REGION_START = re.compile(r"\n(?=[0-9a-f])")  # the names of numbers begin with a capital
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
_OWNED = ("vm_rss", "vm_pte", "vm_swap", "vm_lck", "rss_anon", "rss_file", "rss_shmem")


@dataclass(frozen=True, slots=True)
class Rollup:
    """Memory of a process, or of one region of it, in bytes.

    Attributes
    ----------
    rss, pss : int
        Resident; resident with each page divided by the number of its mappers.
    shared_clean, shared_dirty, private_clean, private_dirty : int
        The parts of `rss`. Private means one mapper *now*: a lone mapper's clean file pages are in it.
    referenced, anonymous, swap, locked, anon_huge_pages : int
        Recently used; without a file; swapped out; the `pss` under mlock; anonymous in huge pages.
    shmem_pmd_mapped, file_pmd_mapped : int
        Shared memory, and file pages, mapped huge. A kernel without the line cannot do it: 0.
    shared_hugetlb, private_hugetlb, pss_anon, pss_file, pss_shmem, pss_dirty, swap_pss, lazy_free : int or None
        hugetlbfs pages (not in `rss`); parts of `pss`; share of `swap`; what an allocator has given up (MADV_FREE) and
        nobody needed. None on kernels without the line; three kinds of `pss` also in every region, which is of one.
    """

    rss: int
    pss: int
    shared_clean: int
    shared_dirty: int
    private_clean: int
    private_dirty: int
    referenced: int
    anonymous: int
    swap: int
    locked: int
    anon_huge_pages: int
    shmem_pmd_mapped: int = 0
    file_pmd_mapped: int = 0
    shared_hugetlb: int | None = None
    private_hugetlb: int | None = None
    pss_anon: int | None = None
    pss_file: int | None = None
    pss_shmem: int | None = None
    pss_dirty: int | None = None
    swap_pss: int | None = None
    lazy_free: int | None = None

    @property
    def uss(self) -> int:
        """Bytes that only this process maps now: private clean and dirty."""
        return self.private_clean + self.private_dirty


@dataclass(frozen=True, slots=True)
class Region:
    r"""One line of maps: the addresses ``[start, end)``, `offset` bytes into the file behind them.

    `perms` is "rwx" or dashes, then "p" (private, copy on write) or "s" (shared). `dev` and `inode` are those
    of `os.stat` (but see `regions_of`), 0 without a file. `path` is a file, "[heap]", "/memfd:NAME" or, when
    anonymous, ""; undecodable bytes as in `os.fsdecode`. The kernel writes a newline as ``\012`` but a
    backslash as it is: a name that contains ``\012`` reads wrongly. `deleted`: the kernel said " (deleted)",
    so the name is gone (a memfd never had one), or really ends like that.
    """

    start: int
    end: int
    perms: str
    offset: int
    dev: int
    inode: int
    path: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class MappedRegion(Region):
    """One entry of smaps: a `Region`, its `memory`, and `vm_flags` ("lo" locked ...; empty if not told)."""

    memory: Rollup
    vm_flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """What a process is and owns, in bytes; no page table is walked.

    `state` is one letter: R, S, D, T, Z ... Zombies and kernel threads own no memory: all 0, but the peaks
    `vm_hwm` (resident) and `vm_peak` (mapped) are None, as they are lost. `vm_pte` is page tables, `vm_lck`
    under mlock; the ``rss_*`` add up to `vm_rss`, and are None before Linux 4.5. `uid` is the real one.
    """

    state: str
    pid: int
    ppid: int
    uid: int
    threads: int
    vm_rss: int
    vm_pte: int | None = None
    vm_swap: int | None = None
    vm_lck: int | None = None
    rss_anon: int | None = None
    rss_file: int | None = None
    rss_shmem: int | None = None
    vm_hwm: int | None = None
    vm_peak: int | None = None


@dataclass(frozen=True, slots=True)
class Stat:
    """Faults, CPU seconds and age of a process with all its threads.

    `majflt` faults waited for a disk, `minflt` did not. `comm` may hold any byte. `starttime` is in seconds
    after boot; the pair of `pid` and `starttime` is never used again.
    """

    pid: int
    comm: str
    state: str
    ppid: int
    minflt: int
    majflt: int
    utime: float
    stime: float
    num_threads: int
    starttime: float


@dataclass(frozen=True, slots=True)
class Io:
    """Bytes since a process began: `rchar` and `wchar` through calls, the others from and to a disk.

    What a mapping reads is in `read_bytes` only; `cancelled_write_bytes` were deleted while still unwritten.
    """

    rchar: int
    wchar: int
    read_bytes: int
    write_bytes: int
    cancelled_write_bytes: int


def process_text(pid: int, name: str, *, root: Path = PROC) -> str:
    r"""Read ``/proc/PID/NAME`` at once, with the errors told above; undecodable bytes become surrogates.

    >>> process_text(os.getpid(), "comm").endswith("\n")
    True
    """
    path = f"{root}/{pid}/{name}"
    try:
        text = _read(path)
        if text or not name.startswith(("maps", "smaps")):
            return text
    except PermissionError as error:
        raise PermissionError(error.errno, f"process {pid} is somebody else's", path) from None
    except (FileNotFoundError, ProcessLookupError) as error:
        if error.errno == errno.ENOENT and Path(root, str(pid)).is_dir():
            raise
    raise ProcessLookupError(errno.ESRCH, f"process {pid} has gone, or has no memory", path)


def parse_rollup(text: str) -> Rollup:
    r"""Read the text of smaps_rollup.

    >>> names = "Rss Pss Shared_Clean Shared_Dirty Private_Clean Private_Dirty Referenced Anonymous"
    >>> memory = parse_rollup("".join(f"{n}: 4 kB\n" for n in f"{names} Swap Locked AnonHugePages".split()))
    >>> memory.rss, memory.uss, memory.pss_dirty
    (4096, 8192, None)
    """
    header, _, body = text.partition("\n")
    return _build(Rollup, "smaps_rollup", _numbers("smaps_rollup", body if "[rollup]" in header else text))


def rollup(pid: int, *, root: Path = PROC) -> Rollup:
    """Add up all memory of a process; walks its page tables. From Linux 4.14.

    >>> rollup(os.getpid()).anonymous > 0
    True
    """
    return parse_rollup(process_text(pid, "smaps_rollup", root=root))


def parse_maps(text: str) -> list[Region]:
    r"""Read the text of maps, in the order of addresses.

    >>> parse_maps("1000-3000 r--s 00001000 fe:00 7      /a b (deleted)\n")[0].path
    '/a b'
    """
    return [Region(*_region("maps", line)) for line in text.split("\n") if line]


def maps(pid: int, *, root: Path = PROC) -> list[Region]:
    """List the regions of a process without their memory; walks no page table.

    >>> any(region.path == "[stack]" for region in maps(os.getpid()))
    True
    """
    return parse_maps(process_text(pid, "maps", root=root))


def parse_smaps(text: str) -> list[MappedRegion]:
    """Read the text of smaps, in the order of addresses.

    >>> parse_smaps("")
    []
    """
    return [_mapped_region(entry) for entry in _REGION_START.split(text) if entry]


def smaps(pid: int, *, root: Path = PROC) -> list[MappedRegion]:
    """List the regions of a process, each with its memory; the most expensive call here.

    >>> sum(region.memory.rss for region in smaps(os.getpid())) > 2**20
    True
    """
    return parse_smaps(process_text(pid, "smaps", root=root))


def regions_of(pid: int, path: str | os.PathLike[str], *, root: Path = PROC) -> list[MappedRegion]:
    """List the regions of a process that map the file now at `path`, not one that it replaced.

    The inode is the same, and the device or the path: btrfs and overlayfs tell `os.stat` another device.
    FileNotFoundError when nothing is at `path`.

    >>> regions_of(os.getpid(), os.devnull)
    []
    """
    file = Path(path).stat()
    return of_file(smaps(pid, root=root), (file.st_dev, file.st_ino), os.path.realpath(path))


def of_file(regions: list[MappedRegion], file: tuple[int, int], real_path: str) -> list[MappedRegion]:
    """Pick the regions of one file, told by its device and inode, and its path where the device is another.

    >>> of_file([], (0, 0), "/")
    []
    """
    named = [region for region in regions if region.inode == file[1]]
    return [r for r in named if r.dev == file[0] or (r.path == real_path and not r.deleted)]


def parse_status(text: str) -> Status:
    r"""Read the text of status.

    >>> zombie = parse_status("State:\tZ (zombie)\nPid:\t7\nPPid:\t1\nUid:\t0\t0\t0\t0\nThreads:\t1\n")
    >>> zombie.state, zombie.vm_rss, zombie.vm_hwm
    ('Z', 0, None)
    """
    lines = {line.partition(":")[0]: line for line in text.split("\n")}
    try:
        uid, state = int(lines["Uid"].split()[1]), lines["State"].split()[1]
    except (LookupError, ValueError):
        raise ValueError(f"status: cannot read {lines.get('Uid')!r} or {lines.get('State')!r}") from None
    counts = _numbers("status", "\n".join(lines[name] for name in ("Pid", "PPid", "Threads") if name in lines))
    sizes = _numbers("status", "\n".join(lines[name] for name in lines if name.startswith(("Vm", "Rss"))))
    sizes = sizes or dict.fromkeys(_OWNED, 0)  # no address space: nothing is owned, the past is not told
    return _build(Status, "status", {**counts, **sizes, "state": state, "uid": uid})


def status(pid: int, *, root: Path = PROC) -> Status:
    """Read who a process is and what it owns, zombies too; cheap enough to sample.

    >>> status(os.getpid()).ppid == os.getppid()
    True
    """
    return parse_status(process_text(pid, "status", root=root))


def parse_stat(text: str, *, ticks_per_second: int = 100) -> Stat:
    """Read the text of stat.

    >>> parse_stat("7 (a) b) S 1 7 7 0 -1 0 3 0 2 0 150 50 0 0 20 0 1 0 1000").utime
    1.5
    """
    pid, _, rest = text.partition(" (")
    comm, _, tail = rest.rpartition(") ")  # the name comes unescaped, and may contain both
    words = tail.split()
    try:
        ppid, minflt, majflt, *ticks, threads, start = (int(words[i]) for i in (1, 7, 9, 11, 12, 17, 19))
        utime, stime, starttime = (tick / ticks_per_second for tick in (*ticks, start))
        return Stat(int(pid), comm, words[0], ppid, minflt, majflt, utime, stime, threads, starttime)
    except (ValueError, IndexError, OverflowError):
        raise ValueError(f"stat: cannot read line {text!r}") from None


def stat(pid: int, *, root: Path = PROC) -> Stat:
    """Read the faults and the CPU time of a process, zombies too.

    >>> stat(os.getpid()).minflt > 0
    True
    """
    return parse_stat(process_text(pid, "stat", root=root), ticks_per_second=os.sysconf("SC_CLK_TCK"))


def parse_io(text: str) -> Io:
    r"""Read the text of io.

    >>> names = "rchar", "wchar", "read_bytes", "write_bytes", "cancelled_write_bytes"
    >>> parse_io("".join(f"{name}: 4096\n" for name in names)).read_bytes
    4096
    """
    return _build(Io, "io", _numbers("io", text))


def io(pid: int, *, root: Path = PROC) -> Io:
    """Read the bytes that a process has read and written; needs the rights of its owner.

    >>> io(os.getpid()).rchar > 0
    True
    """
    return parse_io(process_text(pid, "io", root=root))


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Most files come in one piece, smaps and maps page by page.
        data = b"".join(iter(lambda: os.read(fd, 1 << 18), b""))
    finally:
        os.close(fd)
    return data.decode("utf-8", "surrogateescape")


def _region(kind: str, line: str) -> tuple[int, int, str, int, int, int, str, bool]:
    match = _REGION_LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"{kind}: cannot read line {line!r}")
    start, end, perms, offset, major, minor, inode, shown = match.groups()
    path = shown.removesuffix(" (deleted)")
    device = os.makedev(int(major, 16), int(minor, 16))
    place = (int(start, 16), int(end, 16), perms, int(offset, 16), device, int(inode))
    return (*place, path.replace(r"\012", "\n"), path != shown)


def _mapped_region(entry: str) -> MappedRegion:
    header, _, body = entry.partition("\n")
    numbers, _, flags = body.partition("VmFlags:")  # the last line, from Linux 3.8
    memory = _build(Rollup, "smaps", _numbers("smaps", numbers))
    return MappedRegion(*_region("smaps", header), memory, tuple(flags.split()))


def _numbers(kind: str, text: str) -> dict[str, int]:
    found = _NUMBER_LINE.findall(text)  # all at once: twice as fast as line by line
    lines = text.removesuffix("\n").split("\n") if text else []
    if len(found) != len(lines):
        line = next(line for line in lines if not _NUMBER_LINE.fullmatch(line))
        raise ValueError(f"{kind}: cannot read line {line!r}")
    return {_snake(name): int(number) << 10 if unit else int(number) for name, number, unit in found}


@lru_cache(maxsize=256)
def _snake(name: str) -> str:
    return _WORD_START.sub("_", name).lower()


def _build(record: Callable[..., _RecordT], kind: str, values: dict[str, Any]) -> _RecordT:
    known, required = _names(record)
    if missing := required - values.keys():
        raise ValueError(f"{kind}: no line for {min(missing)!r}")
    return record(**{name: values[name] for name in known & values.keys()})


@lru_cache
def _names(record: Any) -> tuple[frozenset[str], frozenset[str]]:
    every = fields(record)
    return frozenset(f.name for f in every), frozenset(f.name for f in every if f.default is MISSING)
