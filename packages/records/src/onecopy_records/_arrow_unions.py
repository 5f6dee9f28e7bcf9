"""Convert Arrow unions to structs, for libraries that lack union types (datasets, polars).

A union value becomes a struct with one field per type in the union. Only the field for the value's own type is not
null. The conversion is lossless, and copies the values.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pyarrow as pa


def unions_as_structs(table: Any) -> Any:
    """Return a ``pyarrow.Table`` without unions; columns without unions are not copied.

    >>> import onecopy as oc
    >>> table = oc.share([{"shape": [1, 2]}, {"shape": {"side": 3}}, {"shape": None}]).to_arrow()
    >>> unions_as_structs(table)["shape"].to_pylist()
    [{'list': [1, 2], 'struct': None}, {'list': None, 'struct': {'side': 3}}, None]
    """
    for number, field in enumerate(table.schema):
        if _has_union(field.type):
            chunks = [_without_unions(chunk) for chunk in table.column(number).chunks]
            kind = chunks[0].type if chunks else _without_unions(pa.array([], field.type)).type
            table = table.set_column(number, _field(field, kind), pa.chunked_array(chunks, kind))
    return table


def _has_union(kind: Any) -> bool:
    return pa.types.is_union(kind) or any(_has_union(kind.field(number).type) for number in range(kind.num_fields))


def _field(field: Any, kind: Any) -> Any:
    """Return a copy of a field with type `kind` that allows nulls, which stand for a union's values of other types."""
    return field.with_type(kind).with_nullable(True)


def _without_unions(array: Any) -> Any:
    kind = array.type
    if not _has_union(kind):
        return array
    if pa.types.is_union(kind):
        return _struct_of_union(array)
    if pa.types.is_struct(kind):
        children = [_without_unions(array.field(number)) for number in range(kind.num_fields)]
        fields = [_field(kind.field(number), child.type) for number, child in enumerate(children)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    # Copy the offsets, because from_arrays rejects a mask together with the offsets of a slice.
    offsets = pa.array(np.array(array.offsets))
    mask = array.is_null() if array.null_count else None
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(offsets, array.keys, _without_unions(array.items), mask=mask)
    values = _without_unions(array.values)
    return type(array).from_arrays(offsets, values, mask=mask)


def _struct_of_union(array: Any) -> Any:
    kind = array.type
    # Read the buffers: in pyarrow 26, the type codes and offsets of a slice start at the first value of its parent.
    _, codes, offsets = (
        None if buffer is None else np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]
        for buffer, dtype in zip(array.buffers()[:3], ("u1", "i1", "i4"), strict=True)
    )
    children = []
    valid = np.zeros(len(array), bool)
    for number, code in enumerate(kind.type_codes):
        child = _without_unions(array.field(number)).take(pa.array(offsets, mask=codes != code))
        valid |= np.array(child.is_valid())
        children.append(child)
    fields = [
        _field(kind.field(number), child.type).with_name(name)
        for number, (name, child) in enumerate(zip(_names(children), children, strict=True))
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(~valid))


def _names(children: list[Any]) -> list[str]:
    """Return a name for each child: its type without the width, which depends on the values. Number duplicates."""
    names: list[str] = []
    for child in children:
        name = re.sub("^(large_|u(?=int))|(?<=int)[0-9]+|[<\\[].*", "", str(child.type)).replace("double", "float")
        number = itertools.count(2)
        own = name
        while own in names:
            own = f"{name}_{next(number)}"
        names.append(own)
    return names
