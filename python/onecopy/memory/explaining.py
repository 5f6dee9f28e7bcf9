"""`explain`: report how much memory a process or an object uses, how much of it is private and why.

    print(oc.explain())             # this process, in sentences
    print(oc.explain(4711))         # any process of this user
    print(oc.explain(session))      # an onnxruntime session made by `oc.onnxruntime.session`
    print(oc.explain(model))        # a torch module
    print(oc.explain(file))         # a result of `oc.open` or `oc.open_records`, or a NumPy array

The numbers are measured: addresses are looked up in ``/proc/self/maps``, and pages that were copied on write are
counted in ``/proc/self/pagemap``, or in the smaps of another process.

**When not to use it.** In loops, because explaining a process walks its page tables under a lock, which takes 6 to 22
ms per GiB. Use `onecopy_monitor.Sampler` instead.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from onecopy.base.run_constants import RUN
from onecopy.base.tensor_values import has_memory
from onecopy.base.text import counted, escape, size
from onecopy.files.page_cache import lost_since_warm
from onecopy.memory import proc
from onecopy.memory.cgroup import charged_to, container, kind_of
from onecopy.memory.proc import Pages, Regions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onecopy.memory.cgroup import Container
    from onecopy.memory.proc import Key

__all__ = ["Cause", "Code", "Explanation", "Finding", "Kind", "explain"]

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

Kind: TypeAlias = Literal["shared", "written", "private", "heap", "device"]

_MIN_BYTES = 1 << 20
"""Smallest amount that is reported. For a process's files, a hundredth of its RSS is also a minimum."""
_BAD_COPIED = 16 << 20
"""Inherited bytes that a process may copy before the copies are reported as a problem."""
_BAD_RATE = 1 << 20
"""Bytes per second from which on growth or refaults are reported as a problem."""
_SHOWN = 12
"""Maximum number of findings that are printed."""
_MAX_FILES = 6
"""Maximum number of files that are reported."""
FRAMEWORKS = {
    "libtorch_cpu.so": "torch",
    "onnxruntime_pybind11_state": "onnxruntime",
    "_safetensors_rust": "safetensors",
    "_multiarray_umath": "numpy",
}
"""Frameworks that `onecopy run` supports, by a part of the names of their shared objects."""
DATA = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npy", ".npz", ".onnx", ".joblib", ".gguf")
"""Suffixes of files that these frameworks load."""
MIN_PRIVATE = 256 << 20
"""Bytes of anonymous memory from which on a process may contain copies. An interpreter with torch uses 150 MB."""
MAX_PROCESSES = 64
"""Maximum number of processes whose page tables are walked."""
_SHOWN_FILES = 3


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
    """Whether the cause is a problem to fix."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A weight, a mapped file, or a kind of anonymous memory."""

    name: str
    bytes: int
    """Size of the address range in bytes."""
    private: int
    """Bytes that are private to this process."""
    kind: Kind
    """"shared": on pages of a file. "written": some pages of a file were copied on write. "private": a copy made by an
    engine. "heap": anonymous memory. "device": memory of a device."""
    path: str = ""
    """Path of the mapped file, or "" for anonymous memory."""
    reason: str = ""
    """Why the memory is private, or how it is shared, as text."""
    advice: str = ""
    """What to change, or "" if nothing needs to change."""

    @property
    def amount(self) -> str:
        """The private part as text, such as "1 MB", or "1 MB of 8 MB" if the rest is shared."""
        part = self.private or self.bytes
        return f"{size(part)} of {size(self.bytes)}" if part < self.bytes else size(part)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `explain`. `str` returns sentences about a process, or a table of an object's memory."""

    target: str
    """The explained process or object, as text."""
    findings: tuple[Finding, ...]
    """Weights, mapped files and kinds of anonymous memory, sorted by the size of the private part."""
    causes: tuple[Cause, ...] = ()
    """How a process uses memory, as sentences, problems first. Empty for an object."""
    pid: int | None = None
    """The id of the process, or None for an object."""
    rss: int | None = None
    """Resident set size of a process in bytes, as other tools show it, or None for an object."""
    own: int | None = None
    """Anonymous memory and files in memory that no other process maps, in bytes, or None for an object."""

    @property
    def bad(self) -> tuple[Cause, ...]:
        """The causes that are problems, or an empty sequence if nothing is wrong."""
        return tuple(one for one in self.causes if one.bad)

    @property
    def private(self) -> int:
        """Total number of private bytes. Each additional process of this kind would need as many."""
        return sum(one.private for one in self.findings)

    @property
    def shared(self) -> int:
        """Total size in bytes of address ranges that are on pages of files."""
        return sum(one.bytes - one.private for one in self.findings if one.kind in ("shared", "written"))

    @property
    def saves(self) -> int:
        """Number of bytes that each process would save by following the advice."""
        return sum(one.private for one in self.findings if one.advice)

    def __str__(self) -> str:
        if self.rss is not None and self.own is not None:
            heading = f"{self.target}: RSS is {size(self.rss)}, {size(self.own)} of it is its own"
            return "\n".join([heading, *(f"{'!' if one.bad else '-'} {one.text}" for one in self.causes)])
        lines = [f"{self.target}: {size(self.shared)} on pages of files, {size(self.private)} private to the process"]
        shown = [one for one in self.findings if one.private or (one.kind == "shared" and one.reason)]
        lines += [f"  {one.name}: {one.amount} {one.kind}: {one.reason}" for one in shown[:_SHOWN]]
        if len(shown) > _SHOWN:
            lines.append(f"  and {len(shown) - _SHOWN} more")
        advice = dict.fromkeys(one.advice for one in shown if one.private and one.advice)
        lines += [f"  -> {each}" for each in advice]
        if self.saves:
            lines.append(f"  that would save {size(self.saves)} in each process")
        return "\n".join(lines)


def explain(target: Any = None, *, interval: float = 0.0) -> Explanation:
    """Report how much memory a process or an object uses, how much of it is private and why, and how to save memory.

    Parameters
    ----------
    target
        None: this process. An integer: the process with this id, which must belong to this user. Otherwise, an object
        in this process: a session of `onecopy.onnxruntime`, a ``torch.nn.Module``, a result of `onecopy.open` or
        `onecopy.open_records`, or a NumPy array.
    interval
        For a process: take a second sample after this number of seconds, and report growth and refaults.

    Returns
    -------
    Explanation
        `str` returns sentences for a process, or a table for an object.

    Raises
    ------
    TypeError
        `target` is any other object.
    ValueError
        The file was closed, or `interval` is given for an object.
    ProcessLookupError, PermissionError
        There is no such process, or it belongs to another user.

    Examples
    --------
    >>> import onecopy as oc
    >>> oc.explain().rss > oc.explain().own > 0
    True
    """
    if target is None or (isinstance(target, int) and not isinstance(target, bool)):
        return _of_process(os.getpid() if target is None else target, interval)
    if interval:
        raise ValueError(f"interval={interval} applies to processes only, not to a {type(target).__name__}")
    if hasattr(getattr(target, "onecopy", None), "copied"):
        return _of_session(target)
    if hasattr(target, "named_parameters"):
        return _of_module(target)
    if hasattr(target, "mode_reason") and hasattr(target, "residency"):
        return _of_opened(target)
    if hasattr(target, "residency") and hasattr(target, "path"):
        return _of_records(target)
    if hasattr(target, "__array_interface__"):
        return _of_array(target)
    raise TypeError(
        "expected a process id, a session, a module, an opened file or an array to explain, not a "
        f"{type(target).__name__}"
    )


def files_under(tensors: Iterable[Any]) -> list[str]:
    """Return the paths of files whose pages contain tensors of this process."""
    regions = Regions()
    places = [regions.at(tensor.data_ptr()) for tensor in tensors if tensor.device.type == "cpu" and tensor.numel()]
    return list(dict.fromkeys(region.path for region in places if region is not None and region.inode))


# --- a session --------------------------------------------------------------------------------------------------------


def _of_session(session: Any) -> Explanation:
    report = session.onecopy
    findings = []
    for one in report.copied:
        advice = _PREPACK if one.reason.startswith(("begins", "stored")) else ""
        findings.append(Finding(one.name, one.bytes, one.bytes, "private", report.path, one.reason, advice))
    for file in report.mapped:
        written = sum(r.memory.anonymous for r in proc.regions_of(os.getpid(), file.path))
        reason = "some pages were written to and therefore copied" if written else ""
        findings.append(Finding(file.path, file.bytes, written, "written" if written else "shared", file.path, reason))
    grown = None if report.private is None else max(report.private - sum(one.private for one in findings), 0)
    if report.mode == "read":
        findings.append(_of_copied_weights(report, grown))
        grown = None if grown is None else grown - findings[-1].private
    if grown:
        why = "memory that ONNX Runtime allocated for the graph, its kernels and its arena"
        findings.append(Finding("engine", grown, grown, "heap", "", why))
    return Explanation(f"session {report.path} ({report.mode})", _sorted(findings))


# Not 'auto', which does not prepack small models.
_PREPACK = (
    "oc.onnxruntime.session(path, 'prepacked', wait=True): prepacked once per machine, one copy for all processes"
)


def _of_copied_weights(report: Any, grown: int | None) -> Finding:
    """Estimate from the growth of the process how many bytes of a session's private weights could be prepacked."""
    why = f"{report.mode!r}: ONNX Runtime copies weights to its heap, and prepacks matrices into another copy"
    mapped = sum(file.bytes for file in report.mapped)
    if grown is None:
        in_file = report.weights
        if in_file is None:
            in_file = os.path.getsize(report.path) if os.path.exists(report.path) else 0  # noqa: PTH110, PTH202 - text
        private = max(in_file - mapped, 0)
        why += f"; the growth of the process is unknown: at least the {size(private)} of the file"
    elif report.weights is None:
        private = grown
        why += "; the process grew by this amount when the session was created, including memory of the engine itself"
    else:
        private = min(grown, 2 * report.weights)
        why += (
            f"; the process grew by {size(grown)} with the session, for {size(report.weights)} of weights in the file"
        )
    if private < _MIN_BYTES:
        return Finding("weights", private, private, "private", "", f"{why}; too small to be worth prepacking")
    return Finding("weights", private, private, "private", "", why, _PREPACK)


# --- an opened file ---------------------------------------------------------------------------------------------------


def _of_opened(opened: Any) -> Explanation:
    findings = [_of_arrays(file) for file in getattr(opened, "files", (opened,))]
    return Explanation(f"{opened.path} ({opened.mode}: {opened.mode_reason})", _sorted(findings))


def _of_records(rows: Any) -> Explanation:
    return Explanation(f"{type(rows).__name__} of {len(rows)} rows in {rows.path}", (_of_mapped(rows),))


def _of_arrays(file: Any) -> Finding:
    report = file.residency()
    if file.mode == "copy":
        why = "read into private memory of this process"
        return Finding(file.path, report.bytes, report.bytes, "heap", file.path, why, "oc.open(path, mode='map')")
    regions = proc.of_file(proc.smaps(os.getpid()), file.identity[:2], os.path.realpath(file.path))
    if written := sum(region.memory.anonymous for region in regions):
        why = "pages that were written to in place and therefore copied"
        return Finding(file.path, max(report.bytes, written), written, "written", file.path, why)
    return _of_mapped(file)


def _of_mapped(file: Any) -> Finding:
    report = file.residency()
    cached, mapped = ("?" if nbytes is None else size(nbytes) for nbytes in (report.cached, report.mapped))
    why = f"{cached} of it are in memory, once for all processes; {mapped} in the page tables of this process"
    if (core := getattr(file, "core", None)) is not None:
        core = getattr(core, "mapping", core)  # rows have the file of the extension
        if lost := lost_since_warm(core, report.cached):
            why += (
                f"; {size(lost)} ({100 * lost / report.bytes:.0f} %) were dropped since this process warmed it: "
                "onecopy.files.page_cache.pin or onecopy.Holder keeps it"
            )
        why += f"; {_payers(os.getpid(), [(core.address, core.nbytes)])}"
    return Finding(file.path, report.bytes, 0, "shared", file.path, why)


def _payers(pid: int, ranges: list[tuple[int, int]]) -> str:
    """Describe the control groups to which pages of a file are charged."""
    shares = charged_to(pid, ranges)
    if shares is None:
        return "it is charged to the control group whose process read it first; only root can see which one"
    if not shares:
        return "no page of it is mapped, so the control group to which it is charged is unknown"
    found, names = container(pid), list[str]()
    for directory, share in shares.items():
        name = directory or "a control group that was removed or is outside of this container"
        own = " (its own)" if found is not None and directory == found.directory else ""
        names.append(name + own + (f", {100 * share:.0f} %" if len(shares) > 1 else ""))
    return f"charged to {'; '.join(names)}"


def _of_array(values: Any) -> Explanation:
    address, nbytes = values.__array_interface__["data"][0], values.nbytes
    with Pages() as pages:
        finding = _of_memory("data", address, nbytes, Regions().at(address), pages)
    finding = replace(finding, advice="" if finding.kind == "heap" else finding.advice)
    return Explanation(f"{type(values).__name__} {values.dtype}{list(values.shape)}", (finding,))


# --- a module ---------------------------------------------------------------------------------------------------------


def _of_module(module: Any) -> Explanation:
    regions, findings, seen = Regions(), [], set()
    with Pages() as pages:
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if tensor.device.type == "cpu" and not has_memory(tensor):  # sparse, empty or uninitialized
                continue
            storage = tensor.untyped_storage()
            nbytes = storage.nbytes()
            if tensor.device.type != "cpu":
                findings.append(Finding(name, nbytes, 0, "device", "", f"on {tensor.device}"))
                continue
            if storage.data_ptr() in seen:
                continue
            seen.add(storage.data_ptr())
            findings.append(_of_memory(name, storage.data_ptr(), nbytes, regions.at(storage.data_ptr()), pages))
    return Explanation(type(module).__name__, _sorted(findings))


def _of_memory(name: str, address: int, nbytes: int, region: proc.Region | None, pages: Pages) -> Finding:
    if region is None or not region.inode:
        why = "anonymous memory: computed here, cast to another dtype, or read instead of mapped"
        advice = "oc.torch.load_into(module, path) maps it; with dtype= and cast='store' also in another dtype"
        return Finding(name, nbytes, nbytes, "heap", "", why, advice if nbytes >= _MIN_BYTES else "")
    written = pages.private_bytes(address, nbytes)
    if not written:
        return Finding(name, nbytes, 0, "shared", region.path)
    why = "pages that were written to in place and therefore copied"
    advice = "make the change before the weights are saved, or on a copy if they are small"
    return Finding(name, nbytes, written, "written", region.path, why, advice)


# --- a process --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moment:
    """The measurements that change over time."""

    seconds: float
    status: proc.Status
    group: Container | None


def _now(pid: int) -> _Moment:
    return _Moment(time.monotonic(), proc.status(pid), container(pid))


def _of_process(pid: int, interval: float) -> Explanation:
    before = after = _now(pid)
    if interval:
        time.sleep(interval)
        after = _now(pid)
    regions, memory = proc.smaps(pid), proc.rollup(pid)  # read together: one is subtracted from the other
    files: defaultdict[Key, list[proc.MappedRegion]] = defaultdict(list)
    others: Counter[str] = Counter()
    for region in regions:
        if region.inode:
            files[region.dev, region.inode].append(region)
        else:
            others[region.path or "anonymous memory"] += region.memory.anonymous
    findings = [_of_file(parts) for parts in files.values()]
    for name, nbytes in others.items():
        if nbytes >= _MIN_BYTES or name == "[heap]":
            findings.append(Finding(name, nbytes, nbytes, "heap", "", "anonymous memory: objects, buffers and arenas"))
    causes = [
        *_of_files(pid, files, memory),
        *_of_heap(memory, shared_anonymous(regions), own=pid == os.getpid()),
        *_of_fork(pid, after.status.ppid, regions, memory),
        *_of_status(after.status, memory),
        *_over_time(before, after),
        *_of_container(after.group),
        *_of_copies(pid, regions),
    ]
    causes.sort(key=lambda one: (not one.bad, -one.bytes))
    target = f"process {pid} ({proc.label_of(pid, proc.stat(pid).comm)})"
    own = _private(regions) + sum(_alone_in_memory(parts) for parts in files.values())
    return Explanation(target, _sorted(findings), tuple(causes), pid, memory.rss, own)


def _of_file(regions: list[proc.MappedRegion]) -> Finding:
    path = regions[0].path
    nbytes = sum(region.end - region.start for region in regions)
    written = sum(region.memory.anonymous for region in regions)
    if not written:
        return Finding(path, nbytes, 0, "shared", path)
    if _has_code(regions):
        return Finding(path, nbytes, written, "written", path, "variables and relocated addresses of a library")
    why = "pages of a private mapping that were written to and therefore copied"
    return Finding(path, nbytes, written, "written", path, why, _FIND_WRITES)


_FIND_WRITES = "find the code that writes to mapped data in place"


def _has_code(regions: list[proc.MappedRegion]) -> bool:
    return any("x" in region.perms for region in regions)


def _alone_in_memory(regions: list[proc.MappedRegion]) -> int:
    """Return how many bytes of an in-memory file no other process maps, or 0 for a file on disk."""
    if kind_of((regions[0].dev, regions[0].inode), regions[0].path) != "shmem":
        return 0
    memories = [one.memory for one in regions]
    return sum(max(one.private_clean + one.private_dirty - one.anonymous, 0) for one in memories)


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda one: (-one.private, -one.bytes)))


# --- files ------------------------------------------------------------------------------------------------------------


def _of_files(pid: int, files: dict[Key, list[proc.MappedRegion]], memory: proc.Rollup) -> Iterator[Cause]:
    least = max(_MIN_BYTES, memory.rss // 100)
    resident = {key: sum(one.memory.rss for one in parts) for key, parts in files.items()}
    largest = sorted((key for key in files if resident[key] >= least), key=lambda key: -resident[key])
    for key in largest[:_MAX_FILES]:
        yield from _causes_of_file(pid, key, files[key])
    for parts in files.values():
        copied = sum(one.memory.anonymous for one in parts)
        if copied >= least and not _has_code(parts):
            text = (
                f"{size(copied)} of {parts[0].path} were written to through a private mapping, and are now "
                f"private copies of this process: {_FIND_WRITES}"
            )
            yield Cause("written", text, copied, bad=True)


def _causes_of_file(pid: int, key: Key, parts: list[proc.MappedRegion]) -> Iterator[Cause]:
    path, memories = parts[0].path, [one.memory for one in parts]
    inside = sum(one.rss - one.anonymous for one in memories)
    dirty = min(sum(one.shared_dirty + one.private_dirty - one.anonymous for one in memories), inside)
    if kind_of(key, path) == "shmem":
        if inside >= _MIN_BYTES:
            text = f"{size(inside)} is {path}: a file in memory, which stays until it is deleted and unmapped"
            alone = _alone_in_memory(parts)
            yield Cause("shmem", text + (f"; only this process maps {size(alone)} of it" if alone else ""), inside)
        return
    alone = sum(one.private_clean for one in memories) >= inside // 2
    mappers = max(round(inside / max(sum(one.pss - (one.pss_anon or 0) for one in memories), 1)), 1)
    sharing = (
        "Only this process maps it now, so USS counts it as private, but a second process would share it"
        if alone
        else f"About {mappers} processes share it, and RSS counts it once for each"
    )
    clean = inside - max(dirty, 0)
    if clean >= _MIN_BYTES:
        text = (
            f"{size(clean)} is clean page cache of {path}; the kernel can drop it without writing anything. {sharing}; "
            + _payers(pid, [(one.start, one.end - one.start) for one in parts])
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
        text = f"{size(lazy)} were freed, but stay until the kernel needs them (MADV_FREE); RSS still includes them"
        yield Cause("kept", text, lazy)
    kept = _kept_by_malloc() if own else None
    if kept is not None and kept >= _MIN_BYTES:
        text = f"{size(kept)} were freed, but the allocator keeps them (malloc_trim(0) of glibc may return them)"
        yield Cause("kept", text, kept)
    if kept is None and held >= 64 * _MIN_BYTES:
        where = "this C library does not report it" if own else "call oc.explain() in the process itself"
        yield Cause("kept", f"it is unknown how much of that the allocator keeps after it was freed: {where}", 0)


class _Mallinfo(ctypes.Structure):
    """The struct returned by mallinfo2 in glibc 2.33 and later. Field 8 is ``fordblks``."""

    _fields_ = tuple((f"field_{number}", ctypes.c_size_t) for number in range(10))


def _kept_by_malloc() -> int | None:
    """Return how many free bytes this process's malloc keeps, or None if the C library does not report it."""
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
        sharers = f"its {counted(children, 'child', 'children')}" if children else "other processes of its tree"
        text = f"{size(shared)} are shared with {sharers} since a fork; writing to a page copies it"
        yield Cause("forked", text, shared)
        return
    copied = sum(max(min(one.memory.anonymous, its.memory.anonymous) - shared_of(one.memory), 0) for one, its in alike)
    inherited += copied
    text = (
        f"it has copied {size(copied)} of the {size(inherited)} that it inherited from process {parent}: reading "
        f"Python objects changes their reference counts, up to about {size(memory.anonymous)}. oc.share() keeps one "
        "copy of such data"
    )
    yield Cause("forked", text, copied, bad=copied >= max(_BAD_COPIED, inherited // 20))


# --- the rest ---------------------------------------------------------------------------------------------------------


def _of_status(status: proc.Status, memory: proc.Rollup) -> Iterator[Cause]:
    if memory.swap >= _MIN_BYTES:
        text = f"{size(memory.swap)} are swapped out; accessing them means waiting for the disk"
        yield Cause("swap", text, memory.swap, bad=True)
    tables = status.vm_pte or 0
    if tables >= max(_MIN_BYTES, memory.rss // 200):
        text = f"page tables take {size(tables)} in addition: 8 bytes for each mapped page of 4 KiB"
        yield Cause("page-tables", text, tables)
    above = (status.vm_hwm or 0) - memory.rss
    if above >= max(_MIN_BYTES, memory.rss // 10):
        yield Cause("peak", f"its peak RSS was {size(status.vm_hwm or 0)} (VmHWM), {size(above)} more than now", above)


def _over_time(before: _Moment, after: _Moment) -> Iterator[Cause]:
    seconds = after.seconds - before.seconds
    if seconds <= 0:
        return
    grown = int(((after.status.rss_anon or 0) - (before.status.rss_anon or 0)) / seconds)
    if grown >= _BAD_RATE // 10:
        text = f"anonymous memory grew by {size(grown)}/s during the sample"
        yield Cause("growing", text, grown, grown >= _BAD_RATE)
    refaults = [None if moment.group is None else moment.group.refaults for moment in (before, after)]
    if refaults[0] is None or refaults[1] is None:
        return
    again = int((refaults[1] - refaults[0]) / seconds)
    if again >= _BAD_RATE // 10:
        text = f"its control group is short of memory: {size(again)}/s of dropped pages are read again"
        yield Cause("refaults", text, again, again >= _BAD_RATE)


def _of_container(found: Container | None) -> Iterator[Cause]:
    if found is None or found.limit is None or found.left is None:
        return
    text = (
        f"its control group has {size(found.left)} of {size(found.limit)} left before the OOM killer acts; the "
        f"{size(found.file_clean)} of clean page cache in it can be dropped at any time"
    )
    yield Cause("container", text, found.left, bad=found.left < found.limit // 10)


# --- copies -----------------------------------------------------------------------------------------------------------

# /proc does not show what anonymous memory contains. It does show which processes run the same program, how much
# private memory each has, and which frameworks and data files it has loaded or opened.


def _of_copies(pid: int, regions: Sequence[proc.MappedRegion]) -> Iterator[Cause]:
    """Report that processes of the same program may have private copies of the same files."""
    if _uses_onecopy(pid, regions):
        return
    found = [(_private(each), each, files) for each, files in _of_program(pid, regions)]
    found = [one for one in found if one[0] >= MIN_PRIVATE]
    loaded = [_frameworks(each) for _, each, _ in found]
    common = [name for name in FRAMEWORKS.values() if all(name in names for names in loaded)]
    if len(found) < 2 or not common:
        return
    private = sorted(nbytes for nbytes, _, _ in found)
    least, most = size(private[0]), size(private[-1])
    each = f"{least} each" if least == most else f"{least} to {most} each"
    files = Counter(path for _, _, paths in found for path in paths).most_common(_SHOWN_FILES)
    shown = [f", with {escape(Path(path).name)} open or mapped in {count} of them" for path, count in files]
    text = (
        f"{len(found)} processes run this program, have loaded {' and '.join(common)}, and use "
        f"{each} of private anonymous memory{''.join(shown)}. /proc does not show "
        "what this memory contains. If they loaded the same files, `onecopy run -- COMMAND` could share them"
    )
    yield Cause("copies", text, sum(private[:-1]))


def shared_anonymous(regions: Sequence[proc.MappedRegion]) -> int:
    """Return how many bytes of anonymous memory other processes also map."""
    return sum(shared_of(one.memory) for one in regions if one.memory.anonymous)


def shared_of(memory: proc.Rollup) -> int:
    """Return how many bytes of a region's anonymous memory other processes also map."""
    return min(memory.shared_clean + memory.shared_dirty, memory.anonymous)


def _private(regions: Sequence[proc.MappedRegion]) -> int:
    return sum(one.memory.anonymous for one in regions) - shared_anonymous(regions)


def _of_program(pid: int, regions: Sequence[proc.MappedRegion]) -> list[tuple[Sequence[proc.MappedRegion], set[str]]]:
    """Return the regions and data files of each sibling or child of `pid` that runs the same program."""
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
    """Return a process's executable and script, or None if they cannot be read."""
    try:
        executable = os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - text
        words = proc.process_text(pid, "cmdline").rstrip("\0").split("\0")
    except OSError:
        return None
    option, script = proc.script_of(words)
    # multiprocessing calls a function by -c, with other arguments in each process
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
        return any(one.startswith(f"{RUN}=") for one in proc.process_text(pid, "environ").split("\0"))
    return False
