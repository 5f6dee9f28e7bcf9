"""The rows of `bench share`: what they are, that they come back, and that a wrong one is seen."""

import pickle
import sys

import pytest

from onecopy_bench.peers import missing, named
from onecopy_bench.rows import data, share as rank
from onecopy_bench.rows.share_peers import HOLDERS

TENSORS = {"TorchSerializedList", "torch handle"}


@pytest.fixture
def source(tmp_path) -> data.Source:
    return data.write(tmp_path, data.coco(2500))


def test_a_source_gives_back_what_was_written(source):
    rows = list(data.coco(2500))
    assert list(source.rows()) == rows
    assert source.pickled == sum(len(pickle.dumps(row, 5)) for row in rows)
    sums = source.sums()
    assert (len(sums), int(sums[0])) == (2501, 0)
    assert int(sums[7]) == sum(data.checksum(i, row) for i, row in enumerate(rows[:7]))


def test_a_checksum_depends_on_contents_types_order_and_place_alone():
    row = {"a": [1.5, 2.0], "b": "train"}
    shared = row["a"]
    assert data.checksum(0, [shared, shared]) == data.checksum(0, [[1.5, 2.0], [1.5, 2.0]])
    assert data.checksum(0, "ab" + str(1)) == data.checksum(0, sys.intern("ab1"))
    others = [{"b": "train", "a": [1.5, 2.0]}, {"a": [1.5, 2], "b": "train"}, {"a": (1.5, 2.0), "b": "train"}]
    assert len({data.checksum(0, each) for each in (row, *others)} | {data.checksum(1, row)}) == 5


@pytest.mark.parametrize("name", [one.name for one in HOLDERS if not one.name.startswith(("onecopy", "empty"))])
@pytest.mark.slow
def test_every_rival_gives_each_row_as_it_went_in(source, tmp_path, name):
    rival = named(HOLDERS, name)
    if lacks := missing(rival.needs):
        pytest.skip(f"not installed: {', '.join(lacks)}")
    rows = rival.ready(source, tmp_path)
    passed = rank.go_over(rows, limit_s=100)
    assert passed[1:3] == (2500, int(source.sums()[-1]))
    assert rows[2499] == list(source.rows())[-1]
    row, handle = rows[17], None if name in TENSORS else pickle.dumps(rows)
    if handle is not None:
        del rows  # LMDB is opened once in a process
        again = pickle.loads(handle)
        assert (len(again), again[17]) == (2500, row)
