"""Parsers for files in ``/proc`` that describe a process.

``parse_x(text)`` parses the text of a file; ``x(pid)`` reads a process's file and parses it.
`onecopy.memory.cgroup` contains readers for cgroups and the machine.

**Units.** Numbers are in bytes and seconds, never in kB or ticks. Names are the kernel's, in snake_case. None means
that the kernel does not report the number. A missing line is read as 0 only if 0 is certain. Unknown lines are skipped.

**When not to use it.** In loops: each call of `rollup`, `smaps` or `regions_of` walks page tables under a lock of the
*observed* process, for 6 ms per GiB of mapped files and 22 ms per GiB of anonymous memory. `status` takes 15 us.

**Errors.** ``parse_x`` raises ValueError with the kind of file and the line. ``x(pid)`` raises ProcessLookupError (the
process has ended, or is a zombie or kernel thread without memory), PermissionError, or FileNotFoundError (the kernel
does not provide the file).

**Ownership and threads.** Results are immutable, no file stays open, and any thread may call any function. Two calls
observe the process at different times. `root` is the mount point of ``/proc``, or a recorded copy.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from mmap import PAGESIZE
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from onecopy.memory.smaps import parse_numbers, parse_region, read_text, split_smaps

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


PROC = Path("/proc")

Key: TypeAlias = tuple[int, int]
"""Device and inode of a file, which stay the same when the file is renamed or removed."""

_RecordT = TypeVar("_RecordT")
_OWNED = ("vm_rss", "vm_pte", "vm_swap", "vm_lck", "rss_anon", "rss_file", "rss_shmem")


@dataclass(frozen=True, slots=True)
class Rollup:
    """The memory of a process, or of one of its regions, in bytes.

    Attributes
    ----------
    rss, pss : int
        Resident memory; resident memory with each page divided by the number of processes that map it.
    shared_clean, shared_dirty, private_clean, private_dirty : int
        The parts of `rss`. Private pages, even clean file pages, are *currently* mapped by one process only.
    referenced, anonymous, swap, locked, anon_huge_pages : int
        Recently used memory; anonymous memory; swapped-out memory; the `pss` of locked memory; anonymous huge pages.
    shmem_pmd_mapped, file_pmd_mapped : int
        Shared memory and file pages that are in huge pages; 0 if the kernel does not support this or report the field.
    shared_hugetlb, private_hugetlb, pss_anon, pss_file, pss_shmem, pss_dirty, swap_pss, lazy_free : int or None
        hugetlbfs pages (not in `rss`); parts of `pss`; share of `swap`; memory that an allocator has freed (MADV_FREE)
        but the kernel has not reclaimed. None if the kernel does not report the field; for regions, it does not
        report the parts of `pss`.
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
        """Number of bytes that only this process currently maps, both clean and dirty."""
        return self.private_clean + self.private_dirty

    @property
    def shared_anonymous(self) -> int:
        """For a region: number of bytes of anonymous memory that other processes also map."""
        return min(self.shared_clean + self.shared_dirty, self.anonymous)


@dataclass(frozen=True, slots=True)
class Region:
    r"""A line in maps: the addresses ``[start, end)``, at which a file is mapped from byte `offset` on.

    `perms` consists of "rwx" or dashes, followed by "p" (private, copy on write) or "s" (shared). `dev` and `inode` are
    the same as in `os.stat` (but see `regions_of`), or 0 without a file. `path` is the path of a file, "[heap]",
    "/memfd:NAME", or "" for anonymous memory, decoded as by `os.fsdecode`. The kernel writes a newline as ``\012`` and
    does not escape backslashes, so a path that contains ``\012`` is parsed incorrectly. `deleted` means that the path
    ends in " (deleted)", because the file was removed, is a memfd, or has such a name.
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
    """An entry in smaps: a `Region` with its `memory`, and `vm_flags` such as "lo" (locked), or () if not reported."""

    memory: Rollup
    vm_flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The state and the memory counters of a process, in bytes, read without a page-table walk.

    `state` is one letter: R, S, D, T, Z ... Zombies and kernel threads have no memory: their numbers are 0, and the
    peaks `vm_hwm` (resident) and `vm_peak` (mapped) are None. `vm_pte` is the size of page tables, and `vm_lck` is the
    locked memory. The ``rss_*`` numbers add up to `vm_rss`, and are None before Linux 4.5. `uid` is the real user id.
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
    """Page faults, CPU seconds and start time of a process, including all its threads.

    `majflt` counts faults that waited for a disk, and `minflt` all others. `comm` may contain any byte. `starttime` is
    in seconds after boot; `pid` and `starttime` together identify a process.
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
    """Bytes that a process has transferred so far, in system calls (`rchar`, `wchar`) or to and from disks (the rest).

    Reads through mappings are included only in `read_bytes`. `cancelled_write_bytes` were deleted before reaching the
    disk.
    """

    rchar: int
    wchar: int
    read_bytes: int
    write_bytes: int
    cancelled_write_bytes: int


def process_text(pid: int, name: str, *, root: Path = PROC) -> str:
    r"""Read ``/proc/PID/NAME``. Undecodable bytes become surrogates. Raise the same errors as `maps`.

    >>> process_text(os.getpid(), "comm").endswith("\n")
    True
    """
    path = f"{root}/{pid}/{name}"
    try:
        text = read_text(path)
        if text or not name.startswith(("maps", "smaps")):
            return text
    except PermissionError as error:
        raise PermissionError(error.errno, f"process {pid} belongs to another user", path) from None
    except (FileNotFoundError, ProcessLookupError) as error:
        if error.errno == errno.ENOENT and Path(root, str(pid)).is_dir():
            raise
    raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended, or has no memory", path)


def parse_rollup(text: str) -> Rollup:
    r"""Parse the text of smaps_rollup.

    >>> names = "Rss Pss Shared_Clean Shared_Dirty Private_Clean Private_Dirty Referenced Anonymous"
    >>> memory = parse_rollup("".join(f"{n}: 4 kB\n" for n in f"{names} Swap Locked AnonHugePages".split()))
    >>> memory.rss, memory.uss, memory.pss_dirty
    (4096, 8192, None)
    """
    header, _, body = text.partition("\n")
    return _build(Rollup, "smaps_rollup", parse_numbers("smaps_rollup", body if "[rollup]" in header else text))


def rollup(pid: int, *, root: Path = PROC) -> Rollup:
    """Return a process's total memory by walking its page tables. Requires Linux 4.14.

    >>> rollup(os.getpid()).anonymous > 0
    True
    """
    return parse_rollup(process_text(pid, "smaps_rollup", root=root))


def parse_maps(text: str) -> list[Region]:
    r"""Parse the text of maps. Return the regions in the order of addresses.

    >>> parse_maps("1000-3000 r--s 00001000 fe:00 7      /a b (deleted)\n")[0].path
    '/a b'
    """
    return [Region(*parse_region("maps", line)) for line in text.split("\n") if line]


def maps(pid: int, *, root: Path = PROC) -> list[Region]:
    """Return a process's regions, without their memory and without a page-table walk.

    >>> any(region.path == "[stack]" for region in maps(os.getpid()))
    True
    """
    return parse_maps(process_text(pid, "maps", root=root))


def parse_smaps(text: str) -> list[MappedRegion]:
    """Parse the text of smaps. Return the regions in the order of addresses.

    >>> parse_smaps("")
    []
    """
    found = []
    for header, numbers, flags in split_smaps(text):
        memory = _build(Rollup, "smaps", parse_numbers("smaps", numbers))
        found.append(MappedRegion(*parse_region("smaps", header), memory, tuple(flags.split())))
    return found


def smaps(pid: int, *, root: Path = PROC) -> list[MappedRegion]:
    """Return a process's regions, each with its memory. This is the most expensive function in the module.

    >>> sum(region.memory.rss for region in smaps(os.getpid())) > 2**20
    True
    """
    return parse_smaps(process_text(pid, "smaps", root=root))


def regions_of(pid: int, path: str | os.PathLike[str], *, root: Path = PROC) -> list[MappedRegion]:
    """Return a process's regions that map the file at `path`.

    A region matches if its inode, and either its device or its path, are the same, because `os.stat` reports a
    different device on btrfs and overlayfs. Raise FileNotFoundError if there is no file at `path`.

    >>> regions_of(os.getpid(), os.devnull)
    []
    """
    file = Path(path).stat()
    return of_file(smaps(pid, root=root), (file.st_dev, file.st_ino), os.path.realpath(path))


def of_file(regions: list[MappedRegion], file: tuple[int, int], real_path: str) -> list[MappedRegion]:
    """Return the regions that map a file, matched by inode and device, or by inode and path if the devices differ.

    >>> of_file([], (0, 0), "/")
    []
    """
    named = [region for region in regions if region.inode == file[1]]
    return [r for r in named if r.dev == file[0] or (r.path == real_path and not r.deleted)]


def parse_status(text: str) -> Status:
    r"""Parse the text of status.

    >>> zombie = parse_status("State:\tZ (zombie)\nPid:\t7\nPPid:\t1\nUid:\t0\t0\t0\t0\nThreads:\t1\n")
    >>> zombie.state, zombie.vm_rss, zombie.vm_hwm
    ('Z', 0, None)
    """
    lines = {line.partition(":")[0]: line for line in text.split("\n")}
    try:
        uid, state = int(lines["Uid"].split()[1]), lines["State"].split()[1]
    except (LookupError, ValueError):
        raise ValueError(f"status: cannot parse line {lines.get('Uid')!r} or {lines.get('State')!r}") from None
    counts = parse_numbers("status", "\n".join(lines[name] for name in ("Pid", "PPid", "Threads") if name in lines))
    sizes = parse_numbers("status", "\n".join(lines[name] for name in lines if name.startswith(("Vm", "Rss"))))
    sizes = sizes or dict.fromkeys(_OWNED, 0)  # without an address space there is no memory, and no peak
    return _build(Status, "status", {**counts, **sizes, "state": state, "uid": uid})


def status(pid: int, *, root: Path = PROC) -> Status:
    """Return the state and the memory counters of a process or zombie, in about 15 us.

    >>> status(os.getpid()).ppid == os.getppid()
    True
    """
    return parse_status(process_text(pid, "status", root=root))


def parse_stat(text: str, *, ticks_per_second: int = 100) -> Stat:
    """Parse the text of stat.

    >>> parse_stat("7 (a) b) S 1 7 7 0 -1 0 3 0 2 0 150 50 0 0 20 0 1 0 1000").utime
    1.5
    """
    pid, _, rest = text.partition(" (")
    comm, _, tail = rest.rpartition(") ")  # the name is not escaped, and may contain parentheses
    words = tail.split()
    try:
        ppid, minflt, majflt, *ticks, threads, start = (int(words[i]) for i in (1, 7, 9, 11, 12, 17, 19))
        utime, stime, starttime = (tick / ticks_per_second for tick in (*ticks, start))
        return Stat(int(pid), comm, words[0], ppid, minflt, majflt, utime, stime, threads, starttime)
    except (ValueError, IndexError, OverflowError):
        raise ValueError(f"stat: cannot parse line {text!r}") from None


def stat(pid: int, *, root: Path = PROC) -> Stat:
    """Return the faults and the CPU time of a process or zombie.

    >>> stat(os.getpid()).minflt > 0
    True
    """
    return parse_stat(process_text(pid, "stat", root=root), ticks_per_second=os.sysconf("SC_CLK_TCK"))


def parse_io(text: str) -> Io:
    r"""Parse the text of io.

    >>> names = "rchar", "wchar", "read_bytes", "write_bytes", "cancelled_write_bytes"
    >>> parse_io("".join(f"{name}: 4096\n" for name in names)).read_bytes
    4096
    """
    return _build(Io, "io", parse_numbers("io", text))


def io(pid: int, *, root: Path = PROC) -> Io:
    """Return the bytes that a process has read and written. Raise PermissionError for processes of other users.

    >>> io(os.getpid()).rchar > 0
    True
    """
    return parse_io(process_text(pid, "io", root=root))


def _build(record: Callable[..., _RecordT], kind: str, values: dict[str, Any]) -> _RecordT:
    known, required = _names(record)
    if missing := required - values.keys():
        raise ValueError(f"{kind}: the line for {min(missing)!r} is missing")
    return record(**{name: values[name] for name in known & values.keys()})


@lru_cache
def _names(record: Any) -> tuple[frozenset[str], frozenset[str]]:
    every = fields(record)
    return frozenset(f.name for f in every), frozenset(f.name for f in every if f.default is MISSING)


def children_of(pid: int) -> list[int]:
    """Return the children of all of a process's threads, or [] if it has ended or the kernel does not list children.

    >>> os.getpid() in children_of(os.getppid())
    True
    """
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - text
            with (
                suppress(FileNotFoundError, ProcessLookupError),  # the thread has ended
                open(f"/proc/{pid}/task/{thread}/children", "rb") as file,  # noqa: PTH123 - text
            ):
                found += map(int, file.read().split())
    return found


def command_of(pid: int) -> list[str]:
    """Return the words of a process's command line, or [] for a kernel thread or a process that has ended.

    >>> bool(command_of(os.getpid()))
    True
    """
    with suppress(OSError):
        text = process_text(pid, "cmdline").rstrip("\0")
        return text.split("\0") if text else []
    return []


_INTERPRETERS = ("python", "pypy", "node", "java", "ruby", "perl", "bash", "sh", "dash")


def name_of(pid: int) -> str:
    """Return the name of a process as recorded by the kernel, or "" if the process has ended."""
    try:
        return stat(pid).comm
    except OSError:
        return ""


def label_of(pid: int, name: str) -> str:
    """Return a short name for a process, given its name in the kernel. The result may contain any character.

    For an interpreter, the name is followed by the script or module that it runs.

    >>> label_of(0, "postgres")
    'postgres'
    """
    return label_from(command_of(pid), name)


def label_from(words: list[str], name: str) -> str:
    """Return a short name for a process, given the words of its command line and its name in the kernel.

    >>> label_from(["/usr/bin/python3", "-u", "/srv/train.py", "--epochs", "3"], "python3")
    'python3 train.py'
    >>> label_from(["python", "-m", "torch.distributed.run", "x"], "pt_main_thread")
    'pt_main_thread torch.distributed.run'
    >>> label_from(["python", "-c", "import this"], "python")
    'python -c'
    """
    option, script = script_of(words)
    if not os.path.basename(words[0] if words else "").startswith(_INTERPRETERS):  # noqa: PTH119
        return name
    shown = {"-c": "-c", "-m": script}.get(option, os.path.basename(script))  # noqa: PTH119
    return f"{name} {shown}".rstrip()


def script_of(words: list[str]) -> tuple[str, str]:
    """Return the option ("-m", "-c" or "") and the module, code or script in an interpreter's command line.

    >>> script_of(["python", "-X", "dev", "-m", "this"]), script_of(["python", "a.py", "-c"]), script_of(["python"])
    (('-m', 'this'), ('', 'a.py'), ('', ''))
    """
    rest = iter(words[1:])
    for word in rest:
        if word in ("-m", "-c"):
            return word, next(rest, "")
        if word in ("-W", "-X"):  # with a value
            next(rest, None)
        elif not word.startswith("-"):
            return "", word
    return "", ""


_PRESENT, _SWAPPED, _OF_FILE = 0x80, 0x40, 0x20
"""Flags in the highest byte of a pagemap entry. `_OF_FILE` includes shared memory."""
_ENTRY_BYTES = 8


class Regions:
    """The mapped regions of this process at one moment.

    Raises
    ------
    OSError
        ``/proc`` does not exist.
    """

    def __init__(self) -> None:
        self._all = maps(os.getpid())
        self._starts = [region.start for region in self._all]

    def at(self, address: int) -> Region | None:
        """Return the region that contains an address, if any."""
        place = bisect_right(self._starts, address) - 1
        return self._all[place] if place >= 0 and address < self._all[place].end else None


class Pages:
    """The pagemap of this process. An unprivileged process can read its flags, but not the page numbers.

    Raises
    ------
    OSError
        ``/proc`` does not exist or cannot be read.
    """

    def __enter__(self) -> Self:
        self._fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def private_bytes(self, address: int, nbytes: int) -> int:
        """Return how many bytes of an address range are on anonymous pages, counting whole pages."""
        first, last = address // PAGESIZE, (address + nbytes - 1) // PAGESIZE
        entries = os.pread(self._fd, (last - first + 1) * _ENTRY_BYTES, first * _ENTRY_BYTES)
        kinds = Counter(entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES])
        private = (kind for kind in kinds if kind & _SWAPPED or (kind & _PRESENT and not kind & _OF_FILE))
        return min(sum(kinds[kind] for kind in private) * PAGESIZE, nbytes)
