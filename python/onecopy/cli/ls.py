"""`onecopy ls FILE`: names, dtypes, shapes, sizes, alignment and resident share of the arrays in a file.

It reads the header alone and queries residency from the kernel; it reads no data, so that it warms nothing.
"""

from __future__ import annotations

import fnmatch
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from onecopy import objects
from onecopy.arrays import open_arrays
from onecopy.arrays.file import OneFile
from onecopy.cli import record_tree, screen
from onecopy.cli.words import counted, escape, share, size
from onecopy.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy.arrays import ArrayFile

MAX_ALIGNMENT = 2 << 20
"""Maximum alignment that is reported in bytes, the size of a huge page; a larger one is a coincidence."""


@dataclass(frozen=True, slots=True)
class Line:
    """Facts of one array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    """Path of the file that has the array."""
    offset: int
    """Offset in the file in bytes."""
    nbytes: int
    """Size in bytes."""
    alignment: int
    """Alignment of the offset in bytes."""
    cached: int | None
    """Bytes in the page cache; None if unknown."""


ORDERS = {
    "offset": lambda line: (line.file, line.offset, line.name),
    "name": lambda line: line.name,
    "size": lambda line: (-line.nbytes, line.file, line.offset),
}


def alignment_of(offset: int) -> int:
    """Return the largest power of two, at most 2 MiB, that divides an offset.

    Examples
    --------
    >>> alignment_of(8), alignment_of(4096 * 3), alignment_of(0)
    (8, 4096, 2097152)
    """
    return min(offset & -offset, MAX_ALIGNMENT) if offset else MAX_ALIGNMENT


def cached_of(file: Any, entry: Any) -> int | None:
    """Return the cached bytes of an array, at most its size: the kernel counts whole pages."""
    cached = file.residency([entry.name]).cached if entry.nbytes else 0
    return None if cached is None else min(cached, entry.nbytes)


def lines_of(file: Any, pattern: str) -> list[Line]:
    """Return the facts of the arrays of an open file whose names match the pattern."""
    return [
        Line(
            name=entry.name,
            dtype=str(entry.dtype),
            shape=tuple(entry.shape),
            file=file.path_of(entry.name),
            offset=entry.offset,
            nbytes=entry.nbytes,
            alignment=alignment_of(entry.offset),
            cached=cached_of(file, entry),
        )
        for entry in file.entries
        if fnmatch.fnmatchcase(entry.name, pattern)
    ]


COLUMNS = (
    screen.Column("name", folds=True),
    screen.Column("dtype"),
    screen.Column("shape", folds=True),
    screen.Column("size", right=True),
    screen.Column("align", right=True),
    screen.Column("resident", right=True),
)


def grid_of(lines: Sequence[Line]) -> screen.Grid:
    """Return the table of the arrays; names and shapes may fold, numbers do not."""
    grid = screen.Grid(COLUMNS)
    for line in lines:
        shape = "x".join(str(length) for length in line.shape) or "scalar"
        resident = share(line.cached, line.nbytes) if line.nbytes else "-"
        cells = (line.name, line.dtype, shape, size(line.nbytes), str(line.alignment), resident)
        grid.rows.append(tuple(escape(cell) for cell in cells))
    return grid


def heading_of(file: Any) -> str:
    """Return the first line: path, container, kind of a file of onecopy or class of an object, and files of a set."""
    words = [f"{file.path}: {file.container}"]
    if objects.METADATA in file.metadata:
        with suppress(FormatError):
            words.append(f"object of the class {escape(objects.about_of(file).type)}")
    if file.kind != "foreign":
        words.append(f"{file.kind} of onecopy")
    if len(file.files) > 1:
        words.append(f"{len(file.files)} files")
    return ", ".join(words)


def summary_of(file: Any, lines: Sequence[Line]) -> str:
    """Return the last line: arrays, bytes, worst alignment, resident share, huge pages."""
    total = sum(line.nbytes for line in lines)
    words = [f"{len(lines)} of {len(file)} arrays" if len(lines) != len(file) else counted(len(lines), "array")]
    words.append(size(total))
    filled = [line.alignment for line in lines if line.nbytes]
    if filled:
        words.append(f"aligned to {min(filled)} bytes or more")
    cached = [line.cached for line in lines]
    known = sum(part for part in cached if part is not None)
    words.append(f"{share(None if None in cached else known, total) if total else '-'} resident")
    residency = file.residency()
    if residency.mapped and residency.huge is not None:
        words.append(f"{share(residency.huge, residency.mapped)} of mapped bytes in huge pages")
    return ", ".join(words)


def show_arrays(file: ArrayFile, sort: str, pattern: str, as_json: bool) -> None:
    """Print the arrays of an open file."""
    lines = sorted(lines_of(file, pattern), key=ORDERS[sort])
    if as_json:
        facts = {
            "container": file.container,
            "kind": str(file.kind),
            "nbytes": file.nbytes,
            "metadata": dict(file.metadata),
            "arrays": [asdict(line) for line in lines],
        }
        click.echo(json.dumps(facts, indent=1))
        return
    console = screen.out()
    screen.show_heading(console, heading_of(file))
    grid_of(lines).show(console)
    screen.show_line(console, summary_of(file, lines))


def show_records(file: OneFile, as_json: bool) -> None:
    """Print the types of the rows of an open file."""
    tree = record_tree.tree_of(file)
    if as_json:
        click.echo(json.dumps(tree.facts(), indent=1))
        return
    console = screen.out()
    screen.show_heading(console, heading_of(file))
    record_tree.grid_of(tree).show(console)
    screen.show_line(console, record_tree.summary_of(tree))


@click.command("ls")
@click.argument("file", type=click.Path())
@click.option("--sort", type=click.Choice(list(ORDERS)), help="Order of the arrays; default: offset.")
@click.option("--match", "pattern", metavar="GLOB", help="Only arrays whose names match.")
@click.option("--arrays", "as_arrays", is_flag=True, help="List the arrays of a file of records, instead of its types.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(*, file: str, sort: str | None, pattern: str | None, as_arrays: bool, as_json: bool) -> None:
    """List the arrays of FILE, or the types of its records, with sizes and resident shares.

    For a model in several files, give its folder, the index (model.safetensors.index.json) or the ONNX model.
    """
    with open_arrays(file) as arrays:
        if as_arrays or arrays.kind != "records" or not isinstance(arrays, OneFile):
            show_arrays(arrays, sort or "offset", pattern or "*", as_json)
        elif sort or pattern:
            raise click.UsageError("--sort and --match are for arrays: add --arrays")
        else:
            show_records(arrays, as_json)
