"""`Schema`, the type of a column with its nested types, and `Ragged`, a column of lists that is stored in arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Ragged", "Schema"]


class Schema(NamedTuple):
    """The type of the values at one position in the rows, with its nested types. When printed, it has a line per field.

    Examples
    --------
    >>> import onecopy as oc
    >>> print(oc.share([{"id": 1, "box": [0.5, 2.5], "tag": None}, {"id": 2, "box": [], "tag": "b"}]).schema)
    id: int8
    box: list[float]
    tag: text | None
    """

    kind: str
    """One of: null, boolean, integer, bigint, real (floats), number (floats and ints), text, bytes, list, tuple (of any
    length), fixed (a tuple with one type per element), record (a dict with str keys), map (any other dict), array,
    extension (an object stored as a plain value), choice (values of several types)."""
    nullable: bool
    """Whether some values are None, or the key is missing in some rows."""
    width: int
    """Size of an integer in bytes, from 1 to 8, or 0 for other kinds."""
    name: str
    """Name of an extension's type, or of an array's dtype; empty for other kinds."""
    ndim: int
    """An array's number of dimensions, or 0 for other kinds."""
    fields: tuple[str, ...]
    """Keys of a record, in the order of `children`; empty for other kinds."""
    children: tuple[Schema, ...]
    """Types of the elements, fields or alternatives."""

    def __str__(self) -> str:
        return "\n".join(self._lines()) if self.kind == "record" and self.fields else self.line

    @property
    def line(self) -> str:
        """The type as a single line of text, without the fields of dicts."""
        return f"{self._word()} | None" if self.nullable and self.kind != "null" else self._word()

    def field(self, name: str) -> Schema:
        """Return the type of a field of a record. Raise KeyError if there is no such field."""
        if name not in self.fields:
            raise KeyError(name)
        return self.children[self.fields.index(name)]

    def _lines(self) -> list[str]:
        """Return one line per field of a record, each followed by the indented lines of its own fields."""
        lines = []
        for field, child in zip(self.fields, self.children, strict=True):
            lines.append(f"{field}: {child.line}")
            while child.kind in {"list", "tuple", "extension"}:
                child = child.children[0]  # noqa: PLW2901
            if child.kind == "record":
                lines += [f"  {line}" for line in child._lines()]
        return lines

    def _word(self) -> str:
        below = [child.line for child in self.children]
        if self.kind == "choice":
            return " | ".join(below)
        if self.kind == "tuple":
            return f"tuple[{below[0]}, ...]"
        words = {
            "null": "None",
            "boolean": "bool",
            "integer": f"int{8 * self.width}",
            "bigint": "int",
            "real": "float",
            "fixed": "tuple",
            "record": "dict",
            "map": "dict",
            "array": f"array[{self.name}, {self.ndim}d]",
            "extension": self.name,
        }
        word = words.get(self.kind, self.kind)
        return f"{word}[{', '.join(below)}]" if below and self.kind in {"list", "fixed", "map"} else word


def schema_of(parts: tuple[Any, ...]) -> Schema:
    """Return the schema that nested tuples of the compiled module describe."""
    kind, nullable, width, name, ndim, fields, children = parts
    below = tuple(schema_of(child) for child in children)
    return Schema(kind, nullable, width if kind == "integer" else 0, name, ndim, tuple(fields), below)


class Ragged(NamedTuple):
    """Concatenated lists of different lengths: list i is ``values[offsets[i] : offsets[i + 1]]``."""

    values: Any
    """Values of all lists: an array; a Ragged for lists of lists; a dict of columns for lists of dicts; a tuple of
    columns for lists of tuples."""
    offsets: Any
    """An int64 array with one more element than there are lists. The first element is 0."""
