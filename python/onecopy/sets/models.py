"""Opening an ONNX model whose tensors lie in other files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from onecopy import _core, residency
from onecopy._named import Entry
from onecopy.arrays import ArrayFile
from onecopy.sets.array_set import ArraySet
from onecopy.sets.members import DataFile, How, close, confined, decided, expect, named_by

if TYPE_CHECKING:
    from onecopy.files import Mode


def of_model(
    model: ArrayFile,
    mode: Mode | Literal["auto"] = "map",
    *,
    private: bool = False,
    threads: int | None = None,
) -> ArraySet:
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


def _opened(model: ArrayFile, mode: Mode | Literal["auto"], how: How) -> ArraySet:
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
        opened = ArraySet(model, [model, *data], places, model.container, metadata, how)
        if huge:
            residency.warm(opened, mechanism="advise")
    except BaseException:
        close(model, *data)
        raise
    return opened


def _outside(model: ArrayFile) -> list[tuple[str, Entry]]:
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


def reopened(path: str, how: How) -> ArraySet:
    """Open again what was pickled in another process; FileChanged where a file is another one by now."""
    model = ArrayFile(path, mode=how.mode, private=how.private, threads=how.threads, identity=how.expected[0])
    return _opened(model, how.mode, how)
