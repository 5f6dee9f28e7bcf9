"""What the memory of a process consists of, in sentences: the part of `onecopy.explain` that needs only /proc.

`causes_of` reads the counters, the mapped regions and the control group of one process, and returns one `Cause` per
fact worth a sentence. It walks the page tables of the process (see `onecopy.memory.proc`).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from onecopy.memory import proc
from onecopy.memory.cgroup import container, kind_of
from onecopy.text import escape, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onecopy.memory.cgroup import Container
    from onecopy.memory.proc import Key

__all__ = ["Cause", "Code", "causes_of"]

Code: TypeAlias = Literal[
    "cache",
    "dirty",
    "shmem",
    "written",
    "heap",
    "kept",
    "forked",
    "peak",
    "page-tables",
    "swap",
    "growing",
    "refaults",
    "container",
    "copies",
    "run",
]

_MIN_BYTES = 1 << 20
"""Smallest amount that is reported; files must also reach a hundredth of the RSS."""
_COPIED = 16 << 20
"""Inherited memory copied since the fork beyond which that is reported as wrong."""
_GROWS = 1 << 20
"""Bytes per second of growth, or of pages read again, beyond which that is reported as wrong."""
_MAX_FILES = 6
"""Number of files that are reported."""
FRAMEWORKS = {
    "libtorch_cpu.so": "torch",
    "onnxruntime_pybind11_state": "onnxruntime",
    "_safetensors_rust": "safetensors",
    "_multiarray_umath": "numpy",
}
"""By a part of the name of a shared object that is mapped: the frameworks whose calls `onecopy run` shares."""
DATA = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npy", ".npz", ".onnx", ".joblib", ".gguf")
"""Suffixes of files that such calls load."""
MIN_BYTES = 256 << 20
"""Anonymous memory of a process below which it is not counted: an interpreter with torch takes 150 MB."""
MAX_PROCESSES = 64
"""Processes whose page tables are walked."""
_SHOWN = 3
_RUN = b"ONECOPY_RUN="


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why a process uses memory, as a sentence."""

    code: Code
    """The kind of cause, for scripts."""
    text: str
    """The sentence."""
    bytes: int
    """The amount of memory in bytes; bytes per second for "growing" and "refaults"."""
    bad: bool = False
    """Whether the cause is a problem that should be fixed."""


def causes_of(pid: int, interval: float = 0.0) -> tuple[list[proc.MappedRegion], proc.Rollup, tuple[Cause, ...]]:
    """Return the regions of a process, its memory, and what that consists of: problems first, then by size.

    With `interval`, sample the counters twice and report the growth. ProcessLookupError if there is no such process,
    PermissionError if it belongs to another user.
    """
    before = _counters(pid)
    time.sleep(interval)
    after = _counters(pid) if interval else before
    _, status, group = after
    regions, memory = proc.smaps(pid), proc.rollup(pid)  # read together: one is subtracted from the other
    causes = [
        *_of_files(regions, memory),
        *_of_heap(memory, shared_anonymous(regions), own=pid == os.getpid()),
        *_of_fork(pid, status.ppid, regions, memory),
        *_of_status(status, memory),
        *_over_time(before, after),
        *_of_container(group),
        *_of_copies(pid, regions),
    ]
    return regions, memory, tuple(sorted(causes, key=lambda one: (not one.bad, -one.bytes)))


def _counters(pid: int) -> tuple[float, proc.Status, Container | None]:
    """Return what changes over time, and the time."""
    return time.monotonic(), proc.status(pid), container(pid)


# --- files ------------------------------------------------------------------------------------------------------------


def _of_files(regions: list[proc.MappedRegion], memory: proc.Rollup) -> Iterator[Cause]:
    files: defaultdict[Key, list[proc.MappedRegion]] = defaultdict(list)
    for region in regions:
        if region.inode:
            files[region.dev, region.inode].append(region)
    worth = max(_MIN_BYTES, memory.rss // 100)
    found = sorted(files.items(), key=lambda pair: -sum(one.memory.rss for one in pair[1]))
    for key, parts in [pair for pair in found if sum(one.memory.rss for one in pair[1]) >= worth][:_MAX_FILES]:
        yield from _of_file(key, parts)
    for parts in files.values():
        copied = sum(one.memory.anonymous for one in parts)
        if copied >= worth and not any("x" in one.perms for one in parts):
            yield Cause(
                "written",
                f"{size(copied)} of {parts[0].path} were written to through a private mapping and are now this "
                "process's own copies: find the code that writes in place to mapped data",
                copied,
                bad=True,
            )


def _of_file(key: Key, parts: list[proc.MappedRegion]) -> Iterator[Cause]:
    path, memories = parts[0].path, [one.memory for one in parts]
    inside = sum(one.rss - one.anonymous for one in memories)
    dirty = min(sum(one.shared_dirty + one.private_dirty - one.anonymous for one in memories), inside)
    if kind_of(key, path) == "shmem":
        if inside >= _MIN_BYTES:
            yield Cause(
                "shmem",
                f"{size(inside)} is {path}: memory, not a disk; it stays until the file is deleted and unmapped",
                inside,
            )
        return
    alone = sum(one.private_clean for one in memories) >= inside // 2
    mappers = max(round(inside / max(sum(one.pss - (one.pss_anon or 0) for one in memories), 1)), 1)
    sharing = (
        "Only this process maps it now, so USS counts it as private; a second process would share it"
        if alone
        else f"About {mappers} processes share it, and RSS counts it once for each"
    )
    clean = inside - max(dirty, 0)
    if clean >= _MIN_BYTES:
        text = (
            f"{size(clean)} is clean page cache of {path}; the kernel can drop it without writing anything. {sharing}"
        )
        yield Cause("cache", text, clean)
    if dirty >= _MIN_BYTES:
        text = f"{size(dirty)} of {path} are modified and must be written to disk before they can be dropped"
        yield Cause("dirty", text, dirty)


# --- anonymous memory -------------------------------------------------------------------------------------------------


def _of_heap(memory: proc.Rollup, shared: int, *, own: bool) -> Iterator[Cause]:
    held = memory.anonymous - shared
    if held >= _MIN_BYTES:
        text = f"{size(held)} are anonymous memory of this process alone: objects, buffers, stacks, arenas"
        huge = min(memory.anon_huge_pages, held)
        yield Cause("heap", text + (f", {size(huge)} of them in huge pages" if huge >= _MIN_BYTES else ""), held)
    lazy = memory.lazy_free or 0
    if lazy >= _MIN_BYTES:
        text = f"{size(lazy)} are freed but stay until the kernel needs them (MADV_FREE); RSS still counts them"
        yield Cause("kept", text, lazy)
    kept = _kept_by_malloc() if own else None
    if kept is not None and kept >= _MIN_BYTES:
        yield Cause(
            "kept",
            f"{size(kept)} are freed but kept by the allocator (malloc_trim(0) of glibc returns what it can)",
            kept,
        )
    if kept is None and held >= 64 * _MIN_BYTES:
        where = "this C library does not report it" if own else "call oc.explain() in the process itself"
        yield Cause("kept", f"unknown how much of that is freed but kept by the allocator: {where}", 0)


class _Mallinfo(ctypes.Structure):
    """The struct that mallinfo2 of glibc returns (from 2.33); its field 8 is ``fordblks``."""

    _fields_ = tuple((f"field_{number}", ctypes.c_size_t) for number in range(10))


def _kept_by_malloc() -> int | None:
    """Return the free bytes that malloc of this process keeps; None if the C library does not report them."""
    with suppress(AttributeError, OSError):
        mallinfo = ctypes.CDLL(None).mallinfo2
        mallinfo.restype = _Mallinfo
        return int(mallinfo().field_8)
    return None


def _of_fork(pid: int, parent: int, regions: list[proc.MappedRegion], memory: proc.Rollup) -> Iterator[Cause]:
    shared = shared_anonymous(regions)
    if shared < _MIN_BYTES:
        return
    of_parent: dict[int, proc.MappedRegion] = {}
    with suppress(OSError):
        of_parent = {one.start: one for one in proc.smaps(parent) if one.memory.anonymous}
    alike = [(one, of_parent[one.start]) for one in regions if one.start in of_parent and shared_of(one.memory)]
    inherited = sum(shared_of(one.memory) for one, _ in alike)
    if inherited < shared // 2:  # it called exec since its parent forked it
        children = len(proc.children_of(pid))
        sharers = f"its {children} child{'' if children == 1 else 'ren'}" if children else "other processes of its tree"
        yield Cause(
            "forked", f"{size(shared)} are shared with {sharers} since a fork; writing to a page copies it", shared
        )
        return
    copied = sum(max(min(one.memory.anonymous, its.memory.anonymous) - shared_of(one.memory), 0) for one, its in alike)
    inherited += copied
    yield Cause(
        "forked",
        f"it has copied {size(copied)} of the {size(inherited)} that it inherited from process {parent}: reading "
        f"Python objects writes their reference counts, up to about {size(memory.anonymous)}. oc.share() keeps one "
        "copy of such data",
        copied,
        bad=copied >= max(_COPIED, inherited // 20),
    )


# --- the rest ---------------------------------------------------------------------------------------------------------


def _of_status(status: proc.Status, memory: proc.Rollup) -> Iterator[Cause]:
    if memory.swap >= _MIN_BYTES:
        yield Cause(
            "swap", f"{size(memory.swap)} are swapped out: using them again waits for the disk", memory.swap, bad=True
        )
    tables = status.vm_pte or 0
    if tables >= max(_MIN_BYTES, memory.rss // 200):
        yield Cause(
            "page-tables",
            f"{size(tables)} of page tables in addition: 8 bytes for each mapped page of 4 KiB",
            tables,
        )
    above = (status.vm_hwm or 0) - memory.rss
    if above >= max(_MIN_BYTES, memory.rss // 10):
        yield Cause("peak", f"its peak RSS was {size(status.vm_hwm or 0)} (VmHWM), {size(above)} more than now", above)


def _over_time(
    before: tuple[float, proc.Status, Container | None], after: tuple[float, proc.Status, Container | None]
) -> Iterator[Cause]:
    (begin, status, group), (end, status_after, group_after) = before, after
    if end <= begin:
        return
    grown = int(((status_after.rss_anon or 0) - (status.rss_anon or 0)) / (end - begin))
    if grown >= _GROWS // 10:
        yield Cause("growing", f"anonymous memory grew by {size(grown)}/s during the sample", grown, grown >= _GROWS)
    if group is None or group_after is None or group.refaults is None or group_after.refaults is None:
        return
    again = int((group_after.refaults - group.refaults) / (end - begin))
    if again >= _GROWS // 10:
        text = f"its control group is short of memory: {size(again)}/s of dropped pages are read again"
        yield Cause("refaults", text, again, again >= _GROWS)


def _of_container(found: Container | None) -> Iterator[Cause]:
    if found is None or found.limit is None or found.left is None:
        return
    text = (
        f"its control group has {size(found.left)} of {size(found.limit)} left before the OOM killer acts; the "
        f"{size(found.file_clean)} of clean page cache in it can be dropped at any time"
    )
    yield Cause("container", text, found.left, bad=found.left < found.limit // 10)


# --- copies -----------------------------------------------------------------------------------------------------------

# /proc does not show what anonymous memory contains. It does show that several processes run the same program, how much
# memory each has for itself, and which frameworks and files of data it has loaded or open.


def _of_copies(pid: int, regions: Sequence[proc.MappedRegion]) -> Iterator[Cause]:
    """Yield what the processes of the program of `pid` hold each, if that may be copies.

    Processes that run the same program have the same executable, script and parent; or they are children of `pid`.
    Nothing for a program that uses onecopy, and for processes of other users. It walks page tables.
    """
    if _uses_onecopy(pid, regions):
        return
    found = [(_private(each), each, files) for each, files in _of_program(pid, regions)]
    found = [one for one in found if one[0] >= MIN_BYTES]
    loaded = [_frameworks(each) for _, each, _ in found]
    common = [name for name in FRAMEWORKS.values() if all(name in names for names in loaded)]
    if len(found) < 2 or not common:
        return
    private = sorted(nbytes for nbytes, _, _ in found)
    least, most = size(private[0]), size(private[-1])
    each = f"{least} each" if least == most else f"{least} to {most} each"
    files = Counter(path for _, _, paths in found for path in paths).most_common(_SHOWN)
    shown = [f", with {escape(Path(path).name)} open or mapped in {count} of them" for path, count in files]
    text = (
        f"{len(found)} processes run this program, have {' and '.join(common)} loaded, and hold "
        f"{each} of anonymous memory of their own{''.join(shown)}. /proc does not show "
        "what this memory contains: if they loaded the same files, `onecopy run -- COMMAND` could hold these once"
    )
    yield Cause("copies", text, sum(private[:-1]))


def shared_anonymous(regions: Sequence[proc.MappedRegion]) -> int:
    """Return the bytes of anonymous memory that other processes map as well."""
    return sum(shared_of(one.memory) for one in regions if one.memory.anonymous)


def shared_of(memory: proc.Rollup) -> int:
    """Return the bytes of anonymous memory of a region that other processes map as well."""
    return min(memory.shared_clean + memory.shared_dirty, memory.anonymous)


def _private(regions: Sequence[proc.MappedRegion]) -> int:
    return sum(one.memory.anonymous for one in regions) - shared_anonymous(regions)


def _of_program(pid: int, regions: Sequence[proc.MappedRegion]) -> list[tuple[Sequence[proc.MappedRegion], set[str]]]:
    """Return the regions, and the paths of files of data, of each process that runs the program of `pid`."""
    program = _program(pid)
    siblings = [one for one in proc.children_of(proc.stat(pid).ppid) if one != pid and _program(one) == program]
    others = siblings or [one for one in proc.children_of(pid) if _program(one) == program]
    found = [(regions, _data(pid, regions))]
    for other in others[: MAX_PROCESSES - 1]:
        with suppress(OSError):  # it has ended, or belongs to another user
            theirs = proc.smaps(other)
            found.append((theirs, _data(other, theirs)))
    return found


def _program(pid: int) -> tuple[str, str] | None:
    """Return the executable and the script of a process; None if they cannot be read."""
    try:
        executable = os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - text
        words = proc.process_text(pid, "cmdline").rstrip("\0").split("\0")
    except OSError:
        return None
    option, script = proc.script_of(words)
    # multiprocessing: the arguments of the call differ
    return executable, script.partition("(")[0] if option == "-c" else script or words[0]


def _frameworks(regions: Sequence[proc.MappedRegion]) -> set[str]:
    names = {Path(region.path).name for region in regions if region.inode}
    return {name for part, name in FRAMEWORKS.items() if any(part in each for each in names)}


def _data(pid: int, regions: Sequence[proc.MappedRegion]) -> set[str]:
    paths = {region.path for region in regions if region.inode}
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                paths.add(os.readlink(link))  # noqa: PTH115 - text
    return {path for path in paths if path.endswith(DATA) and path.startswith("/")}


def _uses_onecopy(pid: int, regions: Sequence[proc.MappedRegion]) -> bool:
    if any("/onecopy/_core." in region.path for region in regions):
        return True
    with suppress(OSError):
        return any(one.startswith(_RUN) for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    return False
