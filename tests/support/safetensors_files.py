"""Safetensors files written byte by byte from the format's README: https://github.com/huggingface/safetensors#format."""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

Tensors = Mapping[str, tuple[str, Sequence[int], bytes]]
"""Name -> (dtype, shape, data)."""


def file_of(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """Return a file with this header, right or wrong; `length` is what its first eight bytes give as its length."""
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def bytes_of(tensors: Tensors, metadata: Mapping[str, str] | None = None, *, header_size: int = 0) -> bytes:
    """Return a file of `tensors` in their order; its header is filled up with spaces to `header_size` bytes."""
    table: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    return file_of(json.dumps(table).encode().ljust(header_size), b"".join(data for _, _, data in tensors.values()))


def write_safetensors(path: Path, data: Mapping[str, bytes], dtype: str = "U8") -> Path:
    """Write tensors of one dimension, an element a byte."""
    path.write_bytes(bytes_of({name: (dtype, [len(text)], text) for name, text in data.items()}))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the path of a file that is not there yet."""
    return tmp_path / "model.safetensors"


@pytest.fixture
def write_tensors(tmp_path: Path) -> Callable[..., Path]:
    """Give a function (tensors, metadata=None, name="foreign.safetensors"); the data begins at byte 4096."""

    def write(tensors: Tensors, metadata: dict[str, str] | None = None, name: str = "foreign.safetensors") -> Path:
        path = tmp_path / name
        path.write_bytes(bytes_of(tensors, metadata, header_size=4096 - 8))
        return path

    return write
