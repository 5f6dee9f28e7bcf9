"""Output of `onecopy ls` for a records file: the tree of types in its rows, with sizes and resident shares."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.cli import screen
from onecopy.cli.words import escape, share, size
from onecopy.records.columnar import Schema, schema_of
from onecopy.records.types import maker_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy.arrays.file import OneFile

_BELOW = {"list": ("item",), "tuple": ("item",), "map": ("key", "value"), "extension": ("storage",)}


@dataclass(frozen=True, slots=True)
class Place:
    """A node of the tree of types: the rows, a field of a dict or an item of a tuple."""

    depth: int
    """Depth in the tree; 0 for the rows."""
    name: str
    """Name of the field, or index in the tuple."""
    type: str
    """Type of the values."""
    nbytes: int
    """Size in bytes, with all nodes below."""
    cached: int | None
    """Bytes in the page cache, with all nodes below; None if unknown."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Contents of a records file: container, number of rows, and the nodes of the tree, parents first."""

    container: str
    rows: int
    places: tuple[Place, ...]

    def facts(self) -> dict[str, Any]:
        """Return the attributes for JSON."""
        return {"kind": "records", **asdict(self)}


@dataclass(slots=True)
class _Held:
    """Bytes of the buffers of a node and of all nodes below it."""

    nbytes: int = 0
    cached: int | None = 0
    below: dict[str, _Held] = field(default_factory=dict)

    def add(self, nbytes: int, cached: int | None) -> None:
        self.nbytes += nbytes
        self.cached = None if cached is None or self.cached is None else self.cached + cached


_NOTHING = _Held()


def tree_of(file: OneFile) -> Tree:
    """Return the tree of an open records file; FormatError if the file has no records."""
    source = _core.open_records(file.compiled, maker_of)
    rows = _core.Rows(source)
    schema = schema_of(rows._rows_type)
    held = _held_by(file)
    whole = Place(0, source.container, schema.line, held.nbytes, held.cached)
    places = list(_places(held, schema, 1))
    if source.container == "dict":
        words = {"0": "key", "1": "value"}
        places = [replace(place, name=words[place.name]) if place.depth == 1 else place for place in places]
    return Tree(source.container, len(rows), (whole, *places))


def _held_by(file: OneFile) -> _Held:
    """Return sizes and cached bytes by node. Cached bytes are those of whole pages, which neighbours may share."""
    whole = _Held()
    for entry in file.entries:
        if not entry.nbytes:
            continue
        cached = file.residency([entry.name]).cached
        at = whole
        for part in ("", *entry.name.removeprefix("records.0.").split(".")[:-1]):  # the last part names the buffer
            at = at.below.setdefault(part, _Held()) if part else at
            at.add(entry.nbytes, None if cached is None else min(cached, entry.nbytes))
    return whole


def _places(held: _Held, schema: Schema, depth: int) -> Iterator[Place]:
    """Yield the fields of dicts and the items of tuples at any depth below `schema`."""
    named = schema.kind in {"record", "fixed"}
    names = schema.fields if schema.kind == "record" else _BELOW.get(schema.kind, map(str, range(len(schema.children))))
    for name, child in zip(names, schema.children, strict=True):
        below = held.below.get(_escaped(name), _NOTHING)
        if named:
            yield Place(depth, name, child.line, below.nbytes, below.cached)
        yield from _places(below, child, depth + named)


def _escaped(name: str) -> str:
    """Return the name of a field as it is escaped in paths: see docs/formats/records.md."""
    return re.sub(r"[%.#\x00-\x1f\x7f]", lambda found: f"%{ord(found[0]):02X}", name)


COLUMNS = (
    screen.Column("rows"),
    screen.Column("type", folds=True),
    screen.Column("size", right=True),
    screen.Column("resident", right=True),
)


def grid_of(tree: Tree) -> screen.Grid:
    """Return the table: an indented line for each node, or one line for rows without fields."""
    grid = screen.Grid(COLUMNS)
    for place in tree.places[1:] or [replace(tree.places[0], depth=1, name="row")]:
        resident = share(place.cached, place.nbytes) if place.nbytes else "-"
        cells = (escape(place.name), escape(place.type), size(place.nbytes), resident)
        grid.rows.append(("  " * (place.depth - 1) + cells[0], *cells[1:]))
    return grid


def summary_of(tree: Tree) -> str:
    """Return the last line: container, rows, payload, resident share."""
    whole = tree.places[0]
    resident = share(whole.cached, whole.nbytes) if whole.nbytes else "-"
    return f"{tree.container} of {tree.rows:,} rows, {size(whole.nbytes)}, {resident} resident"
