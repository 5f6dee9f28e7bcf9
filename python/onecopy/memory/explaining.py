"""Which weights are private to a process, why, and what to do: `explain`.

    print(oc.explain(session))      # an onnxruntime session made by `oc.onnxruntime.session`
    print(oc.explain(model))        # a torch module
    print(oc.explain(file))         # what `oc.open` returned
    print(oc.explain(4711))         # any process, by what the kernel says of it

Nothing is guessed: addresses of weights are looked up in ``/proc/self/maps``, and pages that were copied on being
written to are counted in ``/proc/self/pagemap`` (of another process: in its smaps).

What the rest of a process's memory is, in sentences, tells `onecopy.why`.

**When not to use it.** In loops: `explain` of a process walks its page tables under a lock (see `onecopy.memory.proc`).
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from mmap import PAGESIZE
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from onecopy.memory import proc
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Explanation", "Finding", "explain"]

Kind: TypeAlias = Literal["shared", "written", "private", "heap", "device"]

_WORTH_IT = 1 << 20  # bytes of what is worth a line, or advice
_SHOWN = 12
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61  # bits of pagemap; the last one: of a file, or shared memory


@dataclass(frozen=True, slots=True)
class Finding:
    """One weight, or one mapped file, or what is no file's."""

    name: str
    bytes: int
    """Of addresses."""
    private: int
    """Bytes that only this process has, and that no other can have."""
    kind: Kind
    """"shared": on pages of a file. "written": some of them were copied on being written to. "private": a copy that an
    engine made. "heap": memory of no file. "device": not in this machine's memory."""
    path: str = ""
    """The file, where there is one."""
    reason: str = ""
    advice: str = ""
    """What to change; empty: nothing."""

    @property
    def amount(self) -> str:
        """What is private, and of how much where that is more; of what is shared all of it."""
        part = self.private or self.bytes
        return f"{size(part)} of {size(self.bytes)}" if part < self.bytes else size(part)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` found, the largest private part first. Printed, it is a table."""

    target: str
    findings: tuple[Finding, ...]

    @property
    def private(self) -> int:
        """Bytes that each process like this one holds again."""
        return sum(one.private for one in self.findings)

    @property
    def shared(self) -> int:
        """Bytes of addresses on files."""
        return sum(one.bytes - one.private for one in self.findings if one.kind in ("shared", "written"))

    @property
    def saves(self) -> int:
        """Bytes per process that following the advice would save."""
        return sum(one.private for one in self.findings if one.advice)

    def __str__(self) -> str:
        lines = [f"{self.target}: {size(self.shared)} on pages of files, {size(self.private)} private to the process"]
        told = [one for one in self.findings if one.private or (one.kind == "shared" and one.reason)]
        lines += [f"  {one.name}: {one.amount} {one.kind}: {one.reason}" for one in told[:_SHOWN]]
        if len(told) > _SHOWN:
            lines.append(f"  and {len(told) - _SHOWN} more")
        advice = dict.fromkeys(one.advice for one in told if one.private and one.advice)
        lines += [f"  -> {each}" for each in advice]
        if self.saves:
            lines.append(f"  that would save {size(self.saves)} in each process")
        return "\n".join(lines)


def explain(target: Any) -> Explanation:
    """Report which weights are private in a process, why, what to change, and what that would save.

    Parameters
    ----------
    target
        A session of `onecopy.onnxruntime`; a ``torch.nn.Module``; what `onecopy.open` returned for a file of arrays, or
        several; a process id (the rights of its owner are needed).

    Raises
    ------
    TypeError
        For anything else.
    ValueError
        The file was closed.
    ProcessLookupError, PermissionError
        There is no such process, or it is somebody else's.

    Examples
    --------
    >>> import onecopy as oc, os
    >>> oc.explain(os.getpid()).private > 0
    True
    """
    if isinstance(target, int) and not isinstance(target, bool):
        return _of_process(target)
    if hasattr(getattr(target, "onecopy", None), "copied"):
        return _of_session(target)
    if hasattr(target, "named_parameters"):
        return _of_module(target)
    if hasattr(target, "mode_reason") and hasattr(target, "residency"):
        return _of_opened(target)
    raise TypeError(
        f"a session, a module, an opened file of arrays or a process id can be explained, not {type(target).__name__}"
    )


def files_under(tensors: Iterable[Any]) -> list[str]:
    """Return the files in which tensors of this process lie."""
    regions = _Regions()
    places = [regions.at(tensor.data_ptr()) for tensor in tensors if tensor.device.type == "cpu" and tensor.numel()]
    return list(dict.fromkeys(region.path for region in places if region is not None and region.inode))


# --- a session --------------------------------------------------------------------------------------------------------


def _of_session(session: Any) -> Explanation:
    report = session.onecopy
    findings = [
        Finding(one.name, one.bytes, one.bytes, "private", report.path, one.reason, _advice_on(one.reason))
        for one in report.copied
    ]
    for file in report.mapped:
        written = sum(r.memory.anonymous for r in proc.regions_of(os.getpid(), file.path))
        reason = "written to, and so copied" if written else ""
        findings.append(Finding(file.path, file.bytes, written, "written" if written else "shared", file.path, reason))
    grown = None if report.private is None else max(report.private - sum(one.private for one in findings), 0)
    if report.mode in ("read", "map"):
        findings.append(_of_copied_weights(report, grown))
        grown = None if grown is None else grown - findings[-1].private
    if grown:
        why = "what ONNX Runtime allocated for the graph, its kernels and its arena"
        findings.append(Finding("engine", grown, grown, "heap", "", why))
    return Explanation(f"session {report.path} ({report.mode})", _sorted(findings))


_PACK = "oc.onnxruntime.session(path, 'packed', wait=True): packed once per host, one copy for all processes"
"""And not 'auto', which packs no small model."""


def _of_copied_weights(report: Any, grown: int | None) -> Finding:
    """Return a session's private weights that could be prepacked, where the process grew by `grown` bytes."""
    why = f"{report.mode!r}: ONNX Runtime copies weights to its heap, and packs matrices into another copy"
    mapped = sum(file.bytes for file in report.mapped)
    if grown is None:
        in_file = _size_of(report.path) if report.weights is None else report.weights
        private = max(in_file - mapped, 0)
        why += f"; at least the {size(private)} of the file: by how much the process grew is not known"
    elif report.weights is None:
        private = grown
        why += "; so much the process grew by when the session was made, the engine's own memory among it"
    else:
        private = min(grown, 2 * report.weights)
        why += f"; the process grew by {size(grown)} when the session was made, and the file has {size(report.weights)}"
    if private < _WORTH_IT:
        return Finding("weights", private, private, "private", "", f"{why}; too little to be worth packing")
    return Finding("weights", private, private, "private", "", why, _PACK)


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - text
    except OSError:  # gone since
        return 0


def _advice_on(reason: str) -> str:
    """Return what helps against a copy."""
    return _PACK if reason.startswith(("begins", "stored")) else ""


# --- an opened file ---------------------------------------------------------------------------------------------------


def _of_opened(opened: Any) -> Explanation:
    findings = [_of_arrays(file) for file in getattr(opened, "files", (opened,))]
    return Explanation(f"{opened.path} ({opened.mode}: {opened.mode_reason})", _sorted(findings))


def _of_arrays(file: Any) -> Finding:
    """Return where the arrays of one file are: in a private copy, or in pages of the file, some written to."""
    told = file.residency()
    if file.mode == "copy":
        why = "read into memory of this process, which no other can share"
        return Finding(file.path, told.bytes, told.bytes, "heap", file.path, why, "oc.open(path): mode='map'")
    regions = proc.of_file(proc.smaps(os.getpid()), file.identity[:2], os.path.realpath(file.path))
    if written := sum(region.memory.anonymous for region in regions):
        why = "pages that were written to in place, and so copied"
        return Finding(file.path, max(told.bytes, written), written, "written", file.path, why)
    cached, mapped = ("?" if nbytes is None else size(nbytes) for nbytes in (told.cached, told.mapped))
    why = f"{cached} of it are in memory, once for all processes; {mapped} in the page tables of this one"
    return Finding(file.path, told.bytes, 0, "shared", file.path, why)


# --- a module ---------------------------------------------------------------------------------------------------------


def _of_module(module: Any) -> Explanation:
    regions, findings, seen = _Regions(), [], set()
    with _Pages() as pages:
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            storage = tensor.untyped_storage()
            nbytes = storage.nbytes()
            if tensor.device.type != "cpu":
                findings.append(Finding(name, nbytes, 0, "device", "", f"on {tensor.device}"))
                continue
            if not nbytes or storage.data_ptr() in seen:
                continue
            seen.add(storage.data_ptr())
            findings.append(_of_memory(name, storage.data_ptr(), nbytes, regions.at(storage.data_ptr()), pages))
    return Explanation(type(module).__name__, _sorted(findings))


def _of_memory(name: str, address: int, nbytes: int, region: proc.Region | None, pages: _Pages) -> Finding:
    if region is None or not region.inode:
        why = "memory of no file: it was made here, cast to another dtype, or read instead of mapped"
        advice = "oc.torch.load_into(module, path) maps it; with dtype= and cast='store' also in another dtype"
        if nbytes < _WORTH_IT:
            advice = ""
        return Finding(name, nbytes, nbytes, "heap", "", why, advice)
    written = pages.private_bytes(address, nbytes)
    if not written:
        return Finding(name, nbytes, 0, "shared", region.path)
    why = "pages that were written to in place, and so copied"
    advice = "make the change before the weights are saved, or on a copy of what is small"
    return Finding(name, nbytes, written, "written", region.path, why, advice)


class _Regions:
    """What is mapped where in this process, at one moment."""

    def __init__(self) -> None:
        self._all = proc.maps(os.getpid())
        self._starts = [region.start for region in self._all]

    def at(self, address: int) -> proc.Region | None:
        """Return the region that an address is in."""
        place = bisect_right(self._starts, address) - 1
        return self._all[place] if place >= 0 and address < self._all[place].end else None


class _Pages:
    """The pagemap of this process, which it may always read; page numbers in it are hidden, flags are not."""

    def __enter__(self) -> _Pages:
        self._fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def private_bytes(self, address: int, nbytes: int) -> int:
        """Return the bytes of some addresses that are on pages of no file: whole pages that begin or lie in them."""
        first, last = address // PAGESIZE, (address + nbytes - 1) // PAGESIZE
        entries = array("Q")
        entries.frombytes(os.pread(self._fd, (last - first + 1) * 8, first * 8))
        private = sum(1 for e in entries if e & _SWAPPED or (e & _PRESENT and not e & _OF_FILE))
        return min(private * PAGESIZE, nbytes)


# --- a process --------------------------------------------------------------------------------------------------------


def _of_process(pid: int) -> Explanation:
    files: dict[str, list[proc.MappedRegion]] = {}
    others: dict[str, int] = {}
    for region in proc.smaps(pid):
        if region.inode:
            files.setdefault(region.path, []).append(region)
        else:
            name = region.path or "anonymous memory"
            others[name] = others.get(name, 0) + region.memory.anonymous
    findings = [_of_file(path, regions) for path, regions in files.items()]
    for name, nbytes in others.items():
        if nbytes >= _WORTH_IT or name == "[heap]":
            findings.append(Finding(name, nbytes, nbytes, "heap", "", "memory of no file: objects, buffers, arenas"))
    return Explanation(f"process {pid}", _sorted(findings))


def _of_file(path: str, regions: list[proc.MappedRegion]) -> Finding:
    nbytes = sum(region.end - region.start for region in regions)
    written = sum(region.memory.anonymous for region in regions)
    code = any("x" in region.perms for region in regions)
    if not written:
        return Finding(path, nbytes, 0, "shared", path)
    if code:
        return Finding(path, nbytes, written, "written", path, "variables of a library, and addresses it was given")
    why = "copy-on-write pages that were written to"
    return Finding(path, nbytes, written, "written", path, why, "look for writes in place to what is mapped")


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda one: (-one.private, -one.bytes)))
