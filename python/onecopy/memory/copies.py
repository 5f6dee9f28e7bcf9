"""Processes of one program that may hold copies of the same data, as far as ``/proc`` shows it.

``/proc`` does not show what anonymous memory contains. It does show that several processes run the same program, how
much memory each has for itself, and which frameworks and files of data it has loaded or open.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onecopy.memory import proc
from onecopy.text import escape, size

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Copies", "copies_of", "shared_anonymous", "shared_of"]

FRAMEWORKS = {
    "libtorch_cpu.so": "torch",
    "onnxruntime_pybind11_state": "onnxruntime",
    "_safetensors_rust": "safetensors",
    "_multiarray_umath": "numpy",
}
"""By a part of the name of a shared object that is mapped: the frameworks whose calls `onecopy run` shares."""
DATA = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npy", ".npz", ".onnx", ".joblib", ".gguf")
"""Suffixes of files that such calls load."""
MIN_BYTES = 256 << 20
"""Anonymous memory of a process below which it is not counted: an interpreter with torch takes 150 MB."""
MAX_PROCESSES = 64
"""Processes whose page tables are walked."""
_SHOWN = 3
_RUN = b"ONECOPY_RUN="
_WITH_VALUE = ("-W", "-X")


class Copies(NamedTuple):
    """Processes of one program that have much memory for themselves."""

    private: tuple[int, ...]
    """Anonymous memory of each that no other process shares, in bytes; ascending."""
    frameworks: tuple[str, ...]
    """Frameworks that all of them have loaded."""
    files: tuple[tuple[str, int], ...]
    """Files of data that are open or mapped, and in how many of the processes; the most processes first."""

    @property
    def text(self) -> str:
        """What is known, and what could be tried, as a sentence."""
        least, most = size(self.private[0]), size(self.private[-1])
        each = f"{least} each" if least == most else f"{least} to {most} each"
        files = [f"{escape(Path(path).name)} open or mapped in {count} of them" for path, count in self.files[:_SHOWN]]
        return (
            f"{len(self.private)} processes run this program, have {' and '.join(self.frameworks)} loaded, and hold "
            f"{each} of anonymous memory of their own{''.join(f', with {one}' for one in files)}. /proc does not show "
            "what this memory contains: if they loaded the same files, `onecopy run -- COMMAND` could hold these once"
        )


def copies_of(pid: int, regions: Sequence[proc.MappedRegion]) -> Copies | None:
    """Return what the processes of the program of `pid` hold each, if that may be copies; None if it may not.

    Processes that run the same program have the same executable, script and parent; or they are children of `pid`.
    None for a program that uses onecopy, and for processes of other users. It walks page tables.
    """
    if _uses_onecopy(pid, regions):
        return None
    found = [(_private(each), each, files) for each, files in _of_program(pid, regions)]
    found = [one for one in found if one[0] >= MIN_BYTES]
    loaded = [_frameworks(each) for _, each, _ in found]
    common = tuple(name for name in FRAMEWORKS.values() if all(name in names for names in loaded))
    if len(found) < 2 or not common:
        return None
    files = Counter(path for _, _, paths in found for path in paths)
    return Copies(tuple(sorted(private for private, _, _ in found)), common, tuple(files.most_common()))


def shared_anonymous(regions: Sequence[proc.MappedRegion]) -> int:
    """Return the bytes of anonymous memory that other processes map as well."""
    return sum(shared_of(one.memory) for one in regions if one.memory.anonymous)


def shared_of(memory: proc.Rollup) -> int:
    """Return the bytes of anonymous memory of a region that other processes map as well."""
    return min(memory.shared_clean + memory.shared_dirty, memory.anonymous)


def _private(regions: Sequence[proc.MappedRegion]) -> int:
    return sum(one.memory.anonymous for one in regions) - shared_anonymous(regions)


def _of_program(pid: int, regions: Sequence[proc.MappedRegion]) -> list[tuple[Sequence[proc.MappedRegion], set[str]]]:
    """Return the regions, and the paths of files of data, of each process that runs the program of `pid`."""
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
    """Return the executable and the script of a process; None if they cannot be read."""
    try:
        executable = os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - text
        words = iter(proc.process_text(pid, "cmdline").rstrip("\0").split("\0"))
    except OSError:
        return None
    first = next(words, "")
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif word == "-c":
            return executable, next(words, "").partition("(")[0]  # multiprocessing: the arguments of the call differ
        elif word == "-m" or not word.startswith("-"):
            return executable, next(words, "") if word == "-m" else word
    return executable, first


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
        return any(one.startswith(_RUN) for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    return False
