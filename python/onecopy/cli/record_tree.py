"""What `onecopy ls` shows of a records file: its rows as a tree of types, with sizes and how much is in memory."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.cli import screen
from onecopy.cli.words import plain, share, size
from onecopy.records.schema import Schema, schema_of
from onecopy.records.types import maker_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy.arrays.one_file import OneFile

_BELOW = {"list": ("item",), "tuple": ("item",), "map": ("key", "value"), "extension": ("storage",)}


@dataclass(frozen=True, slots=True)
class Place:
    """What is told about one place in the data; bytes with all that is below it, `cached` None where unknown."""

    depth: int
    name: str
    type: str
    nbytes: int
    cached: int | None


@dataclass(frozen=True, slots=True)
class Tree:
    """What a records file holds: container, number of rows, and its places, parents first."""

    container: str
    rows: int
    places: tuple[Place, ...]

    def facts(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {"kind": "records", **asdict(self)}


@dataclass(slots=True)
class _Held:
    """Bytes of the buffers of a place and of all below it."""

    nbytes: int = 0
    cached: int | None = 0
    below: dict[str, _Held] = field(default_factory=dict)

    def add(self, nbytes: int, cached: int | None) -> None:
        self.nbytes += nbytes
        self.cached = None if cached is None or self.cached is None else self.cached + cached


_NOTHING = _Held()


def tree_of(file: OneFile) -> Tree:
    """Look at an open records file; raises FormatError where it holds none."""
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
    """Sum sizes and what is cached, of each place: the kernel counts whole pages, shared by neighbours."""
    whole = _Held()
    for entry in file.entries:
        if not entry.nbytes:
            continue
        cached = file.residency([entry.name]).cached
        at = whole
        for part in ("", *entry.name.removeprefix("records.0.").split(".")[:-1]):  # the last is the buffer's own
            at = at.below.setdefault(part, _Held()) if part else at
            at.add(entry.nbytes, None if cached is None else min(cached, entry.nbytes))
    return whole


def _places(held: _Held, schema: Schema, depth: int) -> Iterator[Place]:
    """Return the fields of dicts and the places of tuples, wherever they are below `schema`."""
    named = schema.kind in {"record", "fixed"}
    names = schema.fields if schema.kind == "record" else _BELOW.get(schema.kind, map(str, range(len(schema.children))))
    for name, child in zip(names, schema.children, strict=True):
        below = held.below.get(_escaped(name), _NOTHING)
        if named:
            yield Place(depth, name, child.line, below.nbytes, below.cached)
        yield from _places(below, child, depth + named)


def _escaped(name: str) -> str:
    """Write the name of a field as paths have it: see docs/formats/records.md."""
    return re.sub(r"[%.#\x00-\x1f\x7f]", lambda found: f"%{ord(found[0]):02X}", name)


COLUMNS = (
    screen.Column("rows"),
    screen.Column("type", folds=True),
    screen.Column("size", right=True),
    screen.Column("resident", right=True),
)


def grid_of(tree: Tree) -> screen.Grid:
    """Return the table: a line for each place, further right than its parent; for rows without fields, one."""
    grid = screen.Grid(COLUMNS)
    for place in tree.places[1:] or [replace(tree.places[0], depth=1, name="row")]:
        resident = share(place.cached, place.nbytes) if place.nbytes else "-"
        cells = (plain(place.name), plain(place.type), size(place.nbytes), resident)
        grid.rows.append(("  " * (place.depth - 1) + cells[0], *cells[1:]))
    return grid


def summary_of(tree: Tree) -> str:
    """Return the last line: container, rows, payload, resident share."""
    whole = tree.places[0]
    resident = share(whole.cached, whole.nbytes) if whole.nbytes else "-"
    return f"{tree.container} of {tree.rows:,} rows, {size(whole.nbytes)}, {resident} resident"
