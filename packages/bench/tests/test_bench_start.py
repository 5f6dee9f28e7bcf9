"""`bench start`: programs that do other work before they copy their weights, and what is made of their numbers."""

from dataclasses import replace

import pytest
from packages.bench.tests.support import made, read_back, taken

from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.machine import disks
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.record import Record, Row, read
from onecopy_bench.scenarios.start import scenario as start
from onecopy_bench.scenarios.start.scenario import SCENARIO

MB = 1_000_000
SMALL = start.Options(
    rounds=1, idle_wait=0.0, timeout=60.0, size=3_000_001, work_s=0.01, piece=1_000_000, read_aheads=(None,)
)


@pytest.mark.processes
@pytest.mark.slow
def test_every_way_copies_all_bytes_of_a_cold_file(tmp_path):
    run = start.run(tmp_path, SMALL)
    assert [(s.row, s.state, s.reason) for s in sorted(run.samples, key=lambda s: start.NAMES.index(s.row))] == [
        (name, "ok", "") for name in start.NAMES
    ]
    for sample in run.samples:
        numbers = sample.numbers
        assert numbers["cached_before"] == 0
        assert numbers["total_ns"] >= numbers["work_ns"] + numbers["wait_ns"] + numbers["copy_ns"] > 0
        assert numbers["gb_per_s"] == pytest.approx(SMALL.size / numbers["copy_ns"])
        assert numbers.get("read_bytes", SMALL.size) >= SMALL.size
    assert read_back(run) == run


@pytest.mark.processes
def test_other_bytes_than_the_file_has_are_no_result(tmp_path, monkeypatch):
    judged = start.touch.of_file
    monkeypatch.setattr(start.touch, "of_file", lambda *arguments: judged(*arguments) + 1)
    run = start.run(tmp_path, replace(SMALL, ways=("warm early",)))
    assert [s.state for s in run.samples] == ["wrong data"]


@pytest.mark.processes
def test_a_file_that_does_not_get_cold_is_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(start.cache, "evict", lambda _: 0)
    run = start.run(tmp_path, replace(SMALL, ways=("none",)))
    ((state, reason),) = [(s.state, s.reason) for s in run.samples]
    assert state == "failed"
    assert reason == f"{SMALL.size} bytes of the file stay in memory: it is not cold"


def test_what_cannot_be_known_to_be_cold_is_no_result(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    assert start.evicted(str(path)) == 0
    monkeypatch.setattr(start.cache, "ask", lambda _: None)
    with pytest.raises(SampleError):
        start.evicted(str(path))


@pytest.mark.processes
def test_a_place_that_cannot_be_made_is_absent_with_its_reason(tmp_path, monkeypatch):
    spot_of = disks.spot_of

    def refused(source, ahead, stack):
        if ahead is not None:
            raise Unavailable("a loop device needs root")
        return spot_of(source, ahead, stack)

    monkeypatch.setattr(disks, "spot_of", refused)
    run = start.run(tmp_path, replace(SMALL, ways=("none",), read_aheads=(None, 128 << 10)))
    assert {s.case for s in run.samples} == {("disk",)}
    assert "read-ahead of 128 KiB: a loop device needs root." in SCENARIO.sentences(run)


@pytest.mark.processes
def test_a_disk_of_its_own_reads_as_far_ahead_as_told(tmp_path):
    run = start.run(tmp_path, replace(SMALL, ways=("none", "warm early"), read_aheads=(256 << 10,)))
    if run.absent:
        pytest.skip(run.absent[0].reason)
    assert run.data["places"] == {"256K": 256 << 10}
    assert {(s.case, s.state) for s in run.samples} == {(("256K",), "ok")}
    assert all(s.numbers["read_bytes"] >= SMALL.size for s in run.samples)


def record(**seconds: float) -> Record:
    """Make a record in which each way takes the seconds that are given; underscores are spaces."""
    names = {name.replace("_", " "): value for name, value in seconds.items()}
    more = {"work_ns": 5e9, "copy_ns": 1e9, "gb_per_s": 2.0, "read_bytes": 2e9}
    samples = [
        taken(name, ("disk",), n, total_ns=value * 1e9, **more) for name, value in names.items() for n in range(7)
    ]
    rows = [Row(name, "", ours=name not in {"fromfile", "cat early"}) for name in names]
    data = {"bytes": 2_000_000_000, "places": {"disk": 131072}}
    return made("start", samples, rows, options=start.Options(rounds=7), data=data)


def test_what_warming_early_saves_is_said():
    run = record(none=25.0, warm_at_copy=18.0, warm_early=9.0, fromfile=20.0, cat_early=12.0)
    assert SCENARIO.heading(run) == "start: 2000.0 MB of weights, cold, beside 5 s of work of one thread; 7 rounds"
    assert SCENARIO.sentences(run) == [
        "disk: s until all is copied: none 25, warm at copy 18, warm early 9;"
        " warm early is 2.78 times as fast as none.",
        "disk: warm early 9 s, the best of the others 12 (cat early).",
    ]
    (table,) = SCENARIO.tables(run)
    assert table.title == "disk, read-ahead 128 KiB"
    assert table.rows[0] == ("none", "25", "5", "-", "1", "2", "2000")


@pytest.mark.processes
@pytest.mark.slow
def test_the_command_prints_tables_and_writes_a_record(python, tmp_path):
    python(
        """
        import os, sys
        os.chdir(sys.argv[1])
        from onecopy.cli.command_line import run
        small = "--size 2MB --work-s 0.01 --rounds 1 --idle-wait 0 --read-ahead device --way none --way".split()
        sys.exit(run(["bench", "start", *small, "warm early", "--json", "r.jsonl", "--markdown", "r.md"]))
        """,
        tmp_path,
    )
    (found,) = read(tmp_path / "r.jsonl")
    assert {sample.state for sample in found.samples} == {"ok"}
    assert "| warm early |" in (tmp_path / "r.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"r.jsonl", "r.md"}  # the weights are gone
