"""Open a sharded model: an index in JSON, and the files that it names."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

from onecopy import page_cache
from onecopy.arguments import path_text
from onecopy.arrays.entries import is_text
from onecopy.arrays.members import How, SetError, close, confined, decided, expect, named_by
from onecopy.arrays.one_file import AS_REQUESTED, OneFile
from onecopy.arrays.several_files import SeveralFiles
from onecopy.errors import FormatError
from onecopy.files import Mapping

if TYPE_CHECKING:
    from onecopy.files import Mode

_MAX_INDEX = 100 << 20
"""Maximum size of an index in bytes: that of a safetensors header."""


def of_index(
    path: str | os.PathLike[str],
    mode: Mode | Literal["auto"] = "map",
    *,
    private: bool = False,
    threads: int | None = None,
) -> SeveralFiles:
    """Open the shards that an index names; `onecopy.open` calls this for a file that begins like JSON.

    Raises
    ------
    FormatError
        The JSON is not an index, or a shard is damaged.
    SetError
        The index names a missing array or a file outside its folder; the message has the path and the reason.
    OSError
        A file cannot be opened; ``filename`` is its path.
    """
    return _opened(path_text(path), mode, How("map", AS_REQUESTED, private, threads))


def files_of_index(path: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the files that an index names, without opening them; errors are those of `of_index`."""
    text = path_text(path)
    with Mapping(text) as index:
        weight_map, _ = _parse(text, _text_of(index))
    return confined(text, dict.fromkeys(weight_map.values()))


def _opened(path: str, mode: Mode | Literal["auto"], how: How) -> SeveralFiles:
    index = Mapping(path)
    shards: list[OneFile] = []
    try:
        expect(index, how, 0)
        weight_map, metadata = _parse(path, _text_of(index))
        numbers: dict[str, int] = {}
        places = {name: numbers.setdefault(file, len(numbers)) for name, file in weight_map.items()}
        paths = confined(path, numbers)
        how, huge = decided(mode, path, paths, how)
        for number, shard in enumerate(paths, start=1):
            with named_by(path):
                shards.append(OneFile(shard, mode=how.mode, private=how.private, threads=how.threads))
            expect(shards[-1], how, number)
        for name, at in places.items():
            if name not in shards[at]:
                raise SetError(f"{path}: {name!r} is missing in {shards[at].path}, which the index names for it")
        container = _common_container(path, shards)
        opened = SeveralFiles(index, shards, places, container, metadata, how, reopened)
        if huge:
            page_cache.warm(opened, mechanism="advise")
    except BaseException:
        close(index, *shards)
        raise
    return opened


def _text_of(index: Mapping) -> bytes:
    """Return the text of an index, read with pread: another program may truncate the mapped file."""
    if index.nbytes > _MAX_INDEX:
        raise FormatError(f"{index.path}: index of shards too large: {index.nbytes} bytes, at most {_MAX_INDEX}")
    return os.pread(index.fileno(), index.nbytes, 0)


def _parse(path: str, text: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Return the file of each name, and the metadata with values as text."""
    try:
        found = json.loads(text.decode(), object_pairs_hook=_distinct)
        weight_map, metadata = found.get("weight_map"), found.get("metadata") or {}
        if not isinstance(weight_map, dict) or not isinstance(metadata, dict):
            raise ValueError("no 'weight_map' from names to files")  # noqa: TRY004 - one error for all of them
        texts = {key: text if isinstance(text, str) else json.dumps(text) for key, text in metadata.items()}
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise FormatError(f"{path}: not the index of a sharded model, although it begins like JSON: {reason}") from None
    if not weight_map:
        raise SetError(f"{path}: the 'weight_map' is empty: there are no shards")
    for name in weight_map:
        if not is_text(name):
            raise SetError(f"{path}: invalid name {name!r}: it contains an unpaired surrogate")
    inside: set[str] = set()  # checked before: a shard has many arrays
    for name, file in weight_map.items():
        if not isinstance(file, str) or not (file in inside or _is_inside(file)):
            raise SetError(f"{path}: invalid file {file!r} for {name!r}: not a path inside the folder of the index")
        inside.add(file)
    return weight_map, texts


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate name")
    return found


def _is_inside(location: object) -> bool:
    """Return whether `location` is a relative path that stays inside its folder, apart from symbolic links."""
    if not is_text(location) or not location or location[0] == "/" or {"\0", "\\"} & set(location):
        return False
    return ".." not in location.split("/")


def _common_container(path: str, shards: list[OneFile]) -> str:
    container = shards[0].container
    for shard in shards:
        if shard.container != container:
            raise SetError(
                f"{path}: shards of two formats: {shards[0].path} is {container}, {shard.path} {shard.container}"
            )
    return f"{container} set"


def reopened(path: str, how: How) -> SeveralFiles:
    """Open files that were pickled in another process; FileChanged if one was modified or replaced since."""
    return _opened(path, how.mode, how)
