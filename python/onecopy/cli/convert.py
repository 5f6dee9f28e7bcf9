"""`onecopy convert SOURCE TARGET`: the arrays of a file, or of several as one, as safetensors laid out for mapping.

One stream: what is mapped is written, at most 16 MiB are held. The target appears whole or not at all.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
from collections.abc import Container, Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import click
from rich.progress import DownloadColumn

import onecopy
from onecopy.arrays import open_arrays
from onecopy.arrays.saving import not_savable
from onecopy.cli import screen
from onecopy.cli.quantities import SIZE
from onecopy.cli.words import counted, significant, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from onecopy.arrays import ArrayFile, Entry

SHOWN = 10
"""Arrays that are left out and told one by one; all of them are in the JSON."""


Unknown = Literal["error", "skip", "bytes"]
"""What becomes of arrays whose type safetensors does not have."""
UNKNOWN_TYPES = "unknown_types"
"""The key in the metadata of TARGET for arrays that are written as bytes: JSON, names to dtype and shape."""


class Chosen(Mapping[str, "NDArray[Any]"]):
    """Some arrays of an open file, looked up when they are asked for: all at once would be many views."""

    def __init__(self, file: ArrayFile, names: Sequence[str], as_bytes: Container[str]) -> None:
        self._file, self._names, self._as_bytes = file, dict.fromkeys(names), as_bytes

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        array = self._file[name]
        if name not in self._as_bytes:
            return array
        return array.reshape(-1).view("u1") if array.nbytes else array.reshape(-1).astype("u1")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def choose(file: ArrayFile, pattern: str, unknown: Unknown) -> tuple[list[str], dict[str, str]]:
    """Return the names of the arrays to write, and the types of those that safetensors does not have.

    Raises
    ------
    ValueError
        No array matches, or none is left; or there are types that safetensors does not have, and `unknown` is "error".
    """
    if file.kind not in ("foreign", "arrays"):
        raise ValueError(f"{file.path} holds a {file.kind} of onecopy, which arrays alone would not be")
    entries = [entry for entry in file.entries if fnmatch.fnmatchcase(entry.name, pattern)]
    if not entries:
        raise ValueError(f"none of the {len(file)} arrays of {file.path} matches {pattern!r}")
    lacking = not_savable(entries)
    if lacking and unknown == "error":
        name, dtype = next(iter(lacking.items()))
        more = f", nor for {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ValueError(
            f"{file.path}: safetensors has no type for {name!r}, which is {dtype}{more}: --unknown bytes writes their "
            "bytes, --unknown skip leaves them out"
        )
    names = [entry.name for entry in entries if unknown == "bytes" or entry.name not in lacking]
    if not names:
        raise ValueError(f"{file.path}: safetensors has a type for none of the {len(entries)} arrays")
    return names, lacking


def tied(file: ArrayFile, names: Sequence[str]) -> dict[str, str]:
    """Return the names of arrays that are the same bytes of the file as one before them, with that one's name."""
    first: dict[tuple[Any, ...], str] = {}
    again = {}
    for name in names:
        entry = file.entry(name)
        _, *form = file.memory_of(name)
        place = (file.path_of(name), entry.offset, *map(str, form))
        if entry.nbytes and first.setdefault(place, name) != name:
            again[name] = first[place]
    return again


def _form(entry: Entry) -> dict[str, object]:
    """Return what a reader of an array that is written as bytes needs to know."""
    return {"dtype": entry.dtype, "shape": entry.shape}


def convert(
    source: str, target: str, *, pattern: str, unknown: Unknown, drop_tied: bool, align: int | None
) -> dict[str, Any]:
    """Write the file, and return what was done."""
    onecopy.guard()  # a source that is truncated meanwhile is an error, and no file of zeros
    start = monotonic()
    with (
        open_arrays(source) as file,
        screen.progress_bar(screen.err(), DownloadColumn(), screen.RateColumn()) as bar,
    ):
        names, lacking = choose(file, pattern, unknown)
        again = tied(file, names)
        nbytes_again = sum(file.entry(name).nbytes for name in again)
        metadata = file.metadata
        if drop_tied:
            names = [name for name in names if name not in again]
            metadata = {**metadata, **again}  # as safetensors.torch.save_model does
        as_bytes = {} if unknown == "skip" else {name: _form(file.entry(name)) for name in names if name in lacking}
        if as_bytes:
            metadata = {**metadata, UNKNOWN_TYPES: json.dumps(as_bytes)}
        task = bar.add_task("convert", total=None)

        def watch(done: int, total: int) -> None:
            onecopy.check()
            bar.update(task, completed=done, total=total)

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
        "left_out": lacking if unknown == "skip" else {},
        "as_bytes": as_bytes,
        "tied": again,
        "tied_nbytes": nbytes_again,
        "tied_dropped": drop_tied,
    }


def show(facts: dict[str, Any]) -> None:
    """Print what was done, and on stderr what was left out or is there twice."""
    left_out, as_bytes = facts["left_out"], facts["as_bytes"]
    if as_bytes:
        name, form = next(iter(as_bytes.items()))
        more = f" and {len(as_bytes) - 1} more" if len(as_bytes) > 1 else ""
        screen.show_line(
            screen.err(),
            f"onecopy: {name} ({form['dtype']}){more}: written as bytes; dtype and shape are in the metadata, under "
            f"{UNKNOWN_TYPES!r}",
        )
    for name, dtype in list(left_out.items())[:SHOWN]:
        screen.show_line(screen.err(), f"onecopy: left out: {name} ({dtype})")
    if len(left_out) > SHOWN:
        screen.show_line(screen.err(), f"onecopy: left out: {len(left_out) - SHOWN} more; --json has them all")
    if facts["tied"]:
        name, first = next(iter(facts["tied"].items()))
        more = f" and {len(facts['tied']) - 1} more" if len(facts["tied"]) > 1 else ""
        done = "written once, and named in the metadata" if facts["tied_dropped"] else "written again"
        advice = "" if facts["tied_dropped"] else ": --drop-tied writes it once"
        screen.show_line(
            screen.err(),
            f"onecopy: {name} is {first} in the source{more}: {done} ({size(facts['tied_nbytes'])}){advice}",
        )
    speed = significant(facts["nbytes"] / 2**30 / facts["seconds"])
    screen.show_line(
        screen.out(),
        f"{facts['target']}: {counted(facts['arrays'], 'array')}, {size(facts['nbytes'])}, from {facts['container']}"
        f" in {significant(facts['seconds'])} s ({speed} GiB/s)",
    )


@click.command("convert")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("--names", "pattern", metavar="GLOB", default="*", help="Only arrays whose names match.")
@click.option(
    "--align",
    type=SIZE,
    help="Every array at a multiple of SIZE, from 64 to 2MiB, by fillers named #0, #1, ... that other readers show. "
    "If not given: no fillers; most arrays at a multiple of 64, all at one of their item size.",
)
@click.option(
    "--unknown",
    type=click.Choice(["error", "skip", "bytes"]),
    default="error",
    show_default=True,
    help="Arrays whose type safetensors does not have (quantised blocks, text, ...): an error; leave them out and name "
    "them; or write their bytes as U8, with dtype and shape in the metadata.",
)
@click.option(
    "--drop-tied",
    is_flag=True,
    help="Write arrays that are the same bytes of SOURCE (tied weights) once; the metadata says under which name, as "
    "safetensors.torch.save_model does.",
)
@click.option("--force", is_flag=True, help="Replace TARGET if it is there.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(
    *,
    source: str,
    target: str,
    pattern: str,
    align: int | None,
    unknown: Unknown,
    drop_tied: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write the arrays of SOURCE to TARGET, a safetensors file laid out for mapping, with checksums.

    SOURCE is any file that `onecopy.open` reads: safetensors, ONNX, GGUF, .npy, .npz, torch checkpoints, ... or the
    index of a model in shards. TARGET appears whole or not at all; readers of an older one keep it.
    """
    if os.path.isdir(target):  # noqa: PTH112 - text
        raise IsADirectoryError(errno.EISDIR, "TARGET is a file to write, and this is a folder", target)
    if not force and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "there is a file already: --force replaces it", target)
    facts = convert(source, target, pattern=pattern, unknown=unknown, drop_tied=drop_tied, align=align)
    if as_json:
        click.echo(json.dumps(facts, indent=1))
    else:
        show(facts)
