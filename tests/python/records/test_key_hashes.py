"""Dicts whose keys have one hash: Python's hashes of numbers have no seed, so a file can choose them."""

import pytest

import onecopy as oc
import onecopy.records

PRIME = 2**61 - 1
"""hash(k * PRIME) == 0 for every integer k."""


def test_a_dict_with_many_keys_of_one_hash_is_refused(tmp_path):
    onecopy.records.save(tmp_path / "rows", [{"m": {k * PRIME: k for k in range(8, 308)}, "x": {1: 2}}])
    with oc.open_records(tmp_path / "rows") as rows, pytest.raises(oc.FormatError, match="keys of one hash") as caught:
        rows[0]
    assert caught.value.kind is oc.FormatError.Kind.TOO_COSTLY


@pytest.mark.parametrize(
    "keys",
    [
        [k * PRIME for k in range(8, 208)],
        [2**70 + k for k in range(1000)],
        [(k, k + 1) for k in range(1000)],
        [None, 1.5, "a", b"a", (1, "b"), 2**80, -1, -2],
    ],
    ids=["some of one hash", "large", "tuples", "mixed"],
)
def test_other_keys_come_back(tmp_path, keys):
    rows = [{"m": dict.fromkeys(keys, 1), "x": {1: 2}}]
    onecopy.records.save(tmp_path / "rows", rows)
    with oc.open_records(tmp_path / "rows") as opened:
        assert opened[0] == rows[0]


def test_a_slice_of_rows_is_inside_the_rows(tmp_path):
    onecopy.records.save(tmp_path / "rows", [{"a": i} for i in range(10)])
    with oc.open_records(tmp_path / "rows") as rows:
        for start, step, size in [(1 << 50, 1, 5), (0, 1 << 62, 3), (9, 1, 2), (0, -1, 2), (-1, 1, 1)]:
            with pytest.raises(ValueError, match="beyond the rows"):
                rows._rows_slice(start, step, size)
        assert [row["a"] for row in rows[9:2:-3]] == [9, 6, 3]
        assert [row["a"] for row in rows[4:5:7]] == [4]
