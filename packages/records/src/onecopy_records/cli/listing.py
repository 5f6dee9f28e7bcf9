"""Lists the row types of a records file, for `onecopy ls`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from onecopy import _core
from onecopy.base.text import size
from onecopy.cli import options, screen
from onecopy.cli.ls import cached_of, heading_of, resident, show
from onecopy_records.schema import Schema, schema_of
from onecopy_records.types import maker_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy.arrays.file import OneFile

_BELOW = {"list": ("item",), "tuple": ("item",), "map": ("key", "value"), "extension": ("storage",)}


class Node(NamedTuple):
    """A node in the tree of types: the rows, a field of a dict, or an item of a tuple. Sizes include descendants."""

    depth: int
    name: str
    type: str
    nbytes: int
    cached: int | None


_Sizes = dict[tuple[str, ...], tuple[int, int | None]]


def _sizes_of(file: OneFile) -> _Sizes:
    """Return the number of bytes, and of cached bytes, of each node, by path."""
    sizes: _Sizes = {}
    for entry in file.entries:
        if not entry.nbytes:
            continue
        cached = cached_of(file, entry)
        path = tuple(entry.name.removeprefix("records.0.").split(".")[:-1])  # the last part names the buffer
        for depth in range(len(path) + 1):
            nbytes, known = sizes.get(path[:depth], (0, 0))
            both = None if cached is None or known is None else known + cached
            sizes[path[:depth]] = nbytes + entry.nbytes, both
    return sizes


def _nodes_below(sizes: _Sizes, path: tuple[str, ...], schema: Schema, depth: int) -> Iterator[Node]:
    """Yield the fields of dicts, and the items of tuples, at any depth below `schema`."""
    named = schema.kind in {"record", "fixed"}
    names = schema.fields if schema.kind == "record" else _BELOW.get(schema.kind, map(str, range(len(schema.children))))
    for name, child in zip(names, schema.children, strict=True):
        # escaped as in paths: see docs/formats/records.md
        below = (*path, re.sub(r"[%.#\x00-\x1f\x7f]", lambda found: f"%{ord(found[0]):02X}", name))
        if named:
            yield Node(depth, name, child.line, *sizes.get(below, (0, 0)))
        yield from _nodes_below(sizes, below, child, depth + named)


def show_records(file: OneFile, as_json: bool) -> None:
    """Print the types of rows, with an indented line for each field, or a single line if the rows have no fields."""
    source = _core.open_records(file.compiled, maker_of)
    rows, container, sizes = _core.Rows(source), source.container, _sizes_of(file)
    schema = schema_of(rows._rows_type)
    whole = Node(0, container, schema.line, *sizes.get((), (0, 0)))
    fields = list(_nodes_below(sizes, (), schema, 1))
    if container == "dict":
        words = {"0": "key", "1": "value"}
        fields = [node._replace(name=words[node.name]) if node.depth == 1 else node for node in fields]
    if as_json:
        nodes = [node._asdict() for node in (whole, *fields)]
        options.show_json({"kind": "records", "container": container, "rows": len(rows), "places": nodes})
        return
    grid = screen.Grid("rows type~ >size >resident")
    for node in fields or [whole._replace(name="row")]:
        name = "  " * (node.depth - 1) + node.name
        grid.add(name, node.type, size(node.nbytes), resident(node.cached, node.nbytes))
    summary = (
        f"{container} of {len(rows):,} rows, {size(whole.nbytes)}, {resident(whole.cached, whole.nbytes)} resident"
    )
    show(heading_of(file), grid, summary)
