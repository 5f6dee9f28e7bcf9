"""`Schema`: the type of rows as a tree."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Schema"]


class Schema(NamedTuple):
    """The type of the values at one position in the rows, with the types below it; printed, it has one line per field.

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
    """Size of an integer in bytes, 1 to 8; 0 for other kinds."""
    name: str
    """Name of the type of an extension, or of the dtype of an array; empty for other kinds."""
    ndim: int
    """Number of dimensions of an array; 0 for other kinds."""
    fields: tuple[str, ...]
    """Keys of a record, in the order of `children`; empty for other kinds."""
    children: tuple[Schema, ...]
    """Types of the elements, fields or alternatives."""

    def __str__(self) -> str:
        return "\n".join(_lines(self)) if self.kind == "record" and self.fields else _text(self)

    @property
    def line(self) -> str:
        """The type as one line of text, without the fields of dicts."""
        return _text(self)

    def field(self, name: str) -> Schema:
        """Return the type of a field of a record; KeyError if there is no such field."""
        if name not in self.fields:
            raise KeyError(name)
        return self.children[self.fields.index(name)]


def schema_of(parts: tuple[Any, ...]) -> Schema:
    """Return the schema for the nested tuples of the compiled module."""
    kind, nullable, width, name, ndim, fields, children = parts
    below = tuple(schema_of(child) for child in children)
    return Schema(kind, nullable, width if kind == "integer" else 0, name, ndim, tuple(fields), below)


def _lines(record: Schema) -> list[str]:
    """Return one line per field of a record, each followed by the indented lines of its own fields."""
    lines = []
    for field, child in zip(record.fields, record.children, strict=True):
        lines.append(f"{field}: {_text(child)}")
        nested = _innermost(child)
        if nested.kind == "record":
            lines += [f"  {line}" for line in _lines(nested)]
    return lines


def _innermost(schema: Schema) -> Schema:
    while schema.kind in {"list", "tuple", "extension"}:
        schema = schema.children[0]
    return schema


def _text(schema: Schema) -> str:
    text = _name(schema)
    return f"{text} | None" if schema.nullable and schema.kind != "null" else text


def _name(schema: Schema) -> str:
    below = [_text(child) for child in schema.children]
    names = {
        "null": "None",
        "boolean": "bool",
        "integer": f"int{8 * schema.width}",
        "bigint": "int",
        "real": "float",
        "record": "dict",
        "array": f"array[{schema.name}, {schema.ndim}d]",
        "extension": schema.name,
    }
    if schema.kind in names:
        return names[schema.kind]
    if schema.kind == "choice":
        return " | ".join(below)
    if schema.kind == "tuple":
        return f"tuple[{below[0]}, ...]"
    word = {"fixed": "tuple", "map": "dict"}.get(schema.kind, schema.kind)
    return f"{word}[{', '.join(below)}]" if below else word
