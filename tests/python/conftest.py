"""Files of named arrays, written with the lines of the format's own README."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.places import ROOT

Tensors = dict[str, tuple[str, list[int], bytes]]


@pytest.fixture
def write_tensors(tmp_path: Path) -> Callable[..., Path]:
    """Write names to (dtype, shape, bytes) as a safetensors file whose data begins at byte 4096 or later."""

    def make(tensors: Tensors, metadata: dict[str, str] | None = None, name: str = "foreign.safetensors") -> Path:
        table: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
        at = 0
        for key, (dtype, shape, data) in tensors.items():
            table[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
            at += len(data)
        header = json.dumps(table).encode().ljust(4096 - 8)
        path = tmp_path / name
        path.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(data for _, _, data in tensors.values()))
        return path

    return make


@pytest.fixture
def bench_structs() -> Path:
    """The C++ program of any build of this checkout, an optimised one first; skips where there is none of today."""
    root = ROOT
    newest = max(path.stat().st_mtime for path in (root / "benchmarks/cpp").iterdir())
    built = [path for path in root.glob("build/*/benchmarks/bench_structs") if path.stat().st_mtime >= newest]
    if not built:
        pytest.skip(
            "bench_structs is not built, or older than its source: cmake --preset dev, cmake --build --preset dev"
        )
    return max(built, key=lambda path: "release" in path.parts)
