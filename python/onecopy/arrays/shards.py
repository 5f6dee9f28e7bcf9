"""Opening a model in shards: an index in JSON, and the files that it names."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

from onecopy import page_cache
from onecopy.arguments import path_text
from onecopy.arrays.file import is_text
from onecopy.arrays.members import How, SetError, close, confined, decided, expect, named_by
from onecopy.arrays.one_file import OneFile
from onecopy.arrays.several_files import SeveralFiles
from onecopy.errors import FormatError
from onecopy.files import Mapping

if TYPE_CHECKING:
    from onecopy.files import Mode

_LONGEST = 100 << 20
"""Bytes of an index: as many as a safetensors header may have."""


def of_index(
    path: str | os.PathLike[str],
    mode: Mode | Literal["auto"] = "map",
    *,
    private: bool = False,
    threads: int | None = None,
) -> SeveralFiles:
    """Open the shards that an index names; `onecopy.open` calls this for a file that begins as JSON does.

    Raises
    ------
    FormatError
        Another JSON text, or a shard that is damaged.
    SetError
        An index that names what is not there or not allowed; the message names path and reason.
    OSError
        A file that cannot be opened, with its path.
    """
    return _opened(path_text(path), mode, How("map", "as asked", private, threads))


def files_of_index(path: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the files that an index names, without opening them; raises what `of_index` does of it."""
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
                raise SetError(f"{path}: {name!r} is to be in {shards[at].path}, which has no array of that name")
        container = _common_container(path, shards)
        opened = SeveralFiles(index, shards, places, container, metadata, how, reopened)
        if huge:
            page_cache.warm(opened, mechanism="advise")
    except BaseException:
        close(index, *shards)
        raise
    return opened


def _text_of(index: Mapping) -> bytes:
    """Return the text of an index, read and not looked at: another program may truncate it meanwhile."""
    if index.nbytes > _LONGEST:
        raise FormatError(f"{index.path}: {index.nbytes} bytes of JSON: an index of shards has {_LONGEST} at most")
    return os.pread(index.fileno(), index.nbytes, 0)


def _parse(path: str, text: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Return names to files, and the metadata as texts."""
    try:
        found = json.loads(text.decode(), object_pairs_hook=_distinct)
        weight_map, metadata = found.get("weight_map"), found.get("metadata") or {}
        if not isinstance(weight_map, dict) or not isinstance(metadata, dict):
            raise ValueError("it has no 'weight_map' of names to files")  # noqa: TRY004 - one error for all of them
        texts = {key: text if isinstance(text, str) else json.dumps(text) for key, text in metadata.items()}
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise FormatError(f"{path}: begins like the index of a model in shards, but is none: {reason}") from None
    if not weight_map:
        raise SetError(f"{path}: the 'weight_map' is empty: there are no shards")
    for name in weight_map:
        if not is_text(name):
            raise SetError(f"{path}: {name!r} is no name: it has half a surrogate pair")
    inside: set[str] = set()  # a shard has many arrays
    for name, file in weight_map.items():
        if not isinstance(file, str) or not (file in inside or _is_inside(file)):
            raise SetError(f"{path}: {name!r} is to be in {file!r}, which is no path inside the folder of the index")
        inside.add(file)
    return weight_map, texts


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _is_inside(location: object) -> bool:
    """Return whether this is a relative path that cannot lead out of the folder that it starts from, links aside."""
    if not is_text(location) or not location or location[0] == "/" or {"\0", "\\"} & set(location):
        return False
    return ".." not in location.split("/")


def _common_container(path: str, shards: list[OneFile]) -> str:
    container = shards[0].container
    for shard in shards:
        if shard.container != container:
            raise SetError(f"{path}: {shards[0].path} is {container}, but {shard.path} is {shard.container}")
    return f"{container} set"


def reopened(path: str, how: How) -> SeveralFiles:
    """Open again what was pickled in another process; FileChanged where a file is another one by now."""
    return _opened(path, how.mode, how)
