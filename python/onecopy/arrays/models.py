"""Open an ONNX model whose tensors are stored in other files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from onecopy import _core, page_cache
from onecopy.arrays.entries import Entry
from onecopy.arrays.members import DataFile, How, close, confined, decided, expect, named_by
from onecopy.arrays.one_file import AS_REQUESTED, OneFile
from onecopy.arrays.several_files import SeveralFiles

if TYPE_CHECKING:
    from onecopy.files import ArraysMode


def of_model(
    model: OneFile,
    mode: ArraysMode | Literal["auto"] = "map",
    *,
    private: bool = False,
    threads: int | None = None,
) -> SeveralFiles:
    """Open the files of external data that an open ONNX model names; called by `onecopy.open`.

    The returned object owns the model, which is closed if an error is raised.

    Raises
    ------
    SetError
        A file is too short, or a symbolic link points outside the folder; the message names both paths.
    OSError
        A file cannot be opened; ``filename`` is its path, ``strerror`` names the model.
    """
    return _opened(model, mode, How(model.mode, AS_REQUESTED, private, threads))


def _opened(model: OneFile, mode: ArraysMode | Literal["auto"], how: How) -> SeveralFiles:
    data: list[DataFile] = []
    try:
        expect(model, how, 0)
        expect(model, how, 1)
        outside = _outside(model)
        numbers: dict[str, int] = {}
        places = dict.fromkeys(model, 0)
        for location, entry in outside:
            places[entry.name] = numbers.setdefault(location, len(numbers) + 1)
        paths = confined(model.path, numbers)
        how, huge = decided(mode, model.path, [model.path, *paths], how)
        for number, path in enumerate(paths, start=2):
            with named_by(model.path):
                data.append(DataFile(path, how.mode, how.private, how.threads))
            expect(data[-1], how, number)
        for location, entry in outside:
            data[numbers[location] - 1].add(entry, model.path)
        metadata = {key: text for key, text in model.metadata.items() if key != "elsewhere" or not data}
        opened = SeveralFiles(model, [model, *data], places, model.container, metadata, how, reopened)
        if huge:
            page_cache.warm(opened, mechanism="advise")
    except BaseException:
        close(model, *data)
        raise
    return opened


def _outside(model: OneFile) -> list[tuple[str, Entry]]:
    """Return the arrays in other files with their locations; duplicate names get the suffix "~2", "~3", ..."""
    tensors = cast("list[tuple[Any, ...]]", _core.parse_onnx(model.core)["tensors"])
    taken = dict.fromkeys([*model, *(name for name, *_, is_initializer in tensors if is_initializer)], 1)
    outside = []
    for name, kind, dtype, shape, storage, offset, nbytes, location, is_initializer in tensors:
        if storage != "external":
            continue
        own = name
        while not is_initializer and own in taken:
            taken[name] += 1  # the last number used as a suffix
            own = f"{name}~{taken[name]}"
        taken.setdefault(own, 1)
        outside.append((location, Entry(own, dtype or kind, tuple(shape), offset, nbytes)))
    return outside


def reopened(path: str, how: How) -> SeveralFiles:
    """Open files that were pickled in another process; FileChanged if one was modified or replaced since."""
    model = OneFile(path, mode=how.mode, private=how.private, threads=how.threads, identity=how.expected[0])
    return _opened(model, how.mode, how)
