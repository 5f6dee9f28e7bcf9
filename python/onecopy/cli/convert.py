"""`onecopy convert SOURCE TARGET`: write the arrays of one or more files to a safetensors file laid out for mapping.

A source that is larger than half of the available memory is read with `ArrayFile.stream`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Container, Iterator, Mapping, Sized
from fnmatch import fnmatchcase
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import click

import onecopy
from onecopy.arrays import open_arrays
from onecopy.arrays.saving import not_savable
from onecopy.base.text import counted, significant, size
from onecopy.cli import options, screen
from onecopy.cli.reports import names_matching

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from onecopy.arrays import ArrayFile
    from onecopy.arrays.streaming import StreamedPart

SHOWN = 10
"""Maximum number of omitted entries to print; the JSON output lists all of them."""
UNKNOWN_TYPES = "unknown_types"
"""Key in TARGET's metadata. Its value is JSON with the dtype and shape, by name, of each array written as bytes."""


class Chosen(Mapping[str, "NDArray[Any]"]):
    """Some arrays of an open file, by name. Each access creates a view."""

    def __init__(self, file: ArrayFile, names: Sequence[str], as_bytes: Container[str]) -> None:
        self._file, self._names, self._as_bytes = file, dict.fromkeys(names), as_bytes

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        return self._written(name, self._file[name])

    def stream(self, names: Sequence[str], *, order: Literal["file", "names"]) -> Iterator[StreamedPart]:
        """Yield arrays like `ArrayFile.stream`, which `onecopy.save` uses for files that are larger than memory."""
        for part in self._file.stream(names, order=order):
            yield part._replace(array=self._written(part.name, part.array))

    def _written(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        if name not in self._as_bytes:
            return array
        return array.reshape(-1).view("u1") if array.nbytes else array.reshape(-1).astype("u1")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def choose(file: ArrayFile, pattern: str, *, as_bytes: bool) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Return the names to write, the names whose types safetensors lacks, and the omitted names with reasons."""
    if file.kind not in ("foreign", "arrays"):
        raise ValueError(f"{file.path}: cannot convert a file of kind {file.kind!r}: its structure would be lost")
    matching = names_matching(file, pattern)
    lacking = not_savable(map(file.entry, matching))
    text = file.metadata.get("left out", "{}") if file.container in ("npz", "onnx", "ort", "torch") else "{}"
    missing = {name: why for why, names in json.loads(text).items() for name in names if fnmatchcase(name, pattern)}
    if as_bytes:
        return matching, lacking, missing
    return [name for name in matching if name not in lacking], lacking, lacking | missing


def expect_all(file: ArrayFile, names: Sequence[str], missing: dict[str, str], *, skip: bool) -> None:
    """Raise ValueError if entries cannot be written and may not be skipped, or if no entry is left."""
    more = f", and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    first = ", ".join(f"{name!r} ({why})" for name, why in list(missing.items())[:SHOWN])
    which = f"{file.path}: {len(missing)} of {len(names) + len(missing)} entries cannot be written: {first}{more}"
    if missing and not names:
        raise ValueError(f"{which}: use --unknown bytes to write types that safetensors lacks")
    if missing and not skip:
        raise ValueError(
            f"{which}: use --skip-unsupported to leave them out and list them, --names to choose others, or "
            "--unknown bytes to write types that safetensors lacks"
        )


def tied(file: ArrayFile, names: Sequence[str]) -> dict[str, str]:
    """Map the name of each array that occupies the same bytes of the file as an earlier array to the earlier name."""
    first: dict[tuple[Any, ...], str] = {}
    again = {}
    for name in names:
        entry = file.entry(name)
        _, *form = file.memory_of(name)
        place = (file.path_of(name), entry.offset, *map(str, form))
        if entry.nbytes and first.setdefault(place, name) != name:
            again[name] = first[place]
    return again


def convert(
    source: str, target: str, *, pattern: str, unknown: str, skip: bool, drop_tied: bool, align: int | None
) -> dict[str, Any]:
    """Write the target, and return a report for JSON. With `skip`, entries that cannot be written are omitted."""
    onecopy.files.guard()  # raises DataLost if the source is truncated meanwhile, instead of writing zeros
    start = monotonic()
    with open_arrays(source) as file, screen.progress("convert") as show_progress:
        names, lacking, missing = choose(file, pattern, as_bytes=unknown == "bytes")
        expect_all(file, names, missing, skip=skip)
        again = tied(file, names)
        nbytes_again = sum(file.entry(name).nbytes for name in again)
        metadata = file.metadata
        if drop_tied:
            names = [name for name in names if name not in again]
            metadata = {**metadata, **again}  # as safetensors.torch.save_model does
        kept = [file.entry(name) for name in names if name in lacking]
        as_bytes = {entry.name: {"dtype": entry.dtype, "shape": entry.shape} for entry in kept}  # for their readers
        if as_bytes:
            metadata = {**metadata, UNKNOWN_TYPES: json.dumps(as_bytes)}

        def watch(done: int, total: int) -> None:
            onecopy.files.check()
            show_progress(done, total)

        onecopy.save(target, Chosen(file, names, as_bytes), metadata, align, progress=watch)
        nbytes = sum(file.entry(name).nbytes for name in names)
        container = file.container
    return {
        "source": source,
        "container": container,
        "target": target,
        "arrays": len(names),
        "nbytes": nbytes,
        "seconds": monotonic() - start,
        "left_out": missing,
        "as_bytes": as_bytes,
        "tied": again,
        "tied_nbytes": nbytes_again,
        "tied_dropped": drop_tied,
    }


def show(report: dict[str, Any]) -> None:
    """Print the report, and on stderr notes about arrays that were omitted, written as bytes, or written twice."""
    missing, as_bytes, tied_names = report["left_out"], report["as_bytes"], report["tied"]
    notes = [f"left out: {name} ({why})" for name, why in list(missing.items())[:SHOWN]]
    if as_bytes:
        name, form = next(iter(as_bytes.items()))
        where = f"written as bytes, with dtype and shape in the metadata under {UNKNOWN_TYPES!r}"
        notes.insert(0, f"{name} ({form['dtype']}){_more(as_bytes)}: {where}")
    if len(missing) > SHOWN:
        notes.append(f"left out: {len(missing) - SHOWN} more; --json lists them all")
    if tied_names:
        name, first = next(iter(tied_names.items()))
        words = f"written again ({size(report['tied_nbytes'])}); use --drop-tied to write it once"
        if report["tied_dropped"]:
            words = f"written once, and named in the metadata ({size(report['tied_nbytes'])})"
        notes.append(f"{name} has the same bytes as {first} in the source{_more(tied_names)}: {words}")
    for note in notes:
        screen.show_line(screen.err(), f"onecopy: {note}")
    speed = significant(report["nbytes"] / 2**30 / report["seconds"])
    screen.show_line(
        screen.out(),
        f"{report['target']}: {counted(report['arrays'], 'array')}, {size(report['nbytes'])}, "
        f"from {report['container']} in {significant(report['seconds'])} s ({speed} GiB/s)",
    )


def _more(names: Sized) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


@click.command("convert")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@options.names("Only arrays whose names match GLOB.", default="*")
@click.option(
    "--align",
    type=options.SIZE,
    help="Align every array to SIZE, from 64 to 2MiB, with fillers that other readers show as #0, #1, ... Default: no "
    "fillers; most arrays are aligned to 64 bytes, and all to their item size.",
)
@click.option(
    "--unknown",
    type=click.Choice(["error", "bytes"]),
    default="error",
    show_default=True,
    help="What to do with arrays whose type safetensors lacks (quantised blocks, text, ...): fail, or write "
    "their bytes as U8, with dtype and shape in the metadata.",
)
@click.option(
    "--skip-unsupported",
    "skip",
    is_flag=True,
    help="Leave out and list entries that onecopy cannot map, such as compressed or sparse tensors, and arrays of "
    "unknown types. By default, each of them is an error.",
)
@click.option(
    "--drop-tied",
    is_flag=True,
    help="Write arrays that have the same bytes in SOURCE (tied weights) once, with their other names in the metadata, "
    "as safetensors.torch.save_model does.",
)
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@options.as_json()
def command(*, source: str, target: str, force: bool, as_json: bool, **settings: Any) -> None:
    """Write the arrays of SOURCE to TARGET, a safetensors file with checksums that is laid out for mapping.

    SOURCE is any file that `onecopy.open` reads: safetensors, ONNX, GGUF, .npy, .npz, a torch checkpoint, ... or the
    index of a model in shards. TARGET appears complete or not at all. Processes that use the old file keep it.
    """
    if os.path.isdir(target):  # noqa: PTH112 - text
        raise IsADirectoryError(errno.EISDIR, "TARGET must be a file, not a folder", target)
    if not force and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "the file exists: use --force to replace it", target)
    report = convert(source, target, **settings)
    if as_json:
        options.show_json(report)
    else:
        show(report)
