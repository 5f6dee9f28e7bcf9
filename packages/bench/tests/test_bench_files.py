"""Where the data of a file lies, and the checksum of the touched bytes: the same for all who hold the same data."""

import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from onecopy_bench.files import touch
from onecopy_bench.files.layout import Layout, Piece, one_piece, parse_safetensors, read_layout, shuffled


def naive(name: str, data: bytes) -> int:
    touched = bytes(data[at] for at in range(0, len(data), 4096)) + data[-1:]
    return zlib.crc32(name.encode() + touched)


def test_the_judge_and_an_array_agree_with_the_definition(model, tensors):
    expected = sum(naive(name, data) for name, data in tensors.items())
    arrays = [(name, np.frombuffer(data, np.uint8)) for name, data in tensors.items()]
    assert touch.of_file(model, read_layout(model)) == expected
    assert touch.of_arrays(arrays) == expected
    assert touch.of_arrays(reversed(arrays)) == expected


def test_pieces_longer_than_one_read_are_sampled_across_its_end(tmp_path):
    data = np.random.default_rng(2).bytes(2 * touch.READ + 4097)
    path = tmp_path / "long"
    path.write_bytes(b"123" + data)
    layout = Layout("bytes", len(data) + 3, (Piece("p", 3, len(data)),))
    assert touch.of_file(path, layout) == naive("p", data)


@pytest.mark.parametrize("at", [0, 4096, 8192, 12_287])
def test_another_byte_at_a_touched_place_is_another_checksum(at):
    data = np.zeros(12_288, np.uint8)
    before = touch.of_array("p", data)
    data[at] ^= 1
    assert touch.of_array("p", data) != before


@given(st.integers(0, 20_000), st.integers(0, 5000))
def test_every_page_that_a_piece_covers_holds_a_touched_byte(length, offset):
    touched = {*range(0, length, touch.STRIDE), *([length - 1] if length else [])}
    pages = {(offset + at) // 4096 for at in range(length)}
    assert {(offset + at) // 4096 for at in touched} == pages


def test_a_file_that_ends_too_early_is_an_error_with_the_place(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"12345")
    with pytest.raises(EOFError, match="ends at byte 5; 2 more"):
        touch.of_file(path, Layout("bytes", 7, (Piece("p", 0, 7),)))


def test_the_pieces_of_a_safetensors_file_are_the_bytes_that_were_written(model, tensors):
    layout = read_layout(model)
    data = model.read_bytes()
    assert layout.kind == "safetensors"
    assert {p.name: data[p.offset : p.offset + p.nbytes] for p in layout.pieces} == tensors
    assert layout.nbytes == sum(map(len, tensors.values()))


def test_any_other_file_is_one_piece_from_its_first_byte_to_its_last(tmp_path):
    for content in (b"", b"x", b"\x00" * 8, b"\xff" * 100, struct.pack("<Q", 2) + b"{}" + b"data"):
        path = tmp_path / "file"
        path.write_bytes(content)
        layout = read_layout(path)
        assert layout == one_piece(len(content))
        assert [(p.offset, p.nbytes) for p in layout.pieces] == [(0, len(content))]


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


def test_a_shuffled_layout_has_the_same_pieces_in_an_order_of_its_seed(model):
    layout = read_layout(model)
    first, again, other = (shuffled(layout, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first.pieces, key=lambda p: (p.offset, p.name)) == list(layout.pieces)
    assert first.pieces != layout.pieces
    assert touch.of_file(model, first) == touch.of_file(model, layout)
