"""Choose the cheapest remedy for memory that processes hold more than once."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.base.run_constants import RUN
from onecopy.base.text import size
from onecopy.memory import proc
from onecopy.memory.proc import command_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onecopy.memory.copies import Copies, FileCopies
    from onecopy.memory.proc import MappedRegion

FRAMEWORKS = {
    "libtorch_cpu.so": "torch",
    "onnxruntime_pybind11_state": "onnxruntime",
    "_safetensors_rust": "safetensors",
    "_multiarray_umath": "numpy",
}
"""Frameworks that `onecopy run` supports, keyed by a part of the name of one of their shared objects."""
SHARED_BY_RUN = {
    ".bin": ("torch",),
    ".ckpt": ("torch",),
    ".joblib": ("numpy",),
    ".npy": ("numpy",),
    ".onnx": ("onnxruntime",),
    ".pt": ("torch",),
    ".pth": ("torch",),
    ".safetensors": ("safetensors", "torch", "numpy"),
}
"""Frameworks by file suffix: `onecopy run` can share a file with the suffix if one of these is loaded."""
_MIN_ALIKE, _SPREAD = 32 << 20, 1.25
"""Minimum private memory of processes that are compared by size, and the maximum ratio of sizes that are alike."""
RUN_BYTES, PER_PROCESS_BYTES = 14_000_000, 3_000_000
"""Memory of the `onecopy run` process, and of onecopy in each Python process under it."""
MAPPED_BY = {
    ".ckpt": "torch.load(path, mmap=True)",
    ".joblib": 'joblib.load(path, mmap_mode="r")',
    ".npy": 'numpy.load(path, mmap_mode="r")',
    ".pt": "torch.load(path, mmap=True)",
    ".pth": "torch.load(path, mmap=True)",
}
"""Calls that map files with these suffixes, so that processes share them."""
HINTS = {
    ".arrow": "pyarrow.memory_map maps it",
    ".faiss": "faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC) maps it",
    ".feather": "pyarrow.memory_map maps it",
    ".gguf": "oc.open(path) maps it",
    ".npz": "`onecopy convert` converts it to a file that can be mapped",
    ".parquet": "onecopy.share_object or @onecopy.cached keeps one copy of the data per machine",
    ".pickle": "onecopy.share_object keeps one copy of the object per machine",
    ".pkl": "onecopy.share_object keeps one copy of the object per machine",
    ".usearch": "usearch.index.Index.restore(path, view=True) maps it",
}
"""What to do with files that `onecopy run` may not share, by their suffix."""
_BUILT = (
    "Equal bytes that are in no file come from modules that each worker imports (import them before the fork), from "
    "weights in another dtype (`onecopy run` shares those of transformers), or from data that each process builds "
    "(@oc.cached keeps a result once per machine)."
)
_ALIKE = (
    "The processes use similar amounts of memory. Equal Python objects have different bytes, because these contain "
    "addresses: if the processes build the same lists, dicts or frames, oc.share(data) or @oc.cached keeps one copy."
)
_FORKED = "oc.share(data) keeps one copy of lists and dicts, whose pages are not changed by reference counts."
_WRITTEN = "Find the code that writes to mapped data in place; it makes the pages private."
_PRELOAD = (
    "gunicorn --preload loads data before the workers fork. Reference counting still copies pages of Python objects; "
    "connections and threads that exist before the fork do not work after it."
)
_UNDER_RUN = "The processes run under `onecopy run`, which did not share these files: its report states why."


def remedy_of(
    processes: Mapping[int, Sequence[MappedRegion]], copies: Copies, total: int, bad: Mapping[str, int]
) -> tuple[str, int | None]:
    """Return a remedy as text (or ""), and the memory of all processes after it (or None if unknown).

    `total` is the memory of all processes, and `bad` contains the bytes of problems by their codes.
    """
    if "copies" in bad and not ("forked" in bad and not copies.files):
        return _for_copies(processes, copies, total)
    if "forked" in bad:
        return _FORKED, max(total - bad["forked"], 0)
    if not bad and _are_alike(processes):
        return _ALIKE, None
    swapped = f"{size(bad.get('swap', 0))} are swapped out: give the processes more memory, or start fewer."
    return next((text for code, text in (("written", _WRITTEN), ("swap", swapped)) if code in bad), ""), None


def _for_copies(processes: Mapping[int, Sequence[MappedRegion]], copies: Copies, total: int) -> tuple[str, int | None]:
    pids = list(processes)
    loaded = {name for regions in processes.values() for name in frameworks(regions)}
    wasteful = [file for file in copies.files if file.extra]
    shared = [file for file in wasteful if _is_shared_by_run(file, loaded)]
    extra = sum(file.extra for file in shared)
    if "onnxruntime" in loaded:  # its copies of weights are in another order than the file
        extra += copies.in_no_file
    if not wasteful and not extra:
        preload = any("gunicorn" in " ".join(command_of(pid)) for pid in pids)
        return (_PRELOAD if preload else _BUILT), None
    if extra:
        if any(_is_under_run(pid) for pid in pids):
            return _UNDER_RUN, None
        text = f"Start {'it' if len(pids) == 1 else 'them'} with\n  onecopy run -- {command_text(pids, 60)}"
        if shared and (call := MAPPED_BY.get(Path(shared[0].path).suffix.lower())):
            text += f"\nor change the code: {call}"
        own = RUN_BYTES + PER_PROCESS_BYTES * len(pids)
        return text, max(total - extra + own, 0)
    file = wasteful[0]
    hint = HINTS.get(Path(file.path).suffix.lower(), "map the file instead of reading it, for example with oc.open")
    return f"{Path(file.path).name}: {hint}.", max(total - file.extra, 0)


def _are_alike(processes: Mapping[int, Sequence[MappedRegion]]) -> bool:
    """Return whether there are several Python processes with about the same amount of private memory."""
    large = [
        sum(one.memory.anonymous - one.memory.shared_anonymous for one in regions)
        for regions in processes.values()
        if any("python" in Path(one.path).name for one in regions if "x" in one.perms)
    ]
    large = [nbytes for nbytes in large if nbytes >= _MIN_ALIKE]
    return len(large) > 1 and max(large) <= _SPREAD * min(large)


def frameworks(regions: Sequence[MappedRegion]) -> set[str]:
    """Return the supported frameworks that a process has loaded."""
    names = {Path(region.path).name for region in regions if region.inode}
    return {name for part, name in FRAMEWORKS.items() if any(part in each for each in names)}


def command_text(pids: Sequence[int], width: int) -> str:
    """Return the command that started processes, shortened to `width` characters.

    For a parent and its children, this is the parent's command. For workers that multiprocessing has started, it is the
    command of the process that started them.
    """
    roots = [pid for pid in pids if _parent(pid) not in pids] or list(pids)
    commands = Counter(shlex.join(_typed(_started_by(pid))) for pid in roots)
    text = commands.most_common(1)[0][0]
    return text if len(text) <= width else f"{text[: width - 4]} ..."


def _started_by(pid: int) -> list[str]:
    words = command_of(pid)
    while "multiprocessing" in " ".join(words) and (parent := _parent(pid)) > 1:
        pid, words = parent, command_of(parent)
    return words or [proc.name_of(pid) or str(pid)]


def _typed(words: list[str]) -> list[str]:
    """Return a command as a user would type it: without folders, and without an installed script's interpreter."""
    first = os.path.basename(words[0])  # noqa: PTH119 - text
    if first.startswith("python") and len(words) > 1 and not words[1].startswith("-"):
        script = os.path.basename(words[1])  # noqa: PTH119
        if any(os.access(os.path.join(folder, script), os.X_OK) for folder in os.get_exec_path()):  # noqa: PTH118
            return [script, *words[2:]]
    return [first, *words[1:]]


def _parent(pid: int) -> int:
    with suppress(OSError):
        return proc.stat(pid).ppid
    return 0


def _is_shared_by_run(file: FileCopies, loaded: set[str]) -> bool:
    return any(name in loaded for name in SHARED_BY_RUN.get(Path(file.path).suffix.lower(), ()))


def _is_under_run(pid: int) -> bool:
    with suppress(OSError):
        return any(one.startswith(f"{RUN}=") for one in proc.process_text(pid, "environ").split("\0"))
    return False
