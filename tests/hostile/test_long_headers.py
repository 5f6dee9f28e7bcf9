"""Long headers that are valid: they open in memory and time that grow with their length, up to documented limits."""

import functools
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.hostile.test_hostile_files import peak
from tests.support.children import call_in_child

import onecopy as oc
import onecopy.records
from onecopy.arrays import open_arrays

# Memory and CPU time are bounded here, and a sanitizer takes several times as much of both.
pytestmark = [pytest.mark.slow, pytest.mark.unsanitized, pytest.mark.timeout(300)]

MB = 1_000_000
LIMIT = 100 * MB  # of a safetensors header: docs/formats/file.md
NPY_LIMIT = MB
LENGTHS = {"tensors": LIMIT, "records": LIMIT}  # of the other kinds:
LENGTH = 20 * MB
TIMES_LONGER = 25  # for ten times the bytes: quadratic work would take a hundred times as long
MEMORY_PER_BYTE = 14
"""Of the peak, by byte of the header: it is mapped and copied, and two bytes of it can be a number of 8 bytes in a list
that doubles its capacity, when the old list and the new one are in memory: (8 + 16) / 2."""


def write_header(path: Path, header: str, data: int = 0, length: int | None = None) -> Path:
    """Write a safetensors file whose header is filled up with spaces to `length`, and `data` bytes of zeros."""
    text = header.encode().ljust(length or 0)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        file.truncate(file.tell() + data)
    return path


def of_tensors(path: Path, length: int, prefix: str = "") -> tuple[Path, str]:
    """Tensors of one byte each; the last of the header is the first of the data, so that they have to be sorted."""
    number = length // (72 + len(prefix))
    entry = '"%st%08d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    entries = ",".join(entry % (prefix, i, number - i - 1, number - i) for i in range(number))
    return write_header(path, f"{{{entries}}}", number, length), f"{prefix and chr(233)}t{number - 1:08}"


def one_entry(name: str = "a", shape: str = "1", more: str = "") -> str:
    return f'"{name}":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,1]{more}}}'


ONE_TENSOR: dict[str, Callable[[int], str]] = {
    "one name": lambda length: one_entry(name="n" * (length - 100)),
    "axes": lambda length: one_entry(shape="1," * (length // 2 - 50) + "1"),
    "unknown keys": lambda length: one_entry(more=',"x":[' + "[]," * (length // 3 - 50) + "{}]"),
    "texts": lambda length: (
        '"__metadata__":{' + ",".join(f'"{i:08}":"text"' for i in range(length // 18 - 10)) + "}," + one_entry()
    ),
}
"""The entries of long headers of one tensor, by their length."""


def of_one_tensor(path: Path, length: int, kind: str) -> tuple[Path, str]:
    write_header(path, f"{{{ONE_TENSOR[kind](length)}}}", 1, length)
    return path, "n" * (length - 100) if kind == "one name" else "a"


def of_gguf(path: Path, length: int) -> tuple[Path, str]:
    """GGUF has no limit of its own for the header, only for each name in it."""
    name, tensor = b"t%07d", struct.Struct("<Q8sIQIQ")
    number, alignment, f32 = length // tensor.size, 32, 0
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, number, 0))
        file.writelines(tensor.pack(8, name % i, 1, 8, f32, alignment * (number - i - 1)) for i in range(number))
        file.truncate(-(-file.tell() // alignment) * alignment + alignment * number)
    return path, f"t{number - 1:07}"


def of_records(path: Path, length: int) -> tuple[Path, str]:
    """One row of 900 columns; each name is in the schema and begins the names of the column's arrays."""
    names = [f"{i:06}".ljust(length // 2000, "n") for i in range(900)]
    onecopy.records.save(path, [dict.fromkeys(names, 7)])
    return path, names[-1]


KINDS: dict[str, Callable[[Path, int], tuple[Path, str]]] = {
    "tensors": of_tensors,
    "escaped names": lambda path, length: of_tensors(path, length, "\\u00e9"),
    **{kind: functools.partial(of_one_tensor, kind=kind) for kind in ONE_TENSOR},
    "gguf": of_gguf,
    "records": of_records,
}


def look_up(path: Path, name: str) -> Any:
    with open_arrays(path) as file:
        if file.kind != "records":
            return file.entry(name).nbytes
    with oc.open_records(path, oc.records.List) as rows:
        return rows[0][name]


def cost(path: Path, name: str, small: Path) -> tuple[float, int]:
    """Open a file and look a name up; return CPU seconds and the growth of the peak, in bytes."""
    oc.open(small).close()  # what the first opening loads is no matter of the header
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, start = peak(), time.process_time()
    found = look_up(path, name)
    seconds = time.process_time() - start
    assert found in (1, 7, 32)
    return seconds, peak() - before


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_header_opens_in_linear_time_and_bounded_memory(tmp_path, kind):
    small = write_header(tmp_path / "small", f"{{{one_entry()}}}", 1)
    large = LENGTHS.get(kind, LENGTH)
    costs = {}
    for length in (large // 10, large):
        path, name = call_in_child(KINDS[kind], tmp_path / "long", length)
        assert path.stat().st_size > 0.8 * length
        costs[length] = min(call_in_child(cost, path, name, small) for _ in range(2))
        path.unlink()
    assert costs[large][0] < TIMES_LONGER * costs[large // 10][0], costs
    assert costs[large][1] < MEMORY_PER_BYTE * large, costs


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_the_limit_of_a_safetensors_header_is_exact(tmp_path, in_child, mode):
    path = write_header(tmp_path / "long", f"{{{one_entry()}}}", 1, LIMIT)
    assert in_child(lambda: list(oc.open(path, mode))) == ["a"]
    with path.open("r+b") as file:
        file.write(struct.pack("<Q", LIMIT + 1))
    os.truncate(path, path.stat().st_size + 1)
    with pytest.raises(oc.FormatError) as raised:
        oc.open(path, mode)
    assert str(raised.value).startswith(f"{path}: the header has {LIMIT + 1} bytes, more than the maximum of {LIMIT}")


def test_the_limit_of_an_npy_header_is_exact(tmp_path):
    path = tmp_path / "long.npy"
    head = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }"
    for length in (NPY_LIMIT, NPY_LIMIT + 1):
        path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", length) + head.ljust(length - 1).encode() + b"\n\x07")
        if length == NPY_LIMIT:
            assert [array.tolist() for array in oc.open(path).values()] == [[7]]
    with pytest.raises(oc.FormatError) as raised:
        oc.open(path)
    assert str(raised.value).startswith(f"{path}: npy: the header has {NPY_LIMIT + 1} bytes, more than the")


def test_save_writes_a_header_up_to_the_limit_and_refuses_a_longer_one(tmp_path, in_child):
    path = tmp_path / "long.safetensors"

    def write(length: int) -> None:
        oc.save(path, {"a": np.arange(5)}, metadata={"text": "x" * length})

    with pytest.raises(oc.FormatError, match="100 MB"):
        in_child(write, LIMIT)
    assert list(tmp_path.iterdir()) == []
    in_child(write, LIMIT - 4096)
    assert in_child(lambda: len(oc.open(path, verify=True).metadata["text"])) == LIMIT - 4096
