"""`bench records`: every way that is installed here, asked for real, and what is made of the numbers."""

from dataclasses import replace

import pytest
from packages.bench.tests.support import made, taken

from onecopy_bench.engine.record import Absent, Record, Row
from onecopy_bench.engine.ways import missing
from onecopy_bench.scenarios.rows import data, records, ways
from onecopy_bench.scenarios.rows.records import SCENARIO

SMALL = records.Options(
    rounds=1, idle_wait=0.0, timeout=60.0, rows=600, strings=600, pairs=600, keys=600, imported=600, shuffle=(3000,),
    draws=300, repeats=2,
)  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("case", records.NAMES)
@pytest.mark.slow
def test_every_way_that_is_installed_gives_the_right_answer(tmp_path, case):
    run = records.run(tmp_path, replace(SMALL, cases=(case,)))
    installed = [way.name for way in ways.WAYS[case] if not missing(way.peer.needs)]
    assert sorted((s.row, s.state, s.reason) for s in run.samples) == sorted((name, "ok", "") for name in installed)
    assert len(installed) + len(run.absent) == len(ways.WAYS[case])
    for sample in run.samples:
        assert len(sample.points) == 2
        assert sample.numbers["best_ns"] == min(sample.points)[0] <= sample.numbers["median_ns"]
        assert sample.numbers["build_ns"] > 0
    assert [path for path in tmp_path.iterdir() if path.name.startswith("tmp")] == []


@pytest.mark.processes
@pytest.mark.slow
def test_a_wrong_answer_is_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "right_answer", lambda *_: 1)
    run = records.run(tmp_path, replace(SMALL, cases=("pair",)))
    sample = next(s for s in run.samples if s.row == "list")
    assert sample.state == "wrong data"
    assert "the right ones to 0x1" in sample.reason


@pytest.mark.processes
@pytest.mark.slow
def test_the_memory_of_strings_is_that_of_all_of_them(tmp_path, monkeypatch):
    two = tuple(way for way in ways.WAYS["string"] if way.name in {"list", "numpy S"})
    monkeypatch.setitem(ways.WAYS, "string", two)
    run = records.run(tmp_path, replace(SMALL, cases=("string",), strings=200_000))
    uss = {s.row: s.numbers["uss"] for s in run.samples}
    assert 200_000 * 75 < uss["list"] < 200_000 * 110  # 75 bytes for each string, 8 in the list
    assert 200_000 * 26 <= uss["numpy S"] < 200_000 * 60


def test_what_is_drawn_is_the_same_in_every_process():
    source = data.Source("", "strings", 1000, 0)
    assert ways.draw(source, 50, seed=3) == ways.draw(source, 50, seed=3) != ways.draw(source, 50, seed=4)
    assert len(set(ways.draw(source, 5000, seed=3))) == 1000


def test_a_sampler_has_an_index_for_every_draw_of_every_repeat():
    case = ways.case_named("shuffle")
    source = data.Source("", "strings", 3000, 0)
    assert records.draws_of(case, source, replace(SMALL, draws=10_000)) == 1000
    assert records.draws_of(ways.case_named("row"), source, replace(SMALL, draws=10_000)) == 3000


@pytest.fixture
def run() -> Record:
    """Make a run of two rounds of a case with one peer, ours, and one that is not installed."""
    times = {"list": 100.0, "onecopy": 50.0}
    samples = [taken(name, ("row",), n, best_ns=ns * (1 + n)) for n in range(2) for name, ns in times.items()]
    rows = [Row("row: list", "rows[i]"), Row("row: onecopy", "rows[i]", ours=True)]
    absent = [Absent("row: LMDB", "not installed: lmdb")]
    return made("records", samples, rows, options=replace(SMALL, rounds=2), absent=absent)


def test_a_case_is_a_table_and_a_sentence(run):
    (table,) = SCENARIO.tables(run)
    assert table.title == "row"
    assert [row[:2] for row in table.rows] == [
        ("list", "150\n(100-200)"), ("onecopy", "75\n(50-100)"), ("LMDB", "not installed: lmdb"),
    ]  # fmt: skip
    said = SCENARIO.sentences(run)
    assert said[0] == "row, ns: onecopy 50, the best of the others 100 (list)."
    assert "row: LMDB: not installed: lmdb." in said
