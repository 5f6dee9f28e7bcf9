"""What `onecopy ls` shows of a records file: its rows as a tree of types, with sizes and how much is in memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.cli import screen
from onecopy.cli.words import plain, share, size
from onecopy.records.types import resolve_imported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy.arrays import ArrayFile

_WITH_WIDTH = {"integer", "real", "number"}


@dataclass(frozen=True, slots=True)
class Node:
    """What is told about one place in the data; bytes are of its own buffers, `cached` None where unknown."""

    depth: int
    name: str
    type: str
    values: int
    nullable: bool
    path: str
    nbytes: int
    cached: int | None


def nodes_of(file: ArrayFile) -> list[Node]:
    """Return the places of an open records file, parents first; raises FormatError where it holds no records."""
    buffers: dict[str, list[Any]] = {}
    for entry in file.entries:
        buffers.setdefault(entry.name.rpartition(".")[0], []).append(entry)
    nodes = []
    for depth, name, kind, values, nullable, path in _core.describe_records(_source_of(file)):
        own = buffers.get(path, [])
        nbytes = sum(entry.nbytes for entry in own)
        width = next((f" {entry.dtype}" for entry in own if kind in _WITH_WIDTH and entry.name.endswith(".data")), "")
        nodes.append(Node(depth, name, kind + width, values, nullable, path, nbytes, _cached_of(file, own)))
    return nodes


def _source_of(file: ArrayFile) -> _core.RecordSource:
    return _core.open_records(file.compiled, resolve_imported)


def _cached_of(file: ArrayFile, entries: Sequence[Any]) -> int | None:
    """Sum what is cached; the kernel counts whole pages, shared by neighbours."""
    parts = [(file.residency([entry.name]).cached, entry.nbytes) for entry in entries if entry.nbytes]
    known = [min(cached, nbytes) for cached, nbytes in parts if cached is not None]
    return sum(known) if len(known) == len(parts) else None


COLUMNS = (
    screen.Column("rows"),
    screen.Column("type"),
    screen.Column("values", right=True),
    screen.Column("None"),
    screen.Column("size", right=True),
    screen.Column("resident", right=True),
)


def grid_of(nodes: Sequence[Node]) -> screen.Grid:
    """Return the table: a line for each place, further right than its parent."""
    grid = screen.Grid(COLUMNS)
    for node in nodes:
        name = "  " * node.depth + plain(node.name)
        resident = share(node.cached, node.nbytes) if node.nbytes else "-"
        some = "some" if node.nullable else ""
        grid.rows.append((name, plain(node.type), f"{node.values:,}", some, size(node.nbytes), resident))
    return grid


def container_of(file: ArrayFile) -> str:
    """Return what the rows are: "list" or "dict"."""
    return _source_of(file).container


def facts_of(file: ArrayFile, nodes: Sequence[Node]) -> dict[str, Any]:
    """Return everything for JSON."""
    return {
        "kind": "records",
        "container": container_of(file),
        "rows": nodes[0].values,
        "nbytes": sum(node.nbytes for node in nodes),
        "types": [asdict(node) for node in nodes],
    }


def summary_of(file: ArrayFile, nodes: Sequence[Node]) -> str:
    """Return the last line: container, rows, payload, resident share."""
    total = sum(node.nbytes for node in nodes)
    known = [node.cached for node in nodes if node.cached is not None]
    resident = share(sum(known) if len(known) == len(nodes) else None, total) if total else "-"
    return f"{container_of(file)} of {nodes[0].values:,} rows, {size(total)}, {resident} resident"
