"""Dicts whose keys have one hash: Python's hashes of numbers have no seed, so a file can choose them."""

import pytest

import onecopy as oc
import onecopy.records

PRIME = 2**61 - 1
"""hash(k * PRIME) == 0 for every integer k."""


def test_a_file_with_many_keys_of_one_hash_is_refused(tmp_path):
    saved, chosen = [2**90 + k for k in range(300)], [(2**30 + k) * PRIME for k in range(300)]
    onecopy.records.save(tmp_path / "rows", [{"m": dict.fromkeys(saved, 1), "x": {1: 2}}])
    data = (tmp_path / "rows").read_bytes()
    for number, other in zip(saved, chosen, strict=True):
        data = data.replace(number.to_bytes(12, "little"), other.to_bytes(12, "little"))
    (tmp_path / "rows").write_bytes(data)
    with (
        oc.open_records(tmp_path / "rows") as rows,
        pytest.raises(oc.FormatError, match="keys with the same hash") as caught,
    ):
        rows[0]
    assert caught.value.kind is oc.FormatError.Kind.TOO_COSTLY


@pytest.mark.parametrize(
    "keys",
    [[2**k for k in range(20_000)], [(2**k,) for k in range(20_000)], [*range(1000), *(k * PRIME for k in range(300))]],
    ids=["powers of two", "tuples", "some of many"],
)
def test_a_dict_that_could_not_be_read_again_is_not_saved(tmp_path, keys):
    with pytest.raises(oc.errors.NotShareable, match="more than 256 keys with the same hash"):
        onecopy.records.save(tmp_path / "rows", [{"m": dict.fromkeys(keys, 1), "x": {1: 2}}])


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
