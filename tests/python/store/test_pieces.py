"""Whatever the list of pieces contains, a partial file has only what its checksums say, and becomes whole."""

import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies as st

from onecopy.store.pieces import PartialFile, Ranges

SIZE = 200
CONTENT = bytes(range(SIZE))


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE))), st.integers(0, SIZE), st.integers(0, SIZE))
def test_ranges_are_a_set_of_bytes(added, start, stop):
    ranges, truth = Ranges(), set()
    for first, last in added:
        ranges.add(first, last)
        truth |= set(range(first, last))
    assert [at for first, last in ranges for at in range(first, last)] == sorted(truth)
    assert all(before[1] < after[0] for before, after in zip(list(ranges), list(ranges)[1:], strict=False))
    missing = [at for first, last in ranges.missing(start, stop) for at in range(first, last)]
    assert missing == sorted(set(range(start, stop)) - truth)
    assert ranges.size == len(truth)


@given(
    st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, 50)), max_size=6),
    st.binary(max_size=80) | st.just(struct.pack("<QQII", 0, 1 << 62, 0, 0)),
    st.integers(0, 200),
    st.booleans(),
    st.booleans(),
)
def test_any_damage_of_the_list_is_noticed(pieces, junk, at, is_cut, another_boot):
    with TemporaryDirectory() as folder:
        artefact, listed = Path(folder, "0.oc"), Path(folder, "0.pieces")
        partial = PartialFile(artefact, "key", SIZE)
        for start, length in pieces:
            partial.write(start, CONTENT[start : start + length])
        partial.close()
        text = listed.read_bytes()
        at = min(at, len(text))
        text = text[:at] if is_cut else text[:at] + junk + text[at + len(junk) :]
        if another_boot and text.count(b"\n") > 1:
            key, _, rest = text.split(b"\n", 2)
            text = b"\n".join([key, b"boot", rest])
        listed.write_bytes(text)
        partial = PartialFile(artefact, "key", SIZE)
        for start, stop in partial.have:
            assert partial.read(start, stop - start) == CONTENT[start:stop]
        for start, stop in list(partial.have.missing(0, SIZE)):
            partial.write(start, CONTENT[start:stop])
        partial.publish()
        partial.close()
        assert artefact.read_bytes() == CONTENT
        assert list(Path(folder).iterdir()) == [artefact]


def test_what_is_written_behind_the_pieces_before_the_file_is_published_loses_none(tmp_path):
    partial = PartialFile(tmp_path / "0.oc", "key", SIZE)
    partial.write(0, CONTENT)
    partial.write(SIZE, b"errors")
    partial.close()  # killed before it was published
    partial = PartialFile(tmp_path / "0.oc", "key", SIZE)
    assert partial.is_whole
    assert partial.read(0, SIZE) == CONTENT
    partial.close()


@pytest.mark.parametrize("torn", [b"torn", struct.pack("<QQII", 0, SIZE, 0, 0)], ids=["a part", "a wrong checksum"])
def test_pieces_written_after_a_torn_entry_are_known_in_the_next_session(tmp_path, torn):
    for start in (0, 50, 100):
        partial = PartialFile(tmp_path / "0.oc", "key", SIZE)
        assert partial.have.size == start
        partial.write(start, CONTENT[start : start + 50])
        partial.close()
        with (tmp_path / "0.pieces").open("ab") as listed:
            listed.write(torn)  # killed while it wrote an entry
