"""What a process of `onecopy run` shares and what not, for `onecopy explain PID`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.memory import proc
from onecopy.memory.causes import Cause
from onecopy.runs import RUN
from onecopy.runs.call_log import calls_of_run
from onecopy.runs.report import Report
from onecopy.snapshots import MEMORY_NAME
from onecopy.text import escape, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy.runs.call_log import Call

__all__ = ["causes_of_run"]

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
        return [] if run is None else list(_causes(pid, run))
    except (ProcessLookupError, PermissionError):
        return []


def _causes(pid: int, run: str) -> Iterator[Cause]:
    try:
        reported = calls_of_run(run)
    except OSError as error:
        yield Cause("run", f"it was started by `onecopy run`, whose calls cannot be read: {error.strerror}", 0)
        return
    found = Report.of(_calls_of(pid, reported))
    for one in found.shared:
        name = escape(Path(one.path).name)
        text = f"{size(one.bytes)} of {name} are held once by the processes of `onecopy run`: {one.function}"
        yield Cause("run", text, one.bytes)
    for one in found.copied:
        what = f" of {escape(Path(one.path).name)}" if one.path else ""
        text = f"{size(one.bytes)}{what} were not shared by `onecopy run`: {one.function}: {escape(one.reason)}"
        yield Cause("run", text, one.bytes)
    if not found.shared and not found.copied:
        yield Cause("run", "it was started by `onecopy run`, and has loaded nothing that it shares", 0)


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
