"""What rows are made of: a tree of types, to be read by people."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Schema"]


class Schema(NamedTuple):
    """The type of one place in the data, and of what is below it. As text it is a line per field.

    Examples
    --------
    >>> import onecopy as oc
    >>> print(oc.share([{"id": 1, "box": [0.5, 2.5], "tag": None}, {"id": 2, "box": [], "tag": "b"}]).schema)
    id: int8
    box: list[float]
    tag: text | None
    """

    kind: str
    """null, boolean, integer, bigint, real (floats), number (floats and ints), text, bytes, list, tuple (of any
    length), fixed (a tuple with a type for each place), record (a dict with str keys), map (another dict), array,
    extension (an object that a plain value stands for) or choice (one of several types)."""
    nullable: bool
    """There are None, or keys that some rows do not have."""
    width: int
    """Bytes of an integer, 1 to 8."""
    name: str
    """Of an extension its type, of an array its dtype."""
    ndim: int
    """Of an array."""
    fields: tuple[str, ...]
    """Of a record, the names of its children."""
    children: tuple[Schema, ...]

    def __str__(self) -> str:
        return "\n".join(_lines(self)) if self.kind == "record" and self.fields else _text(self)

    @property
    def line(self) -> str:
        """The type in one line, without the fields of dicts."""
        return _text(self)

    def field(self, name: str) -> Schema:
        """Return the type of a field of a record; KeyError when there is none."""
        if name not in self.fields:
            raise KeyError(name)
        return self.children[self.fields.index(name)]


def schema_of(parts: tuple[Any, ...]) -> Schema:
    """Make one of what the compiled half says."""
    kind, nullable, width, name, ndim, fields, children = parts
    below = tuple(schema_of(child) for child in children)
    return Schema(kind, nullable, width if kind == "integer" else 0, name, ndim, tuple(fields), below)


def _lines(record: Schema) -> list[str]:
    """Write a line for each field, and below it those of its own fields."""
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
