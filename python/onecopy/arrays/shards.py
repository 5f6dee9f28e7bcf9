"""Open a sharded model: an index in JSON, and the files that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from onecopy import page_cache
from onecopy.arguments import path_text
from onecopy.arrays.members import How, close, confined, decided, expect, named_by
from onecopy.arrays.one_file import AS_REQUESTED, OneFile
from onecopy.arrays.several_files import SeveralFiles
from onecopy.files import Mapping
from onecopy.named_files import SetError, index_text, names_of_index, parse_index

if TYPE_CHECKING:
    import os

    from onecopy.files import ArraysMode


def of_index(
    path: str | os.PathLike[str],
    mode: ArraysMode | Literal["auto"] = "map",
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
    return confined(path_text(path), dict.fromkeys(names_of_index(path)))


def of_opened(path: str, shards: dict[str, OneFile], files: dict[str, str], how: How) -> SeveralFiles:
    """Return open shards, by name, as one file; `files` names the shard of each array.

    FormatError if a shard lacks an array, or the shards have two formats.
    """
    index = Mapping(path)
    numbers = {name: number for number, name in enumerate(shards)}
    members = list(shards.values())
    try:
        _, metadata = parse_index(path, index_text(index))
        places = {name: numbers[file] for name, file in files.items()}
        for name, at in places.items():
            if name not in members[at]:
                raise SetError(f"{path}: {name!r} is missing in {members[at].path}, which the index names for it")
        container = _common_container(path, members) if members else "safetensors set"
    except BaseException:
        index.close()
        raise
    return SeveralFiles(index, members, places, container, metadata, how, reopened)


def _opened(path: str, mode: ArraysMode | Literal["auto"], how: How) -> SeveralFiles:
    index = Mapping(path)
    shards: list[OneFile] = []
    try:
        expect(index, how, 0)
        weight_map, metadata = parse_index(path, index_text(index))
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
