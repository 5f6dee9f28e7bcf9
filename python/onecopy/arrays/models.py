"""Opening an ONNX model whose tensors lie in other files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from onecopy import _core, page_cache
from onecopy.arrays.file import Entry
from onecopy.arrays.members import DataFile, How, close, confined, decided, expect, named_by
from onecopy.arrays.one_file import OneFile
from onecopy.arrays.several_files import SeveralFiles

if TYPE_CHECKING:
    from onecopy.files import Mode


def of_model(
    model: OneFile,
    mode: Mode | Literal["auto"] = "map",
    *,
    private: bool = False,
    threads: int | None = None,
) -> SeveralFiles:
    """Open the files that an open ONNX model names; `onecopy.open` calls this where there are some.

    The model becomes a part of the set, and is closed where that fails.

    Raises
    ------
    SetError
        A file that is too short, or a link that leads out of the folder; the message names both paths.
    OSError
        A file that cannot be opened, with its path; ``strerror`` names the model.
    """
    return _opened(model, mode, How(model.mode, "as asked", private, threads))


def _opened(model: OneFile, mode: Mode | Literal["auto"], how: How) -> SeveralFiles:
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
    """List the arrays that lie in other files, with their locations; names that are taken end in "~2", "~3"."""
    tensors = cast("list[tuple[Any, ...]]", _core.parse_onnx(model.core)["tensors"])
    taken = dict.fromkeys([*model, *(name for name, *_, is_initializer in tensors if is_initializer)], 1)
    outside = []
    for name, kind, dtype, shape, storage, offset, nbytes, location, is_initializer in tensors:
        if storage != "external":
            continue
        own = name
        while not is_initializer and own in taken:
            taken[name] += 1  # the last number that was given after it
            own = f"{name}~{taken[name]}"
        taken.setdefault(own, 1)
        outside.append((location, Entry(own, dtype or kind, tuple(shape), offset, nbytes)))
    return outside


def reopened(path: str, how: How) -> SeveralFiles:
    """Open again what was pickled in another process; FileChanged where a file is another one by now."""
    model = OneFile(path, mode=how.mode, private=how.private, threads=how.threads, identity=how.expected[0])
    return _opened(model, how.mode, how)
