"""Losslessly convert Arrow times from nanoseconds to microseconds, the unit of Python's times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute, types

from onecopy.errors import FormatError, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator


def in_microseconds(path: str, batch: Any) -> Any:
    """Convert a batch's times to microseconds. Raise FormatError if that would lose nanoseconds."""
    for number, field in enumerate(batch.schema):
        kind = _microseconds(field.type)
        if kind != field.type:
            try:
                batch = batch.set_column(number, field.with_type(kind), batch.column(number).cast(kind))
            except ValueError as error:  # ArrowInvalid
                raise _nanoseconds(path, field.name, error) from error
    return batch


def _microseconds(kind: Any) -> Any:
    """Replace nanoseconds with microseconds in an Arrow type, including nested types."""

    def inner(field: Any) -> Any:
        return field.with_type(_microseconds(field.type))

    if types.is_struct(kind):
        kind = pa.struct([inner(field) for field in kind])
    elif types.is_map(kind):
        kind = pa.map_(inner(kind.key_field), inner(kind.item_field))
    elif types.is_fixed_size_list(kind):
        kind = pa.list_(inner(kind.value_field), kind.list_size)
    elif types.is_list(kind) or types.is_large_list(kind):
        kind = (pa.list_ if types.is_list(kind) else pa.large_list)(inner(kind.value_field))
    elif getattr(kind, "unit", "") == "ns":
        others = pa.duration("us") if types.is_duration(kind) else pa.time64("us")
        kind = pa.timestamp("us", kind.tz) if types.is_timestamp(kind) else others
    return kind


def exact(path: str, fine: Any, coarse: Any) -> Any:
    """Return `coarse`, the batch in microseconds. Raise FormatError if the conversion lost nanoseconds.

    Timestamps of type INT96 can represent any day. In nanoseconds, they wrap around outside of the years 1677 to 2262.
    The difference between the two batches wraps around, too, and is therefore the lost part.
    """
    for name, *pair in zip(coarse.schema.names, fine.columns, coarse.columns, strict=True):
        for exact, rounded in zip(*map(_leaves, pair), strict=True):
            if exact.type != rounded.type:
                rest = compute.subtract(exact.cast("int64"), compute.multiply(rounded.cast("int64"), 1000))
                if compute.any(compute.not_equal(rest, 0)).as_py():
                    raise _nanoseconds(path, name, "a timestamp of type INT96 has nanoseconds")
    return coarse


def _leaves(array: Any) -> Iterator[Any]:
    """Yield the arrays of numbers, text and bytes in a possibly nested Arrow array."""
    if not array.type.num_fields:
        yield array
        return
    parts = array.flatten()
    for part in parts if isinstance(parts, list) else [parts]:
        yield from _leaves(part)


def _nanoseconds(path: str, column: str, what: object) -> FormatError:
    return FormatError(
        f"column {column!r}: {what}, but Python's times are in microseconds: cast the column to microseconds or int64 "
        "with pyarrow, and share the rows of the result",
        Kind.UNSUPPORTED,
        path=path,
    )
