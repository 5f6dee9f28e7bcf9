"""Find the files that processes may have loaded, such as files that are open, mapped, or named in a command line."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from onecopy.memory import proc
from onecopy.memory.proc import command_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onecopy.memory.proc import MappedRegion

MIN_FILE = 1 << 20
"""Smallest size of a file that is compared."""
_MAX_ENTRIES, _MAX_DEPTH = 20_000, 8
"""Maximum number of entries to examine in a folder, and of levels below it."""
_CACHES = ("HF_HOME", "HF_HUB_CACHE", "SENTENCE_TRANSFORMERS_HOME", "TORCH_HOME", "TRANSFORMERS_CACHE")
_WORDS = ("MODEL", "DATA", "CHECKPOINT", "WEIGHTS", "INDEX")
"""Parts of the names of environment variables whose values may be files or folders to compare."""
_HOMES = (".cache/huggingface/hub", ".cache/torch/hub")
_SKIPPED = ("site-packages", "dist-packages", "node_modules", "__pycache__", ".git", ".venv", "venv")
_NEVER = ("/", "/usr", "/proc", "/sys", "/dev", "/run", "/lib", "/etc", "/tmp", "/var", "/home", "/root")  # noqa: S108
"""Folders that are not searched, even if a process works in them, because they are too general."""


class Candidate(NamedTuple):
    """A file to compare with process memory."""

    path: str
    """The path in the process."""
    place: str
    """A path through which this process can open the file, even if it is in another mount namespace."""
    size: int


def candidates(
    processes: Mapping[int, Sequence[MappedRegion]], look_in: Sequence[str], deadline: float, *, others: bool = True
) -> Iterator[Candidate]:
    """Yield files of at least `MIN_FILE` bytes, each once, beginning with the most likely ones.

    These are the files in `look_in` and, with `others`, files that the processes have open, mapped or in their working
    directories, or name in their command lines and environments. The search ends when `time.monotonic` is `deadline`.
    """
    seen = set[tuple[int, int]]()
    named = ((os.path.abspath(path), path) for path in look_in)  # noqa: PTH100 - text
    for path, place in chain(named, _paths(processes) if others else ()):
        for file in _files(path, place, seen):
            if time.monotonic() > deadline:
                return
            with suppress(OSError, ValueError):
                facts = os.stat(file[1])  # noqa: PTH116 - text
                if stat.S_ISREG(facts.st_mode) and facts.st_size >= MIN_FILE and _is_new(facts, seen):
                    yield Candidate(*file, facts.st_size)


def _is_new(facts: os.stat_result, seen: set[tuple[int, int]]) -> bool:
    key = facts.st_dev, facts.st_ino
    if key in seen:
        return False
    seen.add(key)
    return True


def _paths(known: Mapping[int, Sequence[MappedRegion]]) -> Iterator[tuple[str, str]]:
    for pid, regions in known.items():
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - text
                with suppress(OSError):
                    yield os.readlink(f"/proc/{pid}/fd/{name}"), f"/proc/{pid}/fd/{name}"  # noqa: PTH115 - text
        code = {one.path for one in regions if "x" in one.perms}
        for path in dict.fromkeys(one.path for one in regions if one.inode and one.path not in code):
            yield path, _inside(pid, path)
    for source in (_of_command, _of_environment, _of_folder):
        for pid in known:
            yield from ((path, _inside(pid, path)) for path in source(pid))


def _inside(pid: int, path: str) -> str:
    return f"/proc/{pid}/root{path}"


def _folder(pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - text
    return "/"


def _of_command(pid: int) -> list[str]:
    words = [word.rpartition("=")[2] for word in command_of(pid)[1:]]
    return [os.path.join(_folder(pid), word) for word in words if word]  # noqa: PTH118


def _of_environment(pid: int) -> list[str]:
    with suppress(OSError):
        pairs = [one.partition("=") for one in proc.process_text(pid, "environ").split("\0")]
        values = {name: value for name, _, value in pairs if value.startswith("/")}
        likely = [value for name, value in values.items() if any(word in name.upper() for word in _WORDS)]
        homes = [f"{values['HOME']}/{folder}" for folder in _HOMES] if "HOME" in values else []
        return likely + [values[name] for name in _CACHES if name in values] + homes
    return []


def _of_folder(pid: int) -> list[str]:
    return [_folder(pid)]


def _files(path: str, place: str, seen: set[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """Yield a file, or the files in a folder, each as a path in the process and a path to open."""
    if not os.path.isdir(place):  # noqa: PTH112 - text
        yield path, place
        return
    with suppress(OSError):
        if os.path.normpath(path) in _NEVER or not _is_new(os.stat(place), seen):  # noqa: PTH116 - text
            return
    left = _MAX_ENTRIES
    for folder, folders, files in os.walk(place):
        below = os.path.relpath(folder, place)
        shown = path if below == "." else os.path.join(path, below)  # noqa: PTH118 - text
        if below.count("/") >= _MAX_DEPTH:
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        left -= len(files) + len(folders)
        yield from ((os.path.join(shown, name), os.path.join(folder, name)) for name in sorted(files))  # noqa: PTH118
        if left < 0:
            return
