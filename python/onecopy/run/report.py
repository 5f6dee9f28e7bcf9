"""What the calls of several processes amount to: files that are in memory once, and calls that were not shared.

What processes hold privately, and which large files they read themselves, is sampled while they live: a process that is
killed reports nothing.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy import memory
from onecopy.base.run_constants import NOTHING_LOADED, RUN
from onecopy.base.text import counted, escape, size
from onecopy.memory import proc
from onecopy.run.call_log import MAX_LOG_BYTES, call_of, parse_calls, parse_lines, private_bytes, read_run
from onecopy.store.snapshots import MEMORY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onecopy.memory.explaining import Cause
    from onecopy.run.call_log import Call

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Group:
    """Calls of one function with one file and one result, of one or several processes."""

    function: str
    """The function, as in its documentation: "torch.load"; empty for a file that processes read themselves."""
    path: str
    """Path of the file; empty if it is not known."""
    reason: str
    """Why nothing is shared, or what would help; empty for what is shared."""
    bytes: int
    """Bytes that are shared, or were copied, in each process (the largest of them), or the size of the file."""
    pids: tuple[int, ...]
    """The processes, in ascending order."""
    private: int | None = None
    """Bytes of what is shared that became private to a process when it wrote to them, of all processes that were
    sampled; None if none was."""
    saved: int = 0
    """Bytes that copies in each process that was sampled would take in addition; negative if sharing takes more."""

    @classmethod
    def of(cls, calls: list[Call], private: Mapping[int, Mapping[str, int]]) -> Group:
        """Return the group of calls with one result; `private` is that of `RunReport.of`."""
        first = calls[0]
        pids = tuple(sorted({call.pid for call in calls}))
        largest = dict.fromkeys(pids, 0)
        for call in calls:
            largest[call.pid] = max(largest[call.pid], call.shared, call.copied)
        sampled = [pid for pid in pids if pid in private]
        alone = sum(private[pid].get(first.path, 0) for pid in sampled)
        return cls(
            ", ".join(dict.fromkeys(call.function for call in calls)),
            first.path,
            first.reason if not first.shared else "",
            max(largest.values()),
            pids,
            alone if sampled else None,
            sum(largest[pid] for pid in sampled) - max(largest[pid] for pid in sampled) - alone if sampled else 0,
        )

    def __str__(self) -> str:
        name = f"{escape(Path(self.path).name)}, " if self.path else ""
        first = (
            f"{name}{size(self.bytes) + ', ' if self.bytes else ''}by {counted(len(self.pids), 'process', 'processes')}"
        )
        text = ": ".join(part for part in (first, self.function, escape(self.reason)) if part)
        return f"{text}; {size(self.private)} of it were written to, and are private" if self.private else text


@dataclass(frozen=True, slots=True)
class RunReport:
    """Result of `onecopy run`; `str` gives it as a paragraph."""

    shared: tuple[Group, ...]
    """What is shared: one group for each file, the largest first."""
    copied: tuple[Group, ...]
    """What is not: one group for each function, file and reason, the most bytes of all processes first."""
    read: tuple[Group, ...] = ()
    """Large files that processes read themselves."""
    stored: tuple[str, ...] = ()
    """Paths in the store, on disk, of what is shared: it stays there after the run."""
    in_memory: bool = False
    """Whether some of what is shared is in memory of the run: other runs have copies of their own."""

    @classmethod
    def of(
        cls,
        calls: Iterable[Call],
        private: Mapping[int, Mapping[str, int]] | None = None,
        read: tuple[Group, ...] = (),
    ) -> RunReport:
        """Group the calls of all processes. A file that several functions of a process share counts once.

        `private` has, by process and path, the bytes that a process holds alone of what it shares. A process that is
        not in it was not sampled, and nothing is said to be saved by it.
        """
        shared: dict[str, list[Call]] = {}
        copied: dict[tuple[str, str, str], list[Call]] = {}
        for call in calls:
            if call.shared:
                shared.setdefault(call.path, []).append(call)
            elif call.reason:
                copied.setdefault((call.function, call.path, call.reason), []).append(call)
        groups = [Group.of(one, private or {}) for one in shared.values()]
        others = [Group.of(one, {}) for one in copied.values()]
        groups.sort(key=lambda one: (-one.bytes, one.path))
        others.sort(key=lambda one: (-one.bytes * len(one.pids), one.path))
        return cls(tuple(groups), tuple(others), read)

    @property
    def saved(self) -> int:
        """Bytes that copies in each process would take in addition, when the processes were sampled last."""
        return sum(one.saved for one in self.shared)

    def json(self) -> str:
        """Return the report as a text of JSON."""
        return json.dumps({**asdict(self), "saved": self.saved}, indent=1) + "\n"

    def __str__(self) -> str:
        if not self.shared and not self.copied and not self.read:
            return NOTHING_LOADED
        pids = {pid for one in self.shared for pid in one.pids}
        total, saved = size(sum(one.bytes for one in self.shared)), size(self.saved)
        first = f"{counted(len(pids), 'process', 'processes')} {'holds' if len(pids) == 1 else 'hold'} {total} of "
        first += f"{counted(len(self.shared), 'file')} once"
        lines = []
        for title, groups in (
            (f"{first}: {saved} less than a copy in each" if self.saved > 0 else first, self.shared),
            ("not shared:", self.copied),
            ("read by the processes themselves:", self.read),
        ):
            if groups:
                lines += [title, *(f"  {one}" for one in groups[:_SHOWN])]
                lines += [f"  and {len(groups) - _SHOWN} more"] if len(groups) > _SHOWN else []
        if self.stored:
            lines += ["kept in the store, also after this run:", *(f"  {escape(one)}" for one in self.stored[:_SHOWN])]
            lines += [f"  and {len(self.stored) - _SHOWN} more"] if len(self.stored) > _SHOWN else []
        elif self.in_memory and len(pids) == 1:
            lines += [_ONE_PROCESS]
        return "\n".join(lines)


_ONE_PROCESS = "no other process shares them: other runs have copies of their own, which `onecopy run --keep` avoids"
_MAX_DEPTH = 64
"""Maximum number of ancestors of a process whose calls count."""


def causes_of_run(pid: int) -> list[Cause]:
    """Return what a process of `onecopy run` shares and what not; [] if it is no such process, or cannot be read.

    What its ancestors have loaded counts if the process still maps the file: it has inherited the mapping. The calls
    are those that the processes of the run have reported; `onecopy run` must be alive, and of the same user.
    """
    try:
        environment = proc.process_text(pid, "environ").split("\0")
        run = next((one.removeprefix(f"{RUN}=") for one in environment if one.startswith(f"{RUN}=")), None)
        if run is None:
            return []
        try:
            reported = parse_calls(read_run(run))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", "") or "it gives no address"
            text = f"it was started by `onecopy run`, whose calls cannot be read: {reason}"
            return [memory.Cause("run", text, 0)]
        found = RunReport.of(_calls_of(pid, reported))
    except (ProcessLookupError, PermissionError):
        return []
    causes = [memory.Cause("run", f"shared by `onecopy run`: {one}", one.bytes) for one in found.shared]
    causes += [memory.Cause("run", f"not shared by `onecopy run`: {one}", one.bytes) for one in found.copied]
    return causes or [memory.Cause("run", "it was started by `onecopy run`, and has loaded nothing that it shares", 0)]


def _calls_of(pid: int, calls: list[Call]) -> Iterator[Call]:
    """Yield the calls of a process, and those of its ancestors with files that it maps, as if they were its own."""
    ancestors = set[int]()
    mapped = {region.path.removeprefix(f"/memfd:{MEMORY_NAME}") for region in proc.maps(pid)}
    parent = proc.stat(pid).ppid
    while parent and len(ancestors) < _MAX_DEPTH:
        ancestors.add(parent)
        try:
            parent = proc.stat(parent).ppid
        except ProcessLookupError:
            break
    for call in calls:
        if call.pid == pid or (call.pid in ancestors and call.shared and call.path in mapped):
            yield replace(call, pid=pid)


LARGE = 16 << 20
"""Bytes; smaller files that are read are not reported."""
_MOST = 1 << 62
"""Bytes; more is nothing that a process of a run has measured."""
_MAX_UNENDED = 1 << 20
"""Bytes without the end of a line that are kept to be read again."""
_WRITABLE = os.O_WRONLY | os.O_RDWR
_HINTS = {
    ".faiss": "faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC) maps it",
    ".usearch": "usearch.index.Index.restore(path, view=True) maps it",
    ".parquet": "onecopy.share_object or @onecopy.cached hold what was read once per machine",
    ".feather": "pyarrow.memory_map maps it",
    ".arrow": "pyarrow.memory_map maps it",
    ".pkl": "onecopy.share_object holds the object once per machine",
    ".pickle": "onecopy.share_object holds the object once per machine",
    ".npz": "`onecopy convert` writes it to be mapped",
}
_OTHERWISE = "read by a function that onecopy does not replace; docs/howto/run-unchanged.md lists them"


class Sampler:
    """Samples the processes below one, and those that report to its file."""

    def __init__(self, run_file: int, root: int) -> None:
        self._run_file, self._read = run_file, 0
        self._root = root
        """The process whose descendants are sampled for files that they read."""
        self.paths: dict[str, str] = {}
        """From the path of a mapping in /proc/PID/maps to the path of the file that it has the contents of."""
        self.private: dict[int, dict[str, int]] = {}
        """By process and path: private bytes at most. All processes that share something."""
        self._reading: dict[tuple[int, int], tuple[str, int, set[int]]] = {}
        """By device and inode: path, size, and the processes that had the file open to read."""
        self.calls: list[Call] = []
        """Calls of functions that are replaced."""

    def sample(self) -> None:
        """Sample all processes; raises nothing, whatever they have written. One thread at a time may call this."""
        self._read_calls()
        for pid in list(self.private):
            with suppress(Exception):
                self._keep(pid, private_bytes(pid, self.paths))
        waiting = [self._root]
        while waiting:
            pid = waiting.pop()
            with suppress(Exception):
                waiting += proc.children_of(pid)
                self._open_files(pid)

    def report(self, *, living: bool) -> RunReport:
        """Return what all processes, or those that are alive, have reported, and what was sampled."""
        calls = [call for call in self.calls if not living or os.path.exists(f"/proc/{call.pid}")]  # noqa: PTH110 - text
        loaded = {call.path for call in self.calls}
        read = [
            Group("", path, _HINTS.get(Path(path).suffix.lower(), _OTHERWISE), size, tuple(sorted(pids)))
            for path, size, pids in self._reading.values()
            if path not in loaded
        ]
        report = RunReport.of(calls, self.private, tuple(sorted(read, key=lambda file: (-file.bytes, file.path))))
        copies = [mapped for mapped, path in self.paths.items() if mapped != path]
        stored = tuple(sorted(mapped for mapped in copies if not mapped.startswith("/memfd:")))
        return replace(report, stored=stored, in_memory=len(stored) < len(copies))

    def _read_calls(self) -> None:
        data = os.pread(self._run_file, max(MAX_LOG_BYTES - self._read, 0), self._read)
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) > _MAX_UNENDED else 0)
        self._read += end
        for fields in parse_lines(data[:end]):
            with suppress(Exception):  # any: a process may write what it likes
                if "mapped" in fields:
                    self.paths[str(fields["mapped"])] = str(fields["path"])
                elif "private" in fields:  # the process itself, at its end
                    self._keep(int(fields["pid"]), {str(path): int(n) for path, n in fields["private"].items()})
                elif (call := call_of(fields)) is not None:
                    self.calls.append(call)
                    if call.shared:
                        self.private.setdefault(call.pid, {})

    def _keep(self, pid: int, found: dict[str, int]) -> None:
        known = self.private.setdefault(pid, {})
        known.update({path: min(max(nbytes, known.get(path, 0)), _MOST) for path, nbytes in found.items()})

    def _open_files(self, pid: int) -> None:
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - text
            with suppress(OSError, ValueError):
                place = f"/proc/{pid}/fd/{name}"
                facts = os.stat(place)  # noqa: PTH116 - text
                key = facts.st_dev, facts.st_ino
                if not stat.S_ISREG(facts.st_mode) or facts.st_size < LARGE or not facts.st_nlink:
                    continue
                if key not in self._reading or pid not in self._reading[key][2]:
                    fields = dict(
                        line.split(":\t") for line in Path(f"/proc/{pid}/fdinfo/{name}").read_text().splitlines()[:2]
                    )
                    if int(fields["pos"]) and not int(fields["flags"], 8) & _WRITABLE:
                        path = os.readlink(place)  # noqa: PTH115 - text
                        self._reading.setdefault(key, (path, facts.st_size, set()))[2].add(pid)
