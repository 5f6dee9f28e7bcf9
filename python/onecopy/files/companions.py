"""The files that another file names: the shards of an index, and the external data of an ONNX model."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from typing import TYPE_CHECKING, Any, cast

from onecopy import _core
from onecopy.base.text import is_text, path_text
from onecopy.errors import FormatError, Kind
from onecopy.files.mapping import Mapping

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_INDEX = 100 << 20
"""Maximum size of an index in bytes, the same as for a safetensors header."""
_MAX_FILES, _MAX_DEPTH, _MAX_NAME = 10_000, 32, 255
"""Maximum number of files that a file may name, of components in a path, and of bytes in a component."""


class SetError(FormatError):
    """Several files cannot be opened as one: a file is too short, lacks an array, or is outside of the folder."""


def names_in(path: str | os.PathLike[str]) -> list[str]:
    """Return the paths that an index ("*.index*.json") or an ONNX model ("*.onnx") names, relative to its folder.

    Only the file's name is considered, because other JSON files may be large, and ONNX has no signature. For other
    names, the list is empty. Raise FormatError or SetError if the file is invalid.
    """
    name = path_text(path)
    if is_index(name):
        return _checked(name, names_of_index(path))
    if not name.endswith(".onnx"):
        return []
    tensors = cast("list[tuple[Any, ...]]", _core.parse_onnx(_core.open_mapping(name))["tensors"])
    return _checked(name, [location for *_, storage, _, _, location, _ in tensors if storage == "external"])


def _checked(path: str, names: Iterable[str]) -> list[str]:
    """Return distinct names of a folder's files, in their shortest form. Raise SetError if files cannot have them."""
    found: dict[str, None] = {}
    folders: set[str] = set()
    distinct = dict.fromkeys(names)
    if len(distinct) > _MAX_FILES:
        reason = f"it names {len(distinct)} files, more than the maximum of {_MAX_FILES}"
        raise SetError(reason, Kind.TOO_COSTLY, path=path)
    for name in distinct:
        parts = os.path.normpath(name).split("/")
        if name.endswith(("/", "/.", "/..")) or len(parts) > _MAX_DEPTH:
            reason = f"invalid file {name[:200]!r}: it is not the path of a file inside the folder"
            raise SetError(reason, Kind.OUT_OF_BOUNDS, path=path)
        if any(len(part.encode()) > _MAX_NAME or not part.isprintable() for part in parts):
            reason = f"invalid file {name[:200]!r}: its name is not printable, or longer than {_MAX_NAME} bytes"
            raise SetError(reason, path=path)
        found["/".join(parts)] = None
        folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
    if both := folders.intersection(found):
        reason = f"invalid file {min(both)!r}: another file's path uses it as a folder"
        raise SetError(reason, Kind.INCONSISTENT, path=path)
    return list(found)


def is_index(name: str) -> bool:
    """Return whether a path or URL ends in the file name of a shard index."""
    last = name.partition("?")[0].rpartition("/")[2]
    return last.endswith(".json") and ".index." in last


def names_of_index(path: str | os.PathLike[str]) -> list[str]:
    """Return the paths that an index names, relative to its folder. Raise the same errors as `of_index`."""
    text = path_text(path)
    with Mapping(text) as index:
        weight_map, _ = parse_index(text, index_text(index))
    return list(dict.fromkeys(weight_map.values()))


def index_text(index: Mapping) -> bytes:
    """Read an index as text with pread, because another program may truncate the mapped file."""
    if index.nbytes > _MAX_INDEX:
        reason = f"the index of shards is too large: {index.nbytes} bytes, more than the maximum of {_MAX_INDEX}"
        raise FormatError(reason, Kind.TOO_COSTLY, path=index.path)
    return os.pread(index.fileno(), index.nbytes, 0)


def parse_index(path: str, text: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Return the file that contains each array, and the metadata whose values are strings."""
    import json  # here, because opening one file does not need it

    try:
        found = json.loads(text.decode(), object_pairs_hook=_distinct)
        weight_map, metadata = found.get("weight_map"), found.get("metadata") or {}
        if not isinstance(weight_map, dict) or not isinstance(metadata, dict):
            raise ValueError("no 'weight_map' from names to files")  # noqa: TRY004 - reported like invalid JSON
        texts = {key: text if isinstance(text, str) else json.dumps(text) for key, text in metadata.items()}
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        reason = f"expected a file of arrays or the index of a sharded model, found JSON of another kind ({detail})"
        raise FormatError(reason, Kind.NOT_THIS_FORMAT, path=path, found="JSON") from None
    if not weight_map:
        raise SetError("the 'weight_map' is empty: there are no shards", path=path)
    inside: set[str] = set()  # files that were checked, because a shard has many arrays
    for name, file in weight_map.items():
        if not is_text(name):
            raise SetError(f"invalid name {name!r}: it contains an unpaired surrogate", path=path)
        if not isinstance(file, str) or not (file in inside or is_inside(file)):
            reason = f"invalid file {file!r} for {name!r}: it is not a path inside the folder of the index"
            raise SetError(reason, Kind.OUT_OF_BOUNDS, path=path)
        inside.add(file)
    return weight_map, texts


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate name")
    return found


def is_inside(location: object) -> bool:
    """Return whether `location` is a relative path that, apart from symbolic links, stays inside the folder."""
    if not is_text(location) or not location or location[0] == "/" or {"\0", "\\"} & set(location):
        return False
    return os.path.normpath(location).partition("/")[0] not in (".", "..")


def paths_of(owner: str, locations: Iterable[str]) -> list[str]:
    """Return the paths of the files that `owner` names. Raise SetError if a link must not be followed.

    A link that belongs to this user or root may lead anywhere. Another user's link may lead only to files that the
    link's owner can read.
    """
    folder = os.path.dirname(owner)  # noqa: PTH120 - as given
    paths = []
    for location in locations:
        path, parts = folder, location.split("/")
        for at, part in enumerate(parts):
            path = os.path.join(path, part)  # noqa: PTH118
            with contextlib.suppress(OSError):  # opening the file raises the error again
                link = os.lstat(path)
                if stat.S_ISLNK(link.st_mode) and (reason := _why_not_followed(link, path, parts[at + 1 :])):
                    raise SetError(f"cannot open {location!r}: {reason}", Kind.OUT_OF_BOUNDS, path=owner)
        paths.append(path)
    return paths


def _why_not_followed(link: os.stat_result, path: str, rest: list[str]) -> str:
    """Return why a link in a path must not be followed, or "" if it may be. `rest` is the path below the link."""
    if ".." in rest:
        return f"'..' comes after the symbolic link {path}"
    real = os.path.realpath(os.path.join(path, *rest))  # noqa: PTH118
    owner = _core.owner_at(path)
    if owner in (os.geteuid(), 0) or _may_read(owner, link.st_gid, real):
        return ""
    return f"{path} is a symbolic link of user {link.st_uid}, who cannot read {real}: replace the link with the file"


def _may_read(owner: int | None, group: int, path: str) -> bool:
    """Return whether a link's owner and group may read a file. If `owner` is None, it stands for any user."""

    def has(path: str, bits: int) -> bool:
        found = os.stat(path)  # noqa: PTH116
        shift = 0 if owner is None else 6 if found.st_uid == owner else 3 if found.st_gid == group else 0
        return found.st_mode >> shift & bits == bits

    folders = itertools.accumulate(path.split("/")[:-1], lambda above, name: f"{above}/{name}")
    return has(path, 4) and all(has(folder or "/", 1) for folder in folders)
