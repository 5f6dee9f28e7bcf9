"""`bench share`: jobs of real processes, and what is made of their numbers."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest
from packages.bench.tests.support import made, taken

from onecopy_bench.engine import pictures
from onecopy_bench.engine.record import Absent, Record, Row, Sample
from onecopy_bench.engine.tables import above_empty
from onecopy_bench.engine.ways import missing
from onecopy_bench.scenarios.rows import data, share
from onecopy_bench.scenarios.rows.peers.table import SHARED
from onecopy_bench.scenarios.rows.share import SCENARIO

MB = 1_000_000
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
SMALL = share.Options(
    rounds=1, idle_wait=0.0, timeout=60.0, workers=2, ranks=(1,), torch=False, interval_s=0.02, allocators=()
)


@pytest.fixture
def source(tmp_path):
    def make(count=300, kind="coco") -> data.Source:
        return data.write(tmp_path, kind, data.rows_of(kind, count))

    return make


def sample_of(run: Record, row: str, *case: str) -> Sample:
    (found,) = [s for s in run.samples if (s.row, s.case) == (row, case)]
    return found


@pytest.mark.processes
@pytest.mark.parametrize("start", share.STARTS)
def test_a_job_is_started_twice_and_its_workers_read_every_row(source, tmp_path, start):
    options = replace(SMALL, peers=("list", "NumpySerializedList"), starts=(start,))
    run = share.run(source(), tmp_path, options)
    assert [(s.state, s.reason) for s in run.samples] == [("ok", "")] * 3
    numbers = sample_of(run, "NumpySerializedList", start, "1").numbers
    assert numbers["rows_read"] == 300
    assert numbers["processes"] >= 3
    assert numbers["pss"] > numbers["worker_uss"] > 0
    assert {"ready_ns", "second_ready_ns", "last_first_ns", "rows_per_s"} <= set(numbers)
    assert "second_pss" not in numbers  # nothing was kept: the second job only had to be ready
    assert sample_of(run, "empty", start, "1").numbers["rows_read"] == 10
    assert len(sample_of(run, "list", start, "1").points) >= 2


@needs_torch
@pytest.mark.processes
@pytest.mark.nightly
def test_one_rank_builds_the_tensor_of_all(source, tmp_path):
    options = replace(SMALL, peers=("torch handle",), starts=("forkserver",), ranks=(2,), torch=True)
    run = share.run(source(), tmp_path, options)
    assert {(s.row, s.state, s.reason) for s in run.samples} == {("torch handle", "ok", ""), ("empty", "ok", "")}


@pytest.mark.processes
@pytest.mark.parametrize("peer", [peer for peer in SHARED if peer.keeps], ids=lambda peer: peer.name)
@pytest.mark.slow
def test_what_is_kept_is_found_by_the_second_job(source, tmp_path, peer):
    if lacks := missing(peer.needs):
        pytest.skip(f"not installed: {', '.join(lacks)}")
    options = replace(SMALL, peers=(peer.name,), starts=("fork", "spawn"), ranks=(2,), cold=True)
    run = share.run(source(), tmp_path, options)
    assert {(s.row, s.state, s.reason) for s in run.samples} == {(peer.name, "ok", ""), ("empty", "ok", "")}
    for start in options.starts:
        numbers = sample_of(run, peer.name, start, "2").numbers
        assert numbers["rows_read"] == numbers["second_rows_read"] == 300
        assert numbers["nbytes"] == numbers["second_nbytes"] > 0
        assert numbers["handle_bytes"] < 1000


@pytest.mark.processes
@pytest.mark.slow
def test_the_leak_of_a_forked_list_is_seen(source, tmp_path):
    options = replace(SMALL, peers=("list", "NumpySerializedList"), starts=("fork",))
    run = share.run(source(10_000), tmp_path, options)
    above = {
        name: above_empty("worker_uss")(run, name, ("fork", "1")).median for name in ("list", "NumpySerializedList")
    }
    assert above["list"] > 15  # MB: nearly all objects of 6 MB of pickles were written to by their counts
    assert above["NumpySerializedList"] < 5
    points = sample_of(run, "list", "fork", "1").points
    assert points[-1][1] > points[0][1]


@pytest.mark.processes
def test_wrong_rows_are_no_result(source, tmp_path):
    written = source()
    sums = written.sums()
    np.save(data.sums_path(written.path), sums + np.arange(len(sums), dtype=np.uint64))
    run = share.run(written, tmp_path, replace(SMALL, peers=("list",), starts=("fork",)))
    assert {s.state for s in run.samples} == {"wrong data"}
    assert "the first 300 rows sum to" in sample_of(run, "list", "fork", "1").reason


@pytest.mark.processes
@pytest.mark.slow
def test_the_heap_of_a_builder_is_looked_at(source, tmp_path):
    options = replace(SMALL, peers=("NumpySerializedList",), starts=(), allocators=("glibc", "malloc_trim"))
    run = share.run(source(5000), tmp_path, options)
    packed = [sample_of(run, "NumpySerializedList", "heap", name).numbers for name in options.allocators]
    assert all(numbers["build_peak_anonymous"] >= numbers["heap"] >= numbers["nbytes"] for numbers in packed)
    assert packed[1]["heap"] < packed[0]["heap"]


@needs_torch
@pytest.mark.processes
@pytest.mark.slow
def test_a_dataloader_reads_every_row_once(source, tmp_path):
    options = replace(SMALL, peers=("list",), starts=("fork",), loader="dataloader", torch=True)
    run = share.run(source(1000), tmp_path, options)
    assert [(s.state, s.reason) for s in run.samples] == [("ok", "")] * 2
    assert sample_of(run, "list", "fork", "1").numbers["rows_read"] == 1000


def test_forked_objects_and_copied_arrays_are_counted_before_they_are_made(source):
    written, peers = source(), {peer.name: peer for peer in SHARED}

    def needs(name, start, ranks=1):
        mine, empty = (share.needs_of(peers[each], written, start, ranks, SMALL) for each in (name, "empty"))
        return (mine - empty) / written.pickled

    assert needs("list", "fork") > 3 * SMALL.workers
    assert needs("NumpySerializedList", "fork") < needs("NumpySerializedList", "spawn")
    assert needs("list", "fork", ranks=8) == pytest.approx(8 * needs("list", "fork"))


@pytest.fixture
def run() -> Record:
    """Make a run of two rounds: a list that leaks, ours that holds its payload once, one that failed, one not there."""
    numbers = {
        "empty": {"pss": 500 * MB, "worker_uss": 3 * MB, "rows_read": 10},
        "list": {"pss": 9500 * MB, "worker_uss": 1800 * MB, "ready_ns": 5e9, "second_ready_ns": 5e9, "rows_read": 900},
        "onecopy": {
            "pss": 1000 * MB, "second_pss": 1005 * MB, "worker_uss": 4 * MB, "nbytes": 500 * MB, "ready_ns": 9e9,
            "second_ready_ns": 1e6, "handle_bytes": 170, "rows_read": 1000,
        },
    }  # fmt: skip
    samples = [
        replace(taken(name, ("fork", "1"), n, **found), points=((0, 1e6, 2e6),))
        for n in range(2)
        for name, found in numbers.items()
    ]
    samples.append(Sample("LMDB", ("fork", "1"), 0, "crashed", "SIGSEGV"))
    samples.append(taken("list", ("heap", "glibc"), heap=2500 * MB, ready_ns=5e9))
    rows = [Row(name, "as called", name == "onecopy") for name in ("onecopy", "list", "LMDB", "empty")]
    absent = [Absent("HF datasets", "not installed: datasets"), Absent("heap: jemalloc", "not installed: libjemalloc")]
    facts = {"kind": "coco", "rows": 1000, "pickled": 500 * MB}
    return made("share", samples, rows, options=replace(SMALL, rounds=2), data=facts, absent=absent)


def rows_of(run: Record, title: str) -> dict[str, tuple[str, ...]]:
    (table,) = [each for each in SCENARIO.tables(run) if each.title == title]
    return {row[0]: row[1:] for row in table.rows}


def test_totals_are_shown_absolute_and_less_an_empty_job(run):
    rows = rows_of(run, "fork, 1 rank of 2 workers")
    assert rows["list"][:5] == ("9500", "9000", "-", "1800", "1797")
    assert rows["onecopy"][:3] == ("1000", "500", "505")
    assert rows["LMDB"][0] == "crashed"
    assert rows["HF datasets"][0] == "not installed: datasets"
    assert rows_of(run, "The builder's heap, glibc")["list"][0] == "2500"


def test_the_sentences_say_what_is_held_and_what_is_missing(run):
    said = SCENARIO.sentences(run)
    assert "fork, 1: onecopy holds 1.000 of its payload, 1.010 in the second run." in said
    assert "fork, 1: its second run is ready in 1/9000 of the first." in said
    assert "fork, 1: the handle that each worker gets is 170 bytes." in said
    assert "LMDB: crashed (fork, 1): SIGSEGV." in said
    assert "HF datasets: not installed: datasets." in said
    assert "heap: jemalloc: not installed: libjemalloc." in said
    assert "Stopped after 120 s, before all rows: list." in said


def test_totals_and_curves_are_drawn(run, tmp_path):
    for name, one in (("share.svg", run), ("less.svg", replace(run, samples=run.samples[:1]))):
        pictures.save(tmp_path / name, lambda figure, one=one: SCENARIO.draw(figure, one))
    text = (tmp_path / "share.svg").read_text()
    assert text.count("<path") > (tmp_path / "less.svg").read_text().count("<path")
