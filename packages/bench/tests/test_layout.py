"""Where the data of a file lies, judged by the bytes themselves."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecopy_bench.files import touch
from onecopy_bench.files.layout import one_piece, parse_safetensors, read_layout, shuffled


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
