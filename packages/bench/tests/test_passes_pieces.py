"""Which part of a file is touched."""

from itertools import pairwise

from hypothesis import given, strategies as st

from onecopy_bench.scenarios.passes import LEAST, MOST, PAGE, choose, cut


@given(st.integers(1, 40 << 20), st.integers(0, 5))
def test_the_pieces_of_a_file_cover_each_byte_once(size, seed):
    pieces = cut(size, seed)
    assert pieces[0].offset == 0
    assert pieces[-1].offset + pieces[-1].nbytes == size
    assert all(a.offset + a.nbytes == b.offset for a, b in pairwise(pieces))
    assert all(LEAST <= piece.nbytes <= MOST and piece.nbytes % PAGE == 0 for piece in pieces[:-1])


@given(st.integers(1, 40 << 20), st.floats(0.001, 1), st.sampled_from(["file", "shuffled"]))
def test_a_share_is_met_to_the_page_and_touches_no_byte_twice(size, share, order):
    chosen = choose(cut(size), share, order)
    assert share * size - 1 <= sum(piece.nbytes for piece in chosen) < share * size + PAGE + 1
    ranges = sorted((piece.offset, piece.offset + piece.nbytes) for piece in chosen)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ranges))
    assert ranges[-1][1] <= size


def test_a_smaller_share_is_part_of_a_larger_one():
    pieces = cut(50 << 20)
    small, large = ({p.name for p in choose(pieces, share, "file")} for share in (0.05, 0.25))
    assert small < large
