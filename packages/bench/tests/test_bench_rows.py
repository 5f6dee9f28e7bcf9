"""The rows of `bench share` and `bench records`: what they are, that they come back, and that a wrong one is seen."""

import pickle
import statistics
import sys
from itertools import islice

import pytest

from onecopy_bench.engine.ways import missing
from onecopy_bench.scenarios.rows import data, ways, work
from onecopy_bench.scenarios.rows.peers import files, heap
from onecopy_bench.scenarios.rows.peers.table import SHARED, peer_named

TENSORS = {"TorchSerializedList", "torch handle"}


@pytest.fixture
def source(tmp_path):
    """Write a few rows of a kind."""

    def make(kind="coco", count=2500) -> data.Source:
        return data.write(tmp_path, kind, data.rows_of(kind, count))

    return make


@pytest.mark.slow
def test_made_up_annotations_have_the_statistics_of_the_published_file():
    rows = list(islice(data.coco(data.COCO_ROWS), 50_000))
    numbers = sorted(len(row["segmentation"][0]) for row in rows)
    assert statistics.mean(numbers) == pytest.approx(50.6, abs=0.1)
    assert statistics.mean(len(pickle.dumps(row, 5)) for row in rows) == pytest.approx(610, abs=1)
    assert [numbers[len(numbers) * percent // 100] for percent in (50, 90, 99)] == pytest.approx(
        [42, 94, 180], rel=0.02
    )
    assert numbers[0] == 8
    assert numbers[-1] <= 726
    assert [row["id"] for row in rows[:3]] == [100_000, 100_001, 100_002]
    assert all(0 <= value < 640 for row in rows[:100] for value in row["segmentation"][0])
    assert {row["iscrowd"] for row in rows} == {0}
    assert {1, 90} <= {row["category_id"] for row in rows} <= set(range(1, 91))


def test_real_annotations_begin_again_at_their_end():
    data_folder = data.os.environ.get("ONECOPY_TEST_DATA")
    try:
        path = data.find_coco()
    except FileNotFoundError:
        pytest.skip(f"no real annotations in {data_folder or '../shared/data'}")
    rows = list(data.real(1000, path))
    assert rows[0] == rows[739]
    assert any(isinstance(row["segmentation"], dict) for row in rows)  # run lengths
    assert any(len(row["segmentation"]) > 1 for row in rows if isinstance(row["segmentation"], list))


@pytest.mark.parametrize("kind", ["coco", "pairs", "strings", "keyed"])
def test_a_source_gives_back_what_was_written(source, kind):
    written = source(kind)
    rows = list(data.rows_of(kind, 2500))
    assert list(written.rows()) == rows
    assert written.pickled == sum(len(pickle.dumps(row, 5)) for row in rows)
    sums = written.sums()
    assert (len(sums), int(sums[0])) == (2501, 0)
    assert int(sums[7]) == sum(data.checksum(i, row) for i, row in enumerate(rows[:7]))
    assert written.chosen([3, 2000]) == {3: rows[3], 2000: rows[2000]}


def test_a_checksum_depends_on_contents_types_order_and_place_alone():
    row = {"a": [1.5, 2.0], "b": "train"}
    shared = row["a"]
    assert data.checksum(0, [shared, shared]) == data.checksum(0, [[1.5, 2.0], [1.5, 2.0]])
    assert data.checksum(0, "ab" + str(1)) == data.checksum(0, sys.intern("ab1"))
    others = [{"b": "train", "a": [1.5, 2.0]}, {"a": [1.5, 2], "b": "train"}, {"a": (1.5, 2.0), "b": "train"}]
    assert len({data.checksum(0, each) for each in (row, *others)} | {data.checksum(1, row)}) == 5


@pytest.mark.parametrize("name", [peer.name for peer in SHARED if not peer.name.startswith(("onecopy", "empty"))])
@pytest.mark.parametrize("kind", ["coco", "pairs", "strings"])
@pytest.mark.slow
def test_every_peer_gives_each_row_as_it_went_in(source, tmp_path, kind, name):
    peer = peer_named(name)
    if lacks := missing(peer.needs):
        pytest.skip(f"not installed: {', '.join(lacks)}")
    if "freeze" in name:
        pytest.skip("would freeze the garbage of these tests: bench share runs it in a process of its own")
    written = source(kind)
    rows = peer.ready(written, tmp_path)
    passed = work.go_over(rows, limit_s=100)
    assert passed[1:3] == (2500, int(written.sums()[-1]))
    assert rows[2499] == list(written.rows())[-1]
    row, handle = rows[17], None if name in TENSORS else pickle.dumps(rows)
    if handle is not None:
        del rows  # LMDB is opened once in a process
        again = pickle.loads(handle)
        assert (len(again), again[17]) == (2500, row)


def test_what_is_kept_is_built_once(source, tmp_path):
    written, built = source("strings"), []
    build = files.kept(lambda _, place: built.append(place), lambda _: _Counted())
    for _ in range(2):
        build(written, tmp_path)
    assert built == [tmp_path / "built"]


class _Counted:
    def look(self) -> None:
        pass


def test_a_pass_stops_when_its_time_is_up(source):
    written = source()
    passed = work.go_over(list(written.rows()), limit_s=0)
    assert passed.rows == work.STRETCH
    assert passed.total == int(written.sums()[work.STRETCH])


@pytest.mark.parametrize(
    "case", [case for case in ways.CASES if case.subject in {"index", "batch"}], ids=lambda c: c.name
)
def test_right_answers_are_taken_for_right_and_others_are_not(source, case):
    written = source(case.kind, 600)
    positions = ways.draw(written, 300, seed=1)
    right = ways.right_answer(case, written, positions)
    rows = written.chosen(positions)
    way = ways.Way("mine", heap.LIST, "")
    asked = ways.subjects(case, positions, written.count)
    picked = [case.pick(rows[position]) for position in positions]
    answers = picked if case.subject == "index" else [picked[at : at + ways.BATCH] for at in range(0, 300, ways.BATCH)]
    assert len(asked) == len(answers)
    assert ways.judged(case, way, answers, positions, written.count) == right
    assert ways.judged(case, way, answers[::-1] if len(answers[0:2]) < 2 else answers, positions[::-1], 600) != right


def test_a_sampler_that_gives_an_index_twice_is_wrong():
    case = ways.case_named("shuffle")
    way = ways.Way("mine", heap.LIST, "")
    found = ways.right_answer(case, data.Source("", "strings", 10, 80), range(4))
    assert ways.judged(case, way, [3, 1, 2, 0], range(4), 10) == found
    assert ways.judged(case, way, [3, 1, 3, 0], range(4), 10) != found
    assert ways.judged(case, way, [3, 1, 10, 0], range(4), 10) != found
