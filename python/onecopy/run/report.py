"""The report of `onecopy run`: files that processes share, and calls whose data was not shared.

The private memory of the processes, and the large files that they read themselves, are sampled during the run.
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
from onecopy.base.run_constants import MEMORY_NAME, NOTHING_LOADED, RUN
from onecopy.base.text import amount, counted, escape, size
from onecopy.memory import proc
from onecopy.memory.remedies import HINTS
from onecopy.run.call_log import MAX_LOG_BYTES, Call, call_of, parse_calls, parse_lines, private_bytes, read_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onecopy.memory.explaining import Cause

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Group:
    """Calls of the same function with the same file and result, in one or more processes."""

    function: str
    """The documented name of the function, such as "torch.load", or "" for a file that processes read themselves."""
    path: str
    """Path of the file, or "" if it is unknown."""
    reason: str
    """Why the bytes are not shared, or how they can be shared, or "" if they are shared."""
    bytes: int
    """Maximum number of bytes that any process shares or has copied, or the size of the file."""
    pids: tuple[int, ...]
    """The processes, in ascending order."""
    private: int | None = None
    """Number of shared bytes that became private because processes wrote to them, or None if no process was sampled."""
    saved: int = 0
    """Number of additional bytes that a copy in each sampled process would use; negative if sharing uses more."""
    place: str = ""
    """Where the shared bytes are: "file" (the file itself), "memory" or "store" (a snapshot); empty if unknown."""
    charged: str = ""
    """The control group to which a snapshot in memory is charged; empty if unknown."""

    @classmethod
    def of(cls, calls: list[Call], private: Mapping[int, Mapping[str, int]]) -> Group:
        """Group calls. `private` has the same form as in `RunReport.of`."""
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

    @property
    def text(self) -> str:
        """The file, the functions, and where the bytes are or why they are not shared."""
        name = escape(Path(self.path).name)
        text = ": ".join(part for part in (name, self.function, escape(self.reason)) if part)
        text += f"; {_PLACES[self.place]}" if self.place else ""
        text += f", charged to {escape(self.charged)}" if self.charged else ""
        return f"{text}; {size(self.private)} of it is private, because it was written to" if self.private else text

    def __str__(self) -> str:
        return f"{amount(len(self.pids), self.bytes)}   {self.text}"


@dataclass(frozen=True, slots=True)
class RunReport:
    """The report. `str` returns it as text."""

    shared: tuple[Group, ...]
    """One group per shared file, the largest first."""
    copied: tuple[Group, ...]
    """One group per function, file and reason, sorted by the bytes in all processes, largest first."""
    read: tuple[Group, ...] = ()
    """Large files that processes read themselves."""
    stored: tuple[str, ...] = ()
    """Paths of shared copies in the store, which are kept after the run."""
    in_memory: bool = False
    """Whether there are shared copies in memory."""
    alone: str = ""
    """Why other runs of this user do not share the copies in memory; empty if they do."""

    @classmethod
    def of(
        cls,
        calls: Iterable[Call],
        private: Mapping[int, Mapping[str, int]] | None = None,
        read: tuple[Group, ...] = (),
    ) -> RunReport:
        """Group the calls of all processes. `private` contains the private bytes of each sampled process by path."""
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

    def with_places(self, mapped: Mapping[str, str], charged: Mapping[str, str]) -> RunReport:
        """Return the report with the place of each shared file.

        `mapped` maps paths of mappings in /proc/PID/maps to files, and `charged` files to their control groups.
        """
        places = {
            path: "file" if name == path else "memory" if name.startswith("/memfd:") else "store"
            for name, path in mapped.items()
        }
        shared = tuple(
            replace(one, place=places.get(one.path, ""), charged=charged.get(one.path, "")) for one in self.shared
        )
        return replace(self, shared=shared)

    @property
    def saved(self) -> int:
        """Number of additional bytes that a copy in each process would have used, according to the last sample."""
        return sum(one.saved for one in self.shared)

    def json(self) -> str:
        """Return the report as JSON."""
        return json.dumps({**asdict(self), "saved": self.saved}, indent=1) + "\n"

    def __str__(self) -> str:
        if not self.shared and not self.copied and not self.read:
            return NOTHING_LOADED
        pids = {pid for one in self.shared for pid in one.pids}
        held = sum(one.bytes for one in self.shared)
        first = f"{counted(len(pids), 'process', 'processes')} {'holds' if len(pids) == 1 else 'hold'} {size(held)} of "
        first += counted(len(self.shared), "file")
        if self.saved > 0:
            first += f" in one copy: {size(held + self.saved)} -> {size(held)}"
        lines = _listed(first, self.shared)
        lines += _listed("not shared:", self.copied)
        lines += _listed("read by the processes themselves:", self.read)
        lines += _listed("kept in the store after this run:", [escape(path) for path in self.stored])
        if self.in_memory and self.alone:
            lines += [f"not shared with other runs of this user: {escape(self.alone)}"]
        elif self.in_memory and not self.stored and len(pids) == 1:
            lines += [_ONE_PROCESS]
        return "\n".join(lines)


def _listed(title: str, entries: Sequence[object]) -> list[str]:
    """Return the lines of a list with a title, or no lines if the list is empty."""
    lines = [title, *(f"  {entry}" for entry in entries[:_SHOWN])] if entries else []
    return [*lines, f"  and {len(entries) - _SHOWN} more"] if len(entries) > _SHOWN else lines


_PLACES = {"file": "the file itself", "memory": "a snapshot in memory", "store": "a snapshot in the store"}
_ONE_PROCESS = "one process of this run holds the shared files; other runs of this user map the same copy"
_MAX_DEPTH = 64
"""Maximum number of ancestors whose calls are included."""


def causes_of_run(pids: Sequence[int]) -> list[Cause]:
    """Describe which files processes under `onecopy run` share, and which they do not. Skip other processes."""
    calls, places, charged = list[Call](), dict[str, str](), dict[str, str]()
    for pid in pids:
        try:
            data = _log_of(pid)
            if data is None:
                continue
            calls += _calls_of(pid, parse_calls(data))
        except (ProcessLookupError, PermissionError):
            continue
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", "") or "its address is invalid"
            return [memory.Cause("run", f"started by `onecopy run`, whose call log cannot be read: {reason}", 0)]
        lines = list(parse_lines(data))
        charged |= {str(one.get("path")): str(one["charged"]) for one in lines if "charged" in one}
        places |= {str(one["mapped"]): str(one.get("path")) for one in lines if "mapped" in one}
    found = RunReport.of(calls).with_places(places, charged)
    causes = [memory.Cause("run", f"shared by `onecopy run`: {one.text}", one.bytes) for one in found.shared]
    return causes + [
        memory.Cause("run", f"not shared by `onecopy run`: {one.text}", one.bytes * len(one.pids), times=len(one.pids))
        for one in found.copied
    ]


def _log_of(pid: int) -> bytes | None:
    """Return the call log of the run that started a process, or None if no run did."""
    environment = proc.process_text(pid, "environ").split("\0")
    run = next((one.removeprefix(f"{RUN}=") for one in environment if one.startswith(f"{RUN}=")), None)
    return None if run is None else read_run(run)


def _calls_of(pid: int, calls: list[Call]) -> Iterator[Call]:
    """Yield a process's calls and, with its PID, the calls of its ancestors whose mappings it has inherited."""
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
"""Minimum size in bytes of files that are reported as read by a process."""
_MAX_PRIVATE = 1 << 62
"""Maximum number of bytes that a process can plausibly report."""
_MAX_UNENDED = 1 << 20
"""Maximum bytes of an incomplete line, which is read again with the next sample."""
_WRITABLE = os.O_WRONLY | os.O_RDWR
_OTHERWISE = "read in small parts, or by a function that onecopy does not replace (docs/howto/run-unchanged.md)"


class Sampler:
    """Samples a process's descendants, and the processes that write to a call log."""

    def __init__(self, run_file: int, root: int) -> None:
        self._run_file, self._read = run_file, 0
        self._root = root
        self.paths: dict[str, str] = {}
        """Paths of mappings in /proc/PID/maps, and the paths of the files that they contain."""
        self._alone = ""
        """Why other runs do not share this run's snapshots; empty if they do."""
        self._charged: dict[str, str] = {}
        """Control groups to which snapshots in memory are charged, by file path."""
        self.private: dict[int, dict[str, int]] = {}
        """Maximum private bytes by path, for each process that shares files."""
        self._reading: dict[tuple[int, int], tuple[str, int, set[int]]] = {}
        """By device and inode: the path and size of each file, and the processes that have read it."""
        self.calls: list[Call] = []

    def sample(self) -> None:
        """Sample all processes, even if they have reported no calls. Call this method from one thread only."""
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
        """Return the report on all processes, or only on the live processes."""
        calls = [call for call in self.calls if not living or os.path.exists(f"/proc/{call.pid}")]  # noqa: PTH110 - text
        loaded = {call.path for call in self.calls}
        read = [
            Group("", path, HINTS.get(Path(path).suffix.lower(), _OTHERWISE), size, tuple(sorted(pids)))
            for path, size, pids in self._reading.values()
            if path not in loaded
        ]
        report = RunReport.of(calls, self.private, tuple(sorted(read, key=lambda file: (-file.bytes, file.path))))
        copies = [mapped for mapped, path in self.paths.items() if mapped != path]
        stored = tuple(sorted(mapped for mapped in copies if not mapped.startswith("/memfd:")))
        report = report.with_places(self.paths, self._charged)
        return replace(report, stored=stored, in_memory=len(stored) < len(copies), alone=self._alone)

    def _read_calls(self) -> None:
        data = os.pread(self._run_file, max(MAX_LOG_BYTES - self._read, 0), self._read)
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) > _MAX_UNENDED else 0)
        self._read += end
        for fields in parse_lines(data[:end]):
            with suppress(Exception):  # a process may write anything
                if "alone" in fields:
                    self._alone = str(fields["alone"])
                elif "charged" in fields:
                    self._charged[str(fields["path"])] = str(fields["charged"])
                elif "mapped" in fields:
                    self.paths[str(fields["mapped"])] = str(fields["path"])
                elif "private" in fields:  # reported by the process as it ended
                    self._keep(int(fields["pid"]), {str(path): int(n) for path, n in fields["private"].items()})
                elif (call := call_of(fields)) is not None:
                    self.calls.append(call)
                    if call.shared:
                        self.private.setdefault(call.pid, {})

    def _keep(self, pid: int, found: dict[str, int]) -> None:
        known = self.private.setdefault(pid, {})
        known.update({path: min(max(nbytes, known.get(path, 0)), _MAX_PRIVATE) for path, nbytes in found.items()})

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
