"""Explain where an object's memory is: a session, a module, an opened file or an array.

Addresses are looked up in ``/proc/self/maps``, and pages that were copied on write are counted in
``/proc/self/pagemap``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from onecopy.base.tensor_values import has_memory
from onecopy.base.text import size
from onecopy.files.page_cache import lost_since_warm
from onecopy.memory import proc
from onecopy.memory.cgroup import charged_to, container
from onecopy.memory.proc import Pages, Regions

Kind: TypeAlias = Literal["shared", "written", "private", "heap", "device"]

_MIN_BYTES = 1 << 20
"""Smallest amount for which advice is given."""
_SHOWN = 12
"""Maximum number of findings that are printed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A weight, a mapped file, or a kind of anonymous memory."""

    name: str
    bytes: int
    """Size of the address range in bytes."""
    private: int
    """Bytes that are private to this process."""
    kind: Kind
    """"shared": in pages of a file. "written": some pages of a file were copied on write. "private": a copy made by an
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
class ObjectExplanation:
    """The result of `explain` for an object. `str` returns a table of its memory."""

    target: str
    """The explained object, as text."""
    findings: tuple[Finding, ...]
    """Weights, mapped files and kinds of anonymous memory, sorted by the size of the private part."""

    @property
    def private(self) -> int:
        """Total number of private bytes. Each additional process of this kind would need as many again."""
        return sum(one.private for one in self.findings)

    @property
    def shared(self) -> int:
        """Total size in bytes of address ranges that are in pages of files."""
        return sum(one.bytes - one.private for one in self.findings if one.kind in ("shared", "written"))

    @property
    def saves(self) -> int:
        """Number of bytes that each process would save by following the advice."""
        return sum(one.private for one in self.findings if one.advice)

    def __str__(self) -> str:
        lines = [f"{self.target}: {size(self.shared)} in pages of files, {size(self.private)} private to the process"]
        shown = [one for one in self.findings if one.private or (one.kind == "shared" and one.reason)]
        lines += [f"  {one.name}: {one.amount} {one.kind}: {one.reason}" for one in shown[:_SHOWN]]
        if len(shown) > _SHOWN:
            lines.append(f"  and {len(shown) - _SHOWN} more")
        advice = dict.fromkeys(one.advice for one in shown if one.private and one.advice)
        lines += [f"  -> {each}" for each in advice]
        if self.saves:
            lines.append(f"  this would save {size(self.saves)} in each process")
        return "\n".join(lines)


def explain_object(target: Any) -> ObjectExplanation:
    """Explain an object's memory, as `onecopy.explain` does. Raise TypeError for objects of other types."""
    if hasattr(getattr(target, "onecopy", None), "copied"):
        return _of_session(target)
    if hasattr(target, "named_parameters"):
        return _of_module(target)
    if hasattr(target, "mode_reason"):
        return _of_opened(target)
    if hasattr(target, "residency"):
        return _of_records(target)
    if hasattr(target, "__array_interface__"):
        return _of_array(target)
    raise TypeError(
        "expected process ids, a session, a module, an opened file or an array to explain, not a "
        f"{type(target).__name__}"
    )


# --- a session --------------------------------------------------------------------------------------------------------


def _of_session(session: Any) -> ObjectExplanation:
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
    return ObjectExplanation(f"session {report.path} ({report.mode})", _sorted(findings))


# Not 'auto', which does not prepack small models.
_PREPACK = "oc.onnxruntime.session(path, 'prepacked', wait=True) prepacks once per machine: one copy for all processes"


def _of_copied_weights(report: Any, grown: int | None) -> Finding:
    """Estimate from the growth of the process how many bytes of a session's private weights could be prepacked."""
    why = f"{report.mode!r}: ONNX Runtime copies weights to its heap, and prepacks matrices into another copy"
    mapped = sum(file.bytes for file in report.mapped)
    if grown is None:
        in_file = report.weights
        if in_file is None:
            in_file = os.path.getsize(report.path) if os.path.exists(report.path) else 0  # noqa: PTH110, PTH202 - text
        private = max(in_file - mapped, 0)
        why += f"; the process grew by an unknown amount, but at least by the {size(private)} of the file"
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


def _of_opened(opened: Any) -> ObjectExplanation:
    findings = [_of_arrays(file) for file in getattr(opened, "files", (opened,))]
    return ObjectExplanation(f"{opened.path} ({opened.mode}: {opened.mode_reason})", _sorted(findings))


def _of_records(rows: Any) -> ObjectExplanation:
    return ObjectExplanation(f"{type(rows).__name__} of {len(rows)} rows in {rows.path}", (_of_mapped(rows),))


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
    why = f"{cached} are in memory, once for all processes; {mapped} are in the page tables of this process"
    if (core := getattr(file, "core", None)) is not None:
        core = getattr(core, "mapping", core)  # rows refer to the extension's file
        if lost := lost_since_warm(core, report.cached):
            why += (
                f"; {size(lost)} ({100 * lost / report.bytes:.0f} %) were dropped since this process warmed it: "
                "onecopy.files.page_cache.pin or onecopy.Holder keeps the file in memory"
            )
        why += f"; {payers(os.getpid(), [(core.address, core.nbytes)])}"
    return Finding(file.path, report.bytes, 0, "shared", file.path, why)


def payers(pid: int, ranges: list[tuple[int, int]]) -> str:
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


def _of_array(values: Any) -> ObjectExplanation:
    address, nbytes = values.__array_interface__["data"][0], values.nbytes
    with Pages() as pages:
        finding = _of_memory("data", address, nbytes, Regions().at(address), pages)
    finding = replace(finding, advice="" if finding.kind == "heap" else finding.advice)
    return ObjectExplanation(f"{type(values).__name__} {values.dtype}{list(values.shape)}", (finding,))


# --- a module ---------------------------------------------------------------------------------------------------------


def _of_module(module: Any) -> ObjectExplanation:
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
    return ObjectExplanation(type(module).__name__, _sorted(findings))


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


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda one: (-one.private, -one.bytes)))
