"""`explain`: report what memory a process or an object holds, how much of it is private, and why.

    print(oc.explain())             # this process, in sentences
    print(oc.explain(4711))         # any process of this user
    print(oc.explain(session))      # an onnxruntime session made by `oc.onnxruntime.session`
    print(oc.explain(model))        # a torch module
    print(oc.explain(file))         # what `oc.open` or `oc.open_records` returned, or a numpy array

The numbers are measured: addresses are searched in ``/proc/self/maps``, and pages that were copied on write are counted
in ``/proc/self/pagemap``, or in the smaps of another process.

**When not to use it.** In loops: `explain` of a process walks its page tables under a lock, 6 to 22 ms per GiB;
`onecopy_monitor.Sampler` is made for loops.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from onecopy.memory import proc
from onecopy.memory.causes import Cause, causes_of, shared_anonymous
from onecopy.memory.proc import Pages, Regions
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Explanation", "Finding", "explain"]

Kind: TypeAlias = Literal["shared", "written", "private", "heap", "device"]

_MIN_BYTES = 1 << 20  # smaller findings get neither a line nor advice
_SHOWN = 12  # lines of findings that are printed


@dataclass(frozen=True, slots=True)
class Finding:
    """One weight, one mapped file, or one kind of anonymous memory."""

    name: str
    bytes: int
    """Size of its address range."""
    private: int
    """Bytes that are private to this process."""
    kind: Kind
    """"shared": on pages of a file. "written": some pages of a file were copied on write. "private": a copy made by an
    engine. "heap": anonymous memory. "device": memory of a device."""
    path: str = ""
    """Path of the mapped file; empty for anonymous memory."""
    reason: str = ""
    """Why it is private, or how it is shared, as text."""
    advice: str = ""
    """What to change; empty where there is nothing to change."""

    @property
    def amount(self) -> str:
        """The private part, as text: "1 MB", or "1 MB of 8 MB" where the rest is shared."""
        part = self.private or self.bytes
        return f"{size(part)} of {size(self.bytes)}" if part < self.bytes else size(part)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` found, the largest private part first. Printed, it is a table."""

    target: str
    """The explained process or object, as text."""
    findings: tuple[Finding, ...]
    """Weights, mapped files and kinds of anonymous memory; the largest private part first."""
    causes: tuple[Cause, ...] = ()
    """What the memory of a process consists of, one sentence each, problems first; empty for an object."""
    pid: int | None = None
    """The process id; None for an object."""
    rss: int | None = None
    """Resident set size of a process in bytes, as other tools show it; None for an object."""
    own: int | None = None
    """Anonymous memory of a process that no other process shares, in bytes; None for an object."""

    @property
    def bad(self) -> tuple[Cause, ...]:
        """The causes that should be acted on; empty where nothing is wrong."""
        return tuple(one for one in self.causes if one.bad)

    @property
    def private(self) -> int:
        """Private bytes in total, which every further process of this kind would hold again."""
        return sum(one.private for one in self.findings)

    @property
    def shared(self) -> int:
        """Bytes of address ranges that lie on pages of files, in total."""
        return sum(one.bytes - one.private for one in self.findings if one.kind in ("shared", "written"))

    @property
    def saves(self) -> int:
        """Bytes that following the advice would save in each process."""
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
    """Report what memory a process or an object holds, how much of it is private and why, and how to save it.

    Parameters
    ----------
    target
        None: this process. An integer: the process with this id, which must belong to this user. Else an object of this
        process: a session of `onecopy.onnxruntime`, a ``torch.nn.Module``, a result of `onecopy.open` or
        `onecopy.open_records`, or a numpy array.
    interval
        For a process: sample a second time after this number of seconds, and report growth and refaults.

    Returns
    -------
    Explanation
        Printed, it is a list of sentences for a process, or a table for an object.

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
        raise ValueError(f"interval={interval} is for processes, not for a {type(target).__name__}")
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
    """Return the paths of the files whose pages hold tensors of this process."""
    regions = Regions()
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
        reason = "some pages were written to, and so copied" if written else ""
        findings.append(Finding(file.path, file.bytes, written, "written" if written else "shared", file.path, reason))
    grown = None if report.private is None else max(report.private - sum(one.private for one in findings), 0)
    if report.mode in ("read", "map"):
        findings.append(_of_copied_weights(report, grown))
        grown = None if grown is None else grown - findings[-1].private
    if grown:
        why = "what ONNX Runtime allocated for the graph, its kernels and its arena"
        findings.append(Finding("engine", grown, grown, "heap", "", why))
    return Explanation(f"session {report.path} ({report.mode})", _sorted(findings))


_PREPACK = (
    "oc.onnxruntime.session(path, 'prepacked', wait=True): prepacked once per machine, one copy for all processes"
)
"""Not 'auto', which does not prepack small models."""


def _of_copied_weights(report: Any, grown: int | None) -> Finding:
    """Return a session's private weights that could be prepacked, where the process grew by `grown` bytes."""
    why = f"{report.mode!r}: ONNX Runtime copies weights to its heap, and prepacks matrices into another copy"
    mapped = sum(file.bytes for file in report.mapped)
    if grown is None:
        in_file = _size_of(report.path) if report.weights is None else report.weights
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


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - text
    except OSError:  # removed since
        return 0


def _advice_on(reason: str) -> str:
    """Return the advice for a copied weight; empty if there is none."""
    return _PREPACK if reason.startswith(("begins", "stored")) else ""


# --- an opened file ---------------------------------------------------------------------------------------------------


def _of_opened(opened: Any) -> Explanation:
    findings = [_of_arrays(file) for file in getattr(opened, "files", (opened,))]
    return Explanation(f"{opened.path} ({opened.mode}: {opened.mode_reason})", _sorted(findings))


def _of_records(rows: Any) -> Explanation:
    return Explanation(f"{type(rows).__name__} of {len(rows)} rows in {rows.path}", (_of_mapped(rows),))


def _of_arrays(file: Any) -> Finding:
    """Return a finding about the arrays of one file: a private copy, or pages of the file, some of them written to."""
    report = file.residency()
    if file.mode == "copy":
        why = "read into private memory of this process"
        return Finding(file.path, report.bytes, report.bytes, "heap", file.path, why, "oc.open(path, mode='map')")
    regions = proc.of_file(proc.smaps(os.getpid()), file.identity[:2], os.path.realpath(file.path))
    if written := sum(region.memory.anonymous for region in regions):
        why = "pages that were written to in place, and so copied"
        return Finding(file.path, max(report.bytes, written), written, "written", file.path, why)
    return _of_mapped(file)


def _of_mapped(file: Any) -> Finding:
    report = file.residency()
    cached, mapped = ("?" if nbytes is None else size(nbytes) for nbytes in (report.cached, report.mapped))
    why = f"{cached} of it are in memory, once for all processes; {mapped} in the page tables of this process"
    return Finding(file.path, report.bytes, 0, "shared", file.path, why)


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


def _of_memory(name: str, address: int, nbytes: int, region: proc.Region | None, pages: Pages) -> Finding:
    if region is None or not region.inode:
        why = "anonymous memory: computed here, cast to another dtype, or read instead of mapped"
        advice = "oc.torch.load_into(module, path) maps it; with dtype= and cast='store' also in another dtype"
        if nbytes < _MIN_BYTES:
            advice = ""
        return Finding(name, nbytes, nbytes, "heap", "", why, advice)
    written = pages.private_bytes(address, nbytes)
    if not written:
        return Finding(name, nbytes, 0, "shared", region.path)
    why = "pages that were written to in place, and so copied"
    advice = "make the change before the weights are saved, or on a copy of what is small"
    return Finding(name, nbytes, written, "written", region.path, why, advice)


# --- a process --------------------------------------------------------------------------------------------------------


def _of_process(pid: int, interval: float) -> Explanation:
    regions, memory, causes = causes_of(pid, interval)
    files: dict[str, list[proc.MappedRegion]] = {}
    others: dict[str, int] = {}
    for region in regions:
        if region.inode:
            files.setdefault(region.path, []).append(region)
        else:
            name = region.path or "anonymous memory"
            others[name] = others.get(name, 0) + region.memory.anonymous
    findings = [_of_file(path, parts) for path, parts in files.items()]
    for name, nbytes in others.items():
        if nbytes >= _MIN_BYTES or name == "[heap]":
            findings.append(Finding(name, nbytes, nbytes, "heap", "", "anonymous memory: objects, buffers, arenas"))
    target = f"process {pid} ({proc.label_of(pid, proc.stat(pid).comm)})"
    own = memory.anonymous - shared_anonymous(regions)
    return Explanation(target, _sorted(findings), causes, pid, memory.rss, own)


def _of_file(path: str, regions: list[proc.MappedRegion]) -> Finding:
    nbytes = sum(region.end - region.start for region in regions)
    written = sum(region.memory.anonymous for region in regions)
    code = any("x" in region.perms for region in regions)
    if not written:
        return Finding(path, nbytes, 0, "shared", path)
    if code:
        return Finding(path, nbytes, written, "written", path, "variables of a library and its relocated addresses")
    why = "pages of a private mapping that were written to, and so copied"
    return Finding(path, nbytes, written, "written", path, why, "find the code that writes in place to mapped data")


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda one: (-one.private, -one.bytes)))
