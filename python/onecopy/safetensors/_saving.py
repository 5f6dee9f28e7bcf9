"""Writing safetensors files by `onecopy.save`, and their bytes as safetensors itself lays them out."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

from onecopy.arguments import path_text
from onecopy.arrays import dtypes, saving
from onecopy.errors import FormatError
from onecopy.safetensors._opening import SafetensorError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

_RANKS = {one.name: rank for rank, one in enumerate(dtypes.TYPES)}
"""The order of element types by which safetensors sorts arrays, the last one first."""


def write(path: str | os.PathLike[str], values: Mapping[str, Any], metadata: Mapping[str, str] | None) -> None:
    """Write arrays or CPU tensors by `onecopy.save`; SafetensorError for what the format cannot hold."""
    _described(values)
    try:
        saving.save(path, values, metadata)
    except FormatError as error:
        raise SafetensorError(f"{path_text(path)}: {error}") from error


def serialized(values: Mapping[str, Any], metadata: Mapping[str, str] | None) -> bytes:
    """Return arrays or CPU tensors as the bytes of a safetensors file, equal to those of safetensors."""
    specs = sorted(_described(values), key=lambda spec: (-_RANKS[spec[1]], spec[0]))
    saving.check_texts([name for name, _, _ in specs], metadata)
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, dtype, shape in specs:
        begin, end = end, end + prod(shape) * dtypes.item_size(dtype)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    data: Iterator[Any] = (chunk for name, _, _ in specs for chunk in saving.chunks(name, values[name]))
    return b"".join([len(text).to_bytes(8, "little"), text, *data])


def _described(values: Mapping[str, Any]) -> list[saving.Spec]:
    if "__metadata__" in values:
        raise SafetensorError("the name '__metadata__' is reserved by the format")
    try:
        return [saving.describe(name, value) for name, value in values.items()]
    except TypeError as error:
        raise SafetensorError(str(error)) from None
