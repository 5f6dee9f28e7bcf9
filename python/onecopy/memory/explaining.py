"""`explain`: report what processes or an object use memory for, how much of it is copies, and what to do.

    print(oc.explain())             # this process
    print(oc.explain([4711, 4712])) # processes of this user, together
    print(oc.explain(model))        # an object in this process: `onecopy.memory.objects`

The numbers are measured: the contents of private pages are compared with each other and with the bytes of files.

**When not to use it.** In loops, use `onecopy_monitor.Sampler`: `explain` reads all private memory, and walks page
tables under a lock of the observed processes, which takes 6 to 22 ms per GiB.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from onecopy.base.run_constants import MEMORY_NAME
from onecopy.base.text import amount, counted, escape, size
from onecopy.memory import proc
from onecopy.memory.cgroup import container, kind_of
from onecopy.memory.copies import Copies, code_of, find, is_library
from onecopy.memory.objects import ObjectExplanation, explain_object, payers
from onecopy.memory.remedies import command_text, remedy_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onecopy.memory.proc import Key, MappedRegion

__all__ = ["Cause", "Code", "ExaminedProcess", "Explanation", "explain"]

Code: TypeAlias = Literal[
    "cache",
    "copies",
    "dirty",
    "forked",
    "heap",
    "kept",
    "libraries",
    "run",
    "shared",
    "shmem",
    "swap",
    "written",
    "zeros",
]

_MIN_BYTES = 1 << 20
"""Smallest amount that is reported, or a hundredth of the memory of all processes if that is more."""
BAD_COPIES = 16 << 20
"""Smallest amount of copies that is reported as a problem, or a twentieth of the memory if that is more."""
_SHOWN = 8
"""Maximum number of causes that `str` returns."""
_WIDTH = 80
"""Width of the text that `str` returns."""
MAX_PROCESSES = 256
"""Maximum number of processes whose page tables are walked: those with the most private memory."""
_MAX_CHARGED = 3
"""Maximum number of mapped files for which the charged control groups are looked up."""
_D_STATE_SECONDS = 0.5
"""A process that waits in the kernel without interruption for this time is skipped."""
_DETAILS = ("dirty", "kept", "run")
"""Codes of causes that are parts of other causes, and that `str` omits."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why processes use memory."""

    code: Code
    """The kind of cause, for scripts."""
    text: str
    """The reason as text."""
    bytes: int
    """The memory in all processes together, in bytes."""
    bad: bool = False
    """Whether the cause is a problem to fix."""
    times: int = 1
    """Number of processes, or of copies, among which `bytes` are distributed."""

    def __str__(self) -> str:
        mark, text = "!" if self.bad else " ", _shortened(self.text, _WIDTH - 17)
        return f"{mark} {amount(self.times, self.bytes // self.times)}   {text}"


@dataclass(frozen=True, slots=True)
class ExaminedProcess:
    """The memory of one process, in bytes."""

    pid: int
    """Process ID."""
    name: str
    """Name of the program, followed by the script or module if the program is an interpreter."""
    pss: int
    """Resident memory, in which each page is divided by the number of processes that map it."""
    private: int
    """Memory that only this process uses and that the kernel cannot drop."""
    copies: int | None
    """The part of `private` that an earlier page, of this or another process, also contains; None if it is unknown."""
    peak: int | None
    """Maximum resident memory so far."""
    page_tables: int | None
    """Size of the page tables, which the other numbers do not include."""
    swap: int
    """Swapped-out memory."""
    group: str
    """Directory of the memory control group that is charged, or "" if it is unknown."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `explain` for processes. `str` returns one page."""

    name: str
    """The command of the processes as text."""
    processes: tuple[ExaminedProcess, ...]
    """The processes that could be examined, beginning with the most memory."""
    bytes: int
    """Memory of all these processes together, where each page counts once."""
    copies: int | None
    """Bytes of private memory that another page of these processes already contains; None if it is unknown."""
    error: int
    """Twice the standard error of `copies`, or 0 if all pages were compared."""
    causes: tuple[Cause, ...]
    """What the memory is used for: first the problems, then the other causes, each sorted by decreasing bytes."""
    remedy: str = ""
    """What to do, or "" if there is nothing to do."""
    expected: int | None = None
    """Memory of all processes together after following the remedy, or None if it cannot be predicted."""
    notes: tuple[str, ...] = ()
    """What could not be examined, and why."""
    charged: tuple[tuple[str, str], ...] = ()
    """The largest mapped files, and the control groups to which their page cache is charged, as text."""

    @property
    def bad(self) -> tuple[Cause, ...]:
        """The causes that are problems, or an empty sequence if nothing is wrong."""
        return tuple(one for one in self.causes if one.bad)

    def __str__(self) -> str:
        shown = [one for one in self.causes if one.code not in _DETAILS]
        lines = [*_folded(self._heading()), "", *map(str, shown[:_SHOWN])]
        if len(shown) > _SHOWN:
            lines.append(f"  and {len(shown) - _SHOWN} more")
        if self.remedy:
            lines += ["", *_folded(self.remedy)]
            if self.expected is not None:
                lines.append(f"Expected: {size(self.bytes)} -> {size(self.expected)}")
        lines += [line for note in self.notes for line in ("", *_folded(note))]
        return "\n".join(lines)

    def _heading(self) -> str:
        one = len(self.processes) == 1
        who = f"Process {self.processes[0].pid}" if one else f"{len(self.processes)} processes"
        text = f'{who} of "{self.name}" {"holds" if one else "hold"} {size(self.bytes)}. '
        if self.copies is None:
            return text + "How much of it is copies of the same bytes is unknown."
        if self.copies < _MIN_BYTES:
            return text + "It contains no copies of the same bytes."
        error = f" (±{size(self.error)})" if self.error else ""
        return f"{text}{size(self.copies)}{error} of it are copies of the same bytes."


@overload
def explain(
    target: int | Sequence[int] | None = None, *, seconds: float = 2.0, look_in: Sequence[str] = ()
) -> Explanation: ...
@overload
def explain(target: Any) -> ObjectExplanation: ...
def explain(
    target: Any = None, *, seconds: float = 2.0, look_in: Sequence[str] = ()
) -> Explanation | ObjectExplanation:
    """Report what processes or an object use memory for, how much of it is copies of the same bytes, and what to do.

    Parameters
    ----------
    target
        None: this process. Process ids, or a single id: these processes together, which must belong to this user.
        Otherwise, an object in this process: a session of `onecopy.onnxruntime`, a ``torch.nn.Module``, a result of
        `onecopy.open` or `onecopy.open_records`, or a NumPy array.
    seconds
        For processes: approximate maximum time for comparing pages; finding files may take the same time again. If
        there are too many pages, a random part of them is compared.
    look_in
        For processes: files or folders whose contents are compared with the memory, in addition to files that the
        processes have open, mapped or in their working directories, or name in their command lines and environments.

    Returns
    -------
    Explanation or ObjectExplanation
        `str` returns a page of at most 80 columns for processes, or a table for an object.

    Raises
    ------
    TypeError
        `target` is any other object.
    ValueError
        The file was closed, or `look_in` is given for an object.
    ProcessLookupError, PermissionError
        None of the processes exists, or they belong to another user.

    Examples
    --------
    >>> import onecopy as oc
    >>> mine = oc.explain()
    >>> mine.bytes >= mine.copies >= 0
    True
    """
    if target is None:
        return _of_processes([os.getpid()], seconds, look_in)
    if isinstance(target, int) and not isinstance(target, bool):
        return _of_processes([target], seconds, look_in)
    if isinstance(target, list | tuple | set | frozenset) and all(type(one) is int for one in target) and target:
        return _of_processes(list(dict.fromkeys(target)), seconds, look_in)
    if look_in:
        raise ValueError(f"look_in applies to processes only, not to a {type(target).__name__}")
    return explain_object(target)


def _of_processes(pids: list[int], seconds: float, look_in: Sequence[str]) -> Explanation:
    regions, status, skipped = _examined(pids)
    if not regions:
        raise next(iter(skipped.values()))
    copies = find(regions, seconds=seconds, look_in=look_in)
    group = _Group(regions, status, copies)
    causes = sorted(group.causes(), key=lambda one: (not one.bad, -one.bytes))
    remedy, expected = remedy_of(regions, copies, group.bytes, {one.code: one.bytes for one in causes if one.bad})
    return Explanation(
        command_text(list(regions), 40),
        tuple(sorted(map(group.memory_of, regions), key=lambda one: -one.pss)),
        group.bytes,
        copies.bytes if len(copies.failed) < len(regions) else None,
        copies.error,
        tuple(causes),
        remedy,
        expected,
        tuple(_notes(copies, skipped)),
        tuple(group.charged()),
    )


def _examined(pids: list[int]) -> tuple[dict[int, list[MappedRegion]], dict[int, proc.Status], dict[int, OSError]]:
    """Return regions and states of the processes with the most private memory, and why others are skipped."""
    found, states, skipped = dict[int, "list[MappedRegion]"](), dict[int, proc.Status](), dict[int, OSError]()
    for pid in pids:
        try:
            states[pid] = proc.status(pid)
        except OSError as error:
            skipped[pid] = error
    for pid in sorted(states, key=lambda pid: -(states[pid].rss_anon or 0)):
        try:
            if len(found) == MAX_PROCESSES:
                raise OSError(0, f"only the {MAX_PROCESSES} processes with the most memory are examined")
            if _is_stuck(pid):
                raise OSError(0, "waiting in the kernel (state D)")
            found[pid] = proc.smaps(pid)
        except OSError as error:
            skipped[pid] = error
    return found, states, skipped


def _is_stuck(pid: int) -> bool:
    """Return whether a process waits uninterruptibly in the kernel. Reading its memory could then wait, too."""
    deadline = time.monotonic() + _D_STATE_SECONDS
    while proc.stat(pid).state == "D":
        if time.monotonic() > deadline:
            return True
        time.sleep(0.02)
    return False


_REASONS: dict[type[OSError], str] = {
    PermissionError: "owned by another user, or not readable by its own user",
    ProcessLookupError: "ended, or without memory (a zombie or a kernel thread)",
}


def _notes(copies: Copies, skipped: dict[int, OSError]) -> Iterator[str]:
    if copies.share < 1:
        yield f"{100 * copies.share:.0f} % of the private pages were compared, chosen at random."
    reasons = Counter(_REASONS.get(type(error), error.strerror or str(error)) for error in skipped.values())
    for reason, number in reasons.items():
        yield f"{counted(number, 'process', 'processes')} not examined: {reason}."
    if copies.failed:
        error = next(iter(copies.failed.values()))
        yield (
            f"The private memory of {counted(len(copies.failed), 'process', 'processes')} was not compared: "
            f"{error.strerror}. Comparing it requires permission to trace them (ptrace): {_missing_permission()}."
        )


def _missing_permission() -> str:
    with suppress(OSError, ValueError):
        if int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii")) > 0:
            return "kernel.yama.ptrace_scope is not 0 here, so run this command as root, or from their parent process"
    return "run this command as root, or give its container the capability SYS_PTRACE"


class _Group:
    """Processes that are explained together."""

    def __init__(self, regions: dict[int, list[MappedRegion]], states: dict[int, proc.Status], copies: Copies) -> None:
        self._regions, self._states, self._copies = regions, states, copies
        self._code = {key for parts in regions.values() for key in code_of(parts)}
        self._files: defaultdict[Key, list[MappedRegion]] = defaultdict(list)
        for one in (one for parts in regions.values() for one in parts):
            if one.inode:
                self._files[one.dev, one.inode].append(one)
        self._in_memory = self._files_in_memory()
        self.bytes = sum(one.memory.pss for parts in regions.values() for one in parts)
        self.bytes += sum(self._in_memory.values()) + self._hugetlb()
        self._least = max(_MIN_BYTES, self.bytes // 100)
        self._bad = max(BAD_COPIES, self.bytes // 20)

    def _files_in_memory(self) -> Counter[str]:
        """Return the bytes of in-memory files that the processes have open or map, except those in page tables."""
        found = Counter[str]()
        for parts in self._files.values():
            if parts[0].path.startswith(f"/memfd:{MEMORY_NAME}"):  # complete, even if only another process has it open
                size_in_memory = max(one.offset + one.end - one.start for one in parts)
                found[parts[0].path] = max(size_in_memory - sum(one.memory.pss for one in parts), 0)
        for pid in self._regions:
            for name in _descriptors(pid):
                with suppress(OSError):
                    path = os.readlink(name)  # noqa: PTH115 - text
                    if path.startswith("/memfd:"):
                        facts = os.stat(name)  # noqa: PTH116 - text
                        mapped = sum(one.memory.pss for one in self._files.get((facts.st_dev, facts.st_ino), ()))
                        found[path.removesuffix(" (deleted)")] = max((facts.st_blocks << 9) - mapped, 0)
        return found

    def _hugetlb(self) -> int:
        """Return the bytes of private pages of hugetlbfs, which no other number includes."""
        return sum(one.memory.private_hugetlb or 0 for parts in self._regions.values() for one in parts)

    def memory_of(self, pid: int) -> ExaminedProcess:
        """Return the memory of one process."""
        parts, status = self._regions[pid], self._states[pid]
        group = None
        with suppress(OSError):  # it has ended meanwhile
            group = container(pid)
        return ExaminedProcess(
            pid,
            proc.label_of(pid, proc.name_of(pid)),
            sum(one.memory.pss for one in parts),
            sum(one.memory.anonymous - one.memory.shared_anonymous + _alone_in_memory(one) for one in parts),
            self._copies.data.get(pid),
            status.vm_hwm,
            status.vm_pte,
            sum(one.memory.swap for one in parts),
            group.directory if group is not None else "",
        )

    def charged(self) -> Iterator[tuple[str, str]]:
        """Yield the largest mapped files, and the control groups that are charged for them."""
        files = (parts for key, parts in self._files.items() if kind_of(key, parts[0].path) == "file")
        for parts in sorted(files, key=lambda parts: -sum(one.memory.pss for one in parts))[:_MAX_CHARGED]:
            pid = next(pid for pid, regions in self._regions.items() if parts[0] in regions)
            yield parts[0].path, payers(pid, [(parts[0].start, parts[0].end - parts[0].start)])

    def causes(self) -> Iterator[Cause]:
        """Yield the causes that have at least `_least` bytes."""
        found = [*self._of_copies(), *self._of_files(), *self._of_fork()]
        anonymous = self._hugetlb() + int(sum(_anonymous_pss(one) for parts in self._regions.values() for one in parts))
        other = sum(one.bytes for one in found if one.code in ("copies", "forked", "libraries", "written", "zeros"))
        text = "different in each process" if len(self._regions) > 1 else "objects, buffers and stacks"
        found.append(Cause("heap", text, max(anonymous - other, 0), times=len(self._regions)))
        found += self._of_status()
        yield from (one for one in found if one.bytes >= self._least)

    def _of_copies(self) -> Iterator[Cause]:
        for file in self._copies.files:
            times = max(len(file.held), round(file.bytes / file.size))
            text = f"private {'copy' if times == 1 else 'copies'} of {file.path}"
            yield Cause("copies", text, file.bytes, file.extra >= self._bad, times)
        unknown = self._copies.in_no_file
        which = "other copies" if self._copies.files else "copies"
        yield Cause("copies", f"{which}, found in none of the compared files", unknown, unknown >= self._bad)
        own = [one for parts in self._regions.values() for one in parts if is_library(one, self._code)]
        if own:
            largest = Path(max(own, key=lambda one: one.memory.anonymous).path).name
            text = f"variables of libraries, such as {largest}; this is normal"
            yield Cause("libraries", text, sum(one.memory.anonymous for one in own), times=len(self._regions))
        yield Cause("zeros", "pages that contain only zeros", self._copies.zeros)

    def _of_files(self) -> Iterator[Cause]:
        cached, memory, dirty = Counter[str](), Counter(self._in_memory), 0
        for key, parts in self._files.items():
            path = parts[0].path
            (memory if kind_of(key, path) == "shmem" else cached)[path] += int(
                sum(one.memory.pss - _anonymous_pss(one) for one in parts)
            )
            if kind_of(key, path) == "file":
                dirty += sum(one.memory.shared_dirty + one.memory.private_dirty - one.memory.anonymous for one in parts)
            copied = sum(one.memory.anonymous for one in parts)
            if not is_library(parts[0], self._code):
                yield Cause(
                    "written", f"pages of {path} that were copied by writing to them", copied, copied >= self._bad
                )
        if cached:
            yield Cause("cache", f"page cache of {_listed(cached)}; can be dropped", cached.total())
        held = Counter({path: nbytes for path, nbytes in memory.items() if path.startswith(f"/memfd:{MEMORY_NAME}")})
        if held:
            yield Cause("shared", f"one copy for all processes, held by onecopy: {_listed(held)}", held.total())
        if memory := memory - held:
            yield Cause("shmem", f"files in memory: {_listed(memory)}", memory.total())
        yield Cause("dirty", "page cache that must be written to disk before it is dropped", dirty)

    def _of_fork(self) -> Iterator[Cause]:
        every = (one.memory for parts in self._regions.values() for one in parts)
        shared = sum(max(one.pss - one.uss, 0) for one in every if one.shared_anonymous)
        yield Cause("forked", "shared since a fork; writing to a page copies it", shared)
        copied = sum(self._copied_since_fork(pid) for pid in self._regions)
        text = "copied since a fork, mostly by counting references to objects"
        yield Cause("forked", text, copied, copied >= self._bad)

    def _copied_since_fork(self, pid: int) -> int:
        """Return how many inherited bytes a process has copied: 0 if it has called exec, or its parent has ended."""
        parts, parent, of_parent = self._regions[pid], self._states[pid].ppid, dict[int, "MappedRegion"]()
        with suppress(OSError):
            regions = self._regions.get(parent) or proc.smaps(parent)
            of_parent = {one.start: one for one in regions if one.memory.anonymous}
        alike = [(one, of_parent[one.start]) for one in parts if one.start in of_parent and one.memory.shared_anonymous]
        inherited = sum(one.memory.shared_anonymous for one, _ in alike)
        if inherited < max(sum(one.memory.shared_anonymous for one in parts) // 2, 1):
            return 0
        return sum(
            max(min(one.memory.anonymous, its.memory.anonymous) - one.memory.shared_anonymous, 0) for one, its in alike
        )

    def _of_status(self) -> Iterator[Cause]:
        every = [one.memory for parts in self._regions.values() for one in parts]
        if swap := sum(one.swap for one in every):
            yield Cause("swap", "swapped out, and therefore not compared", swap, bad=True)
        kept = sum(one.lazy_free or 0 for one in every)
        kept += (_kept_by_malloc() or 0) if os.getpid() in self._regions else 0
        yield Cause("kept", "freed, but kept by the allocator", kept)


def _anonymous_pss(region: MappedRegion) -> float:
    memory = region.memory
    return memory.pss * memory.anonymous / memory.rss if memory.rss else 0.0


def _alone_in_memory(region: MappedRegion) -> int:
    """Return how many bytes of an in-memory file no other process maps, or 0 for a file on disk."""
    if not region.inode or kind_of((region.dev, region.inode), region.path) != "shmem":
        return 0
    memory = region.memory
    return max(memory.private_clean + memory.private_dirty - memory.anonymous, 0)


def _descriptors(pid: int) -> list[str]:
    with suppress(OSError):
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]  # noqa: PTH208 - text
    return []


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


def _listed(files: Counter[str]) -> str:
    (largest, _), *others = files.most_common()
    return f"{Path(largest).name} and {len(others)} more" if others else Path(largest).name


def _shortened(text: str, width: int) -> str:
    """Return text with at most `width` characters, in which the middle may be replaced by an ellipsis."""
    text = escape(text)
    return text if len(text) <= width else f"{text[: width // 2]}…{text[len(text) - (width - 1) // 2 :]}"


def _folded(text: str) -> list[str]:
    """Return paragraphs as lines of at most `_WIDTH` characters, if no word is longer. Indented text stays whole."""
    lines = list[str]()
    for paragraph in text.split("\n"):
        words = [paragraph] if paragraph.startswith(" ") else paragraph.split(" ")
        line = words[0]
        for word in words[1:]:
            if len(line) + 1 + len(word) > _WIDTH:
                lines.append(line)
                line = word
            else:
                line += f" {word}"
        lines.append(line)
    return [escape(line) for line in lines]
