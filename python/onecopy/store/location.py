"""Find the local file for a path, a URL, an artefact, or the name under which a process holds a file."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Literal, TypeAlias

import onecopy  # whose errors are imported when one is raised
from onecopy import files, store
from onecopy.base import lazy
from onecopy.base.text import SCHEMES, is_url, path_text

if TYPE_CHECKING:
    from onecopy import _core
    from onecopy.store import Artefact

Location: TypeAlias = "str | os.PathLike[str] | Artefact"
"""A path, a URL, an artefact from a store, or "hold:NAME" for a file that `onecopy hold` keeps in memory."""
Nodes: TypeAlias = Literal["ray", "torchrun"] | None
"""The nodes that fetch a URL together. `onecopy.remote.fetch` documents them."""

MODEL_FILES = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt")
"""Patterns for the files to fetch if a URL refers to a folder: the configuration, the tokenizer and the weights."""
_NAMES = ("model.safetensors", "model.safetensors.index.json", "model.onnx")
_PATTERNS = ("*.safetensors.index.json", "*.index.json", "*.safetensors", "*.onnx")
"""The file to open in a folder: the first of these names that exists, or else the only file that matches a pattern."""


def url_of(named: Location) -> str:
    """Return the URL that a caller passed, or "" for a path, an artefact, or the ``file:`` URL of a local file."""
    if not isinstance(named, str) or "://" not in named or not is_url(named):
        return ""
    return "" if named[:5].lower() == "file:" else named


def local_path(url: str) -> str:
    """Return the path in the ``file:`` URL of a file on this machine, or "" for another URL."""
    host, slash, below = url[7:].partition("/")
    if url[:7].lower() != "file://" or host not in ("", "localhost"):
        return ""
    from urllib.parse import unquote

    return unquote(slash + below)


def is_offline() -> bool:
    """Return whether ONECOPY_OFFLINE forbids requests. It accepts the same values as HF_HUB_OFFLINE."""
    return os.environ.get("ONECOPY_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def resolve(named: Location, *, nodes: Nodes = None) -> tuple[str, _core.FileHandle | None]:
    """Return the path of the local file. Also return the open file of an artefact or a held name, or else None.

    The file at a URL is fetched once per machine, together with the files that it names. `onecopy.remote.fetch`
    documents `nodes` and the errors. If the URL ends with "/", the `MODEL_FILES` in the folder are fetched. An
    artefact's open file is valid even if its path was removed or replaced.

    Raise FileNotFoundError if no process of this user holds the name, BlockingIOError if the holder has not read the
    file yet, PermissionError if this process may not use it, ValueError for a path with a NUL byte, a malformed name,
    or `nodes` without a URL, and ModuleNotFoundError if onecopy-remote, which fetches URLs, is not installed.
    """
    if isinstance(named, str) and "://" in named and is_url(named):
        path = local_path(named) or lazy.load("onecopy_remote").fetch(named, names=MODEL_FILES, nodes=nodes)
        return os.fspath(path), None
    if nodes is not None:
        raise ValueError("`nodes` requires a URL to fetch, not the path of a local file")
    if isinstance(named, str) and named.startswith("hold:"):
        return store.held(named[5:])
    path = path_text(named)
    if "://" in path and not os.path.exists(path):  # noqa: PTH110 - loads pathlib
        raise FileNotFoundError(
            errno.ENOENT, f"no such file, and not a URL beginning with one of {', '.join(sorted(SCHEMES))}", path
        )
    return path, getattr(named, "handle", None)


def file_of(named: Location, suffix: str = "") -> str:
    """Return the path of the local file that a caller passed. Folders are resolved with `in_folder`."""
    path = resolve(named)[0]
    return in_folder(path, suffix) if os.path.isdir(path) else path  # noqa: PTH112 - loads pathlib


def files_of(named: Location) -> list[str]:
    """Return the path from `file_of`, and the paths of the files that an index or a model names."""
    path = file_of(named)
    try:
        return [path, *files.paths_of(path, files.names_in(path))]
    except files.SetError:
        raise
    except onecopy.FormatError:  # a file of another kind with such a name
        return [path]


def in_folder(folder: str, suffix: str = "") -> str:
    """Return the file to open in a model's folder: its weights, the index of their shards, or an ONNX model.

    Names that do not end with `suffix` are ignored. If the choice is not clear, raise IsADirectoryError, whose message
    suggests a file.
    """
    names = sorted(name for name in os.listdir(folder) if name.endswith(suffix))  # noqa: PTH208 - loads pathlib
    for name in _NAMES:
        if name in names:
            return os.path.join(folder, name)  # noqa: PTH118
    import fnmatch

    for pattern in _PATTERNS:
        if len(found := fnmatch.filter(names, pattern)) == 1:
            return os.path.join(folder, found[0])  # noqa: PTH118
    inside = [name for pattern in _PATTERNS for name in fnmatch.filter(names, pattern)]
    advice = f": open a file in it, such as {os.path.join(folder, inside[0])}" if inside else ""  # noqa: PTH118
    raise IsADirectoryError(errno.EISDIR, f"{os.strerror(errno.EISDIR)}{advice}", folder)
