"""What the processes of `onecopy run` hold privately of what they share, and which large files they read themselves.

Sampled while they live: a process that is killed reports nothing.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from onecopy.runs import call_log

LARGE = 16 << 20
"""Bytes; smaller files that are read are not reported."""
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


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A large file that processes read themselves, so that each may hold its contents."""

    path: str
    bytes: int
    """Size of the file."""
    pids: tuple[int, ...]
    """The processes that were seen to read it."""
    advice: str
    """What would help."""


def private_bytes(pid: int, paths: dict[str, str]) -> dict[str, int]:
    """Return the private bytes of a process in mappings of files, by `paths`: from the path in its maps to the file's.

    Raises OSError if the process has ended, or belongs to another user.
    """
    found: dict[str, int] = {}
    path = ""
    for line in Path(f"/proc/{pid}/smaps").read_text(errors="replace").splitlines():
        words = line.split(maxsplit=5)
        if "-" in words[0]:
            path = paths.get(words[5], "") if len(words) == 6 else ""
        elif path and words[0] == "Anonymous:":
            found[path] = found.get(path, 0) + (int(words[1]) << 10)
    return found


class Sampler:
    """Samples the processes below one, and those that report to its file."""

    def __init__(self, run_file: int) -> None:
        self._run_file, self._read, self._rest = run_file, 0, b""
        self._lock = threading.Lock()
        self.root = 0
        """The process whose descendants are sampled for files that they read; 0: not started yet."""
        self.paths: dict[str, str] = {}
        """From the path of a mapping in /proc/PID/maps to the path of the file that it has the contents of."""
        self.private: dict[int, dict[str, int]] = {}
        """By process and path: private bytes at most. All processes that share something."""
        self._reading: dict[tuple[int, int], tuple[str, int, set[int]]] = {}
        """By device and inode: path, size, and the processes that had the file open to read."""
        self._known: set[str] = set()
        """Paths of files that were loaded by functions that are replaced."""

    def sample(self) -> None:
        """Sample all processes; raises nothing."""
        with self._lock:
            self._sample()

    def _sample(self) -> None:
        self._read_calls()
        for pid in list(self.private):
            with suppress(OSError, ValueError):
                self._keep(pid, private_bytes(pid, self.paths))
        waiting = [self.root] if self.root else []
        while waiting:
            pid = waiting.pop()
            with suppress(OSError, ValueError):
                waiting += _children_of(pid)
                self._open_files(pid)

    @property
    def read_files(self) -> tuple[ReadFile, ...]:
        """The large files that were read, and not loaded by a function that is replaced; the largest first."""
        files = [
            ReadFile(path, size, tuple(sorted(pids)), _HINTS.get(Path(path).suffix.lower(), _OTHERWISE))
            for path, size, pids in self._reading.values()
            if path not in self._known
        ]
        return tuple(sorted(files, key=lambda file: (-file.bytes, file.path)))

    def _read_calls(self) -> None:
        data = os.pread(self._run_file, max(call_log.LARGEST_RUN - self._read, 0), self._read)
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                fields = json.loads(line)
                if "mapped" in fields:
                    self.paths[str(fields["mapped"])] = str(fields["path"])
                elif "private" in fields:  # the process itself, at its end
                    self._keep(int(fields["pid"]), {str(path): int(n) for path, n in fields["private"].items()})
                elif "function" in fields:
                    self._known.add(str(fields["path"]))
                    if fields["shared"]:
                        self.private.setdefault(int(fields["pid"]), {})

    def _keep(self, pid: int, found: dict[str, int]) -> None:
        known = self.private.setdefault(pid, {})
        known.update({path: max(nbytes, known.get(path, 0)) for path, nbytes in found.items()})

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


def _children_of(pid: int) -> list[int]:
    threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - text
    return [int(each) for thread in threads for each in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
