"""Records files written byte by byte from docs/formats/records.md, and those of a builder in memory."""

import json
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.safetensors_files import Tensors, bytes_of

from onecopy import _core
from onecopy.arrays import ArrayFile, open_arrays


def node(kind: str, length: int, *below: list[dict[str, Any]], **more: object) -> list[dict[str, Any]]:
    """Return a type with those below it, as they stand in a schema."""
    own = {"kind": kind, "length": length, **more} | ({"children": len(below)} if below else {})
    return [own, *(one for types in below for one in types)]


def file_of_rows(types: list[dict[str, Any]], buffers: Tensors, container: str = "list") -> bytes:
    """Return a records file without checksums; `buffers` by their path below the rows."""
    about = {"version": 1, "kind": "records", "schema": {"container": container, "types": types}}
    named = {f"records.0.{name}": tensor for name, tensor in buffers.items()}
    return bytes_of(named, {"onecopy": json.dumps(about)})


def numbers(code: str, values: Sequence[int]) -> tuple[str, list[int], bytes]:
    """Return a buffer of numbers, by their code of `struct`."""
    dtype: Mapping[str, str] = {"b": "I8", "i": "I32", "q": "I64", "B": "U8", "H": "U16", "Q": "U64"}
    return dtype[code], [len(values)], struct.pack(f"<{len(values)}{code}", *values)


def file_of_builder(builder: _core.RecordBuilder) -> ArrayFile:
    """Return the rows of a builder as a file in memory, which ends with the open file."""
    descriptor = builder.save_to_memory("rows")
    assert descriptor is not None
    try:
        return open_arrays(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
