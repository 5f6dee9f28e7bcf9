"""`bench monitor`: processes that hold something, what samples them, and what is made of the numbers."""

import importlib.util
from dataclasses import replace

import pytest
from packages.bench.tests.support import made, read_back, taken

from onecopy_bench.engine.crew import Crew
from onecopy_bench.engine.record import Record, Row, Sample, read
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.monitor import scenario as monitor
from onecopy_bench.scenarios.monitor import watcher, ways
from onecopy_bench.scenarios.monitor.scenario import SCENARIO

MIB = 1 << 20
SMALL = monitor.Options(
    rounds=1,
    idle_wait=0.0,
    timeout=60.0,
    size=32 * MIB,
    seconds=0.3,
    interval=0.05,
    processes=4,
    ways=(ways.OURS, ways.PSS),
)


@pytest.mark.processes
@pytest.mark.slow
def test_every_way_looks_and_what_tells_pss_agrees(tmp_path):
    options = replace(SMALL, questions=(ways.COST, ways.CROWD), ways=ways.NAMES, seconds=0.1)
    run = monitor.run(tmp_path, options, screen="onecopy_monitor.cli.top_screen")
    assert {(s.state, s.reason) for s in run.samples} == {("ok", "")}
    asked = {
        (case, row) for case in (ways.COST, ways.CROWD) for row in ways.NAMES if case in named(ways.WAYS, row).questions
    }
    missing = {one.name for one in run.absent}
    assert missing <= {"psutil memory_full_info", "psutil memory_maps", "ps"}
    assert {(s.case[0], s.row) for s in run.samples} == {(case, row) for case, row in asked if row not in missing}
    for sample in run.samples:
        numbers = sample.numbers
        assert numbers["looks"] >= 1
        assert 0 < numbers["least_ns"] <= numbers["median_ns"] <= numbers["most_ns"]
        assert numbers["least_ns"] <= numbers["mean_ns"] <= numbers["most_ns"]
        assert numbers["said"] > MIB
    assert read_back(run) == run
    assert len(list(SCENARIO.tables(run))) == 5
    case = (ways.COST, "8 processes that map one file")
    said = {sample.row: sample.numbers["said"] for sample in run.samples if sample.case == case and sample.row != "ps"}
    assert said[ways.PSS] > SMALL.size
    assert said == {name: pytest.approx(said[ways.PSS], rel=0.1) for name in said}


@pytest.fixture(scope="module")
def accuracy(tmp_path_factory) -> Record:
    options = replace(SMALL, questions=(ways.ACCURACY,), ways=(ways.OURS, ways.RSS, ways.USS))
    return monitor.run(tmp_path_factory.mktemp("accuracy"), options)


@pytest.mark.processes
@pytest.mark.slow
def test_the_truth_is_beside_what_is_said_and_a_sum_of_rss_is_wrong(accuracy):
    assert {(s.state, s.reason) for s in accuracy.samples} == {("ok", "")}
    assert [case[1] for case in monitor.cases_of(accuracy)] == [
        "1 process that maps a file",
        *(f"{count} processes that map one file" for count in (2, 4, 8)),
        *(f"8 processes, forked: {when}" for when in ("before they copy a third", "while they copy it", "after that")),
        "4 processes with a memory file",
    ]
    many = (ways.ACCURACY, "8 processes that map one file")
    assert abs(accuracy.spread(ways.OURS, many, "worst_error").median) < 0.1
    assert accuracy.spread(ways.RSS, many, "error").median > 2
    alone, shared = (
        accuracy.spread(ways.USS, (ways.ACCURACY, words), "told").median
        for words in ("1 process that maps a file", "2 processes that map one file")
    )
    assert alone > SMALL.size > 2 * shared  # the flip: a second process, and what was private is not


@pytest.mark.processes
@pytest.mark.slow
def test_faults_are_counted_whoever_looks(tmp_path):
    run = monitor.run(tmp_path, replace(SMALL, questions=(ways.DISTURBANCE,), ways=(ways.NOBODY, ways.OURS)))
    assert {(s.state, s.reason) for s in run.samples} == {("ok", "")}
    for sample in run.samples:
        assert sample.numbers["faults_per_s"] > 0
        assert 0 < sample.numbers["piece_ns"] <= sample.numbers["p99_ns"] <= sample.numbers["longest_ns"]
        assert sample.numbers["looks"] >= 2
    assert {case[0] for case in run.cases()} == {ways.DISTURBANCE}
    assert all(monitor.slower(run, ways.OURS, case) is not None for case in run.cases())


@pytest.mark.processes
def test_what_lacks_something_is_absent_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(ways.shutil, "which", lambda _: None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "psutil" else find_spec(name))
    run = monitor.run(
        tmp_path, replace(SMALL, questions=(ways.CROWD,), ways=(*SMALL.ways, ways.DRAWN, "ps", "psutil memory_maps"))
    )
    assert {s.row for s in run.samples} == set(SMALL.ways)
    said = SCENARIO.sentences(run)
    assert "psutil memory_maps: not installed: psutil." in said
    assert "ps: there is no program 'ps'." in said
    assert "onecopy, drawn: there is no screen: it is a row of the command only." in said
    (table,) = SCENARIO.tables(run)
    assert ("ps", "there is no program 'ps'") in [row[:2] for row in table.rows]


@pytest.mark.processes
def test_who_says_that_nothing_is_held_gives_no_result(tmp_path, monkeypatch):
    gather = Crew.gather

    def nothing(crew, phase, poll=None):
        return [one | {"said": 0} if phase == "looked" else one for one in gather(crew, phase, poll)]

    monkeypatch.setattr(Crew, "gather", nothing)
    run = monitor.run(tmp_path, replace(SMALL, questions=(ways.CROWD,), ways=(ways.PSS,)))
    ((state, reason),) = [(s.state, s.reason) for s in run.samples]
    assert (state, reason) == ("wrong data", "it says that 4 processes hold 0 bytes")


def record(*samples: Sample) -> Record:
    names = dict.fromkeys(sample.row for sample in samples)
    rows = [Row(way.name, way.detail, way.ours) for way in ways.WAYS if way.name in names]
    return made("monitor", samples, rows, options=monitor.Options(rounds=7), data={"bytes": 1 << 30})


def test_slowdown_is_paired_by_round_and_held_against_the_bar():
    case = (ways.DISTURBANCE, "faults")
    alone = [taken(ways.NOBODY, case, n, faults_per_s=rate) for n, rate in enumerate((1000.0, 2000.0, 4000.0))]
    ours = [taken(ways.OURS, case, n, faults_per_s=rate) for n, rate in enumerate((995.0, 1990.0, 3980.0))]
    pss = [taken(ways.PSS, case, n, faults_per_s=rate) for n, rate in enumerate((900.0, 1800.0, 3600.0))]
    run = record(*alone, *ours, *pss)
    assert monitor.slower(run, ways.PSS, case).median == pytest.approx(10)
    assert monitor.slower(run, ways.OURS, case).high == pytest.approx(0.5)
    (said,) = SCENARIO.findings(run)
    assert said == (
        "disturbance, faults: 0.5 % (0.5 to 0.5) fewer while onecopy looks: the median is below 1 %; sum of PSS 10."
    )


def test_the_cheapest_of_others_is_what_ours_stands_beside():
    case = (ways.COST, "bare Python")
    found = {ways.OURS: 0.02e6, ways.PSS: 0.1e6, "psutil memory_maps": 0.7e6, "ps": 0.01e6}
    run = record(*(taken(name, case, mean_ns=value, median_ns=value, share=0.01) for name, value in found.items()))
    (said,) = SCENARIO.findings(run)
    assert said == (
        "cost, bare Python: onecopy 0.02 ms a look; sum of PSS 0.1; psutil memory_maps 0.7; ps 0.01. "
        "sum of PSS, the cheapest that counts once: 5 x."
    )
    (table,) = SCENARIO.tables(run)
    assert table.title == "What a look costs, CPU time: bare Python"
    assert [row[0] for row in table.rows] == [ways.OURS, ways.PSS, "psutil memory_maps", "ps"]
    assert SCENARIO.heading(run) == "monitor: snapshots at 10 Hz for 5 s; a file of 1073.7 MB; 1 round"


def test_the_worst_error_counts_whatever_its_sign():
    case = (ways.ACCURACY, "8 processes, forked: while they copy it")
    run = record(taken(ways.OURS, case, worst_error=-0.2), taken(ways.RSS, case, worst_error=6.0))
    (said,) = SCENARIO.findings(run)
    assert said.endswith("onecopy was off by 20 % at worst, and by others: sum of RSS 600.")
    assert watcher.errors([(100, 100), (80, 100), (110, 100)])["worst_error"] == -0.2


@pytest.mark.processes
def test_the_command_prints_tables_and_writes_a_record(python, tmp_path):
    python(
        """
        import os, sys
        os.chdir(sys.argv[1])
        from onecopy.cli.command_line import run
        small = "--size 8MB --seconds 0.05 --processes 3 --rounds 1 --idle-wait 0 --question crowd --way".split()
        ways = "onecopy", "--way", "onecopy, drawn"
        sys.exit(run(["bench", "monitor", *small, *ways, "--json", "r.jsonl", "--markdown", "r.md"]))
        """,
        tmp_path,
    )
    (found,) = read(tmp_path / "r.jsonl")
    assert {(sample.row, sample.state) for sample in found.samples} == {("onecopy", "ok"), ("onecopy, drawn", "ok")}
    assert "| onecopy, drawn |" in (tmp_path / "r.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"r.jsonl", "r.md"}
