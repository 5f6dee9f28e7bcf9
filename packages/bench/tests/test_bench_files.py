"""Where the data of a file lies, and the checksum of the touched bytes: the same for all who hold the same data."""

import json
import zlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from onecopy_bench.files.layout import (
    Layout,
    Piece,
    checksum_of_file,
    combine,
    parse_safetensors,
    read_layout,
    touch_array,
)
from onecopy_bench.system import STRIDE


def naive(name: str, data: bytes) -> int:
    touched = bytes(data[at] for at in range(0, len(data), 4096)) + data[-1:]
    return zlib.crc32(name.encode() + touched)


def test_the_judge_and_an_array_agree_with_the_definition(model, tensors):
    expected = sum(naive(name, data) for name, data in tensors.items())
    arrays = [(name, np.frombuffer(data, np.uint8)) for name, data in tensors.items()]
    assert checksum_of_file(model, read_layout(model)) == expected
    assert combine(touch_array(*each) for each in arrays) == expected


@given(st.integers(0, 20_000), st.integers(0, 5000))
def test_every_page_that_a_piece_covers_holds_a_touched_byte(length, offset):
    touched = {*range(0, length, STRIDE), *([length - 1] if length else [])}
    pages = {(offset + at) // 4096 for at in range(length)}
    assert {(offset + at) // 4096 for at in touched} == pages


def test_a_file_that_ends_too_early_is_an_error_with_the_place(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"12345")
    with pytest.raises(EOFError, match="ends at byte 5; expected 2 more"):
        checksum_of_file(path, Layout("bytes", 7, (Piece("p", 0, 7),)))


def test_the_pieces_of_a_safetensors_file_are_the_bytes_that_were_written(model, tensors):
    layout = read_layout(model)
    data = model.read_bytes()
    assert layout.kind == "safetensors"
    assert {p.name: data[p.offset : p.offset + p.nbytes] for p in layout.pieces} == tensors
    assert layout.nbytes == sum(map(len, tensors.values()))


@pytest.mark.parametrize(
    "offsets", [[0], [0, 1, 2], [5, 4], [-1, 4], [0, 10**30], [0, "x"], None, {}, [0, 101]], ids=str
)
def test_offsets_that_lead_out_of_the_file_are_no_layout(offsets):
    header = json.dumps({"a": {"data_offsets": offsets}}).encode()
    assert parse_safetensors(header, 8 + len(header) + 100) is None


@given(st.binary(max_size=200), st.integers(0, 300))
def test_no_bytes_make_the_reader_fail(header, size):
    layout = parse_safetensors(header, size)
    assert layout is None or all(p.offset + p.nbytes <= size for p in layout.pieces)
