"""`onecopy ls FILE`: list the arrays in a file, or the types of its records, without reading data."""

from __future__ import annotations

import fnmatch
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from onecopy.arrays import open_arrays
from onecopy.arrays.file import OneFile
from onecopy.base import lazy
from onecopy.base.text import counted, escape, size
from onecopy.cli import options, screen
from onecopy.cli.screen import share
from onecopy.data import objects
from onecopy.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy.arrays import ArrayFile

MAX_ALIGNMENT = 2 << 20
"""Maximum alignment that is reported: the size of a huge page. Any larger alignment is a coincidence."""


def resident(cached: int | None, nbytes: int) -> str:
    """Return the resident share as text, or "-" if there are no bytes."""
    return share(cached, nbytes) if nbytes else "-"


def cached_of(file: Any, entry: Any) -> int | None:
    """Return the number of cached bytes of an array."""
    cached = file.residency([entry.name]).cached if entry.nbytes else 0
    return None if cached is None else min(cached, entry.nbytes)  # the kernel counts whole pages


def heading_of(file: Any) -> str:
    """Return the line above the table."""
    words = [f"{file.path}: {file.container}"]
    if objects.METADATA in file.metadata:
        with suppress(FormatError):
            words.append(f"object of class {escape(objects.about_of(file).type)}")
    if file.kind != "foreign":
        words.append(f"onecopy {file.kind}")
    if len(file.files) > 1:
        words.append(f"{len(file.files)} files")
    return ", ".join(words)


def show(heading: str, grid: screen.Grid, summary: str) -> None:
    """Print a table between a heading and a summary line."""
    console = screen.out()
    screen.show_line(console, heading, "bold")
    grid.show(console)
    screen.show_line(console, summary)


class Line(NamedTuple):
    """A line of the listing, which describes an array. Sizes are in bytes; `cached` is None if it is unknown."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    nbytes: int
    alignment: int
    cached: int | None


ORDERS = {
    "offset": lambda line: (line.file, line.offset, line.name),
    "name": lambda line: line.name,
    "size": lambda line: (-line.nbytes, line.file, line.offset),
}


def alignment_of(offset: int) -> int:
    """Return the largest power of two, at most 2 MiB, that divides an offset."""
    return min(offset & -offset, MAX_ALIGNMENT) if offset else MAX_ALIGNMENT


def lines_of(file: Any, pattern: str) -> list[Line]:
    """Return the arrays whose names match a pattern."""
    return [
        Line(
            one.name,
            str(one.dtype),
            tuple(one.shape),
            file.path_of(one.name),
            one.offset,
            one.nbytes,
            alignment_of(one.offset),
            cached_of(file, one),
        )
        for one in file.entries
        if fnmatch.fnmatchcase(one.name, pattern)
    ]


def grid_of(lines: Sequence[Line]) -> screen.Grid:
    """Return the table of arrays."""
    grid = screen.Grid("name~ dtype shape~ >size >align >resident")
    for line in lines:
        shape = "x".join(str(length) for length in line.shape) or "scalar"
        share_of_line = resident(line.cached, line.nbytes)
        grid.add(line.name, line.dtype, shape, size(line.nbytes), str(line.alignment), share_of_line)
    return grid


def summary_of(file: Any, lines: Sequence[Line]) -> str:
    """Return the line below the table."""
    total = sum(line.nbytes for line in lines)
    words = [f"{len(lines)} of {len(file)} arrays" if len(lines) != len(file) else counted(len(lines), "array")]
    words.append(size(total))
    filled = [line.alignment for line in lines if line.nbytes]
    if filled:
        words.append(f"aligned to {min(filled)} bytes or more")
    cached = [line.cached for line in lines]
    known = sum(part for part in cached if part is not None)
    words.append(f"{resident(None if None in cached else known, total)} resident")
    residency = file.residency()
    if residency.mapped and residency.huge is not None:
        words.append(f"{share(residency.huge, residency.mapped)} of mapped bytes in huge pages")
    return ", ".join(words)


def show_arrays(file: ArrayFile, sort: str, pattern: str, as_json: bool) -> None:
    """Print a file's arrays."""
    lines = sorted(lines_of(file, pattern), key=ORDERS[sort])
    if as_json:
        options.show_json(
            {
                "container": file.container,
                "kind": str(file.kind),
                "nbytes": file.nbytes,
                "metadata": dict(file.metadata),
                "arrays": [line._asdict() for line in lines],
            }
        )
    else:
        show(heading_of(file), grid_of(lines), summary_of(file, lines))


@click.command("ls")
@click.argument("file", type=click.Path())
@click.option("--sort", type=click.Choice(list(ORDERS)), help="Order of the arrays; default: offset.")
@options.names("Only arrays whose names match GLOB.")
@click.option("--arrays", "as_arrays", is_flag=True, help="List the arrays of a file of records instead of its types.")
@options.as_json()
def command(*, file: str, sort: str | None, pattern: str | None, as_arrays: bool, as_json: bool) -> None:
    """List the arrays of FILE, or the types of its records, with sizes and resident shares.

    For a model in several files, pass its folder, the index (model.safetensors.index.json) or the ONNX model.
    """
    with open_arrays(file) as arrays:
        if as_arrays or arrays.kind != "records" or not isinstance(arrays, OneFile):
            show_arrays(arrays, sort or "offset", pattern or "*", as_json)
        elif sort or pattern:
            raise click.UsageError("--sort and --names apply to arrays only: add --arrays")
        else:
            lazy.load("onecopy_records.cli.listing").show_records(arrays, as_json)
