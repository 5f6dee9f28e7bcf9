"""The checksum of the touched bytes: the same for all who hold the same data, and for no other."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecopy_bench.files import touch
from onecopy_bench.files.layout import Layout, Piece, read_layout


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
