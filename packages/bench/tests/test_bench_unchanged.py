"""`bench unchanged`: unmodified programs, and what is made of the numbers."""

from dataclasses import replace

import pytest
from packages.bench.tests.support import read_back

from onecopy_bench.scenarios.unchanged import scenario as unchanged

SMALL = unchanged.Options(
    rounds=1, idle_wait=0.0, timeout=90.0, size=8_000_000, processes=2, requests=3, programs=("numpy",)
)


@pytest.mark.processes
def test_results_are_equal_and_the_file_is_held_once(tmp_path):
    run = unchanged.run(tmp_path, SMALL)
    assert [(sample.state, sample.reason) for sample in run.samples] == [("ok", ""), ("ok", "")]
    held = {sample.row: sample.numbers["held_share"] for sample in run.samples}
    assert held["onecopy.auto"] < 1.5 < held["as it is"]
    assert read_back(run) == run
    assert "results equal" in "\n".join(unchanged.SCENARIO.sentences(run))


@pytest.mark.processes
def test_a_program_with_one_line_edited_holds_its_object_once(tmp_path):
    pytest.importorskip("pandas")
    run = unchanged.run(tmp_path, replace(SMALL, programs=("pandas",), size=20_000_000))
    held = {sample.row: sample.numbers["held_share"] for sample in run.samples}
    assert held["one line edited"] < 1.5 < held["as it is"]
    assert len({sample.numbers["checksum"] for sample in run.samples}) == 1


@pytest.mark.slow
@pytest.mark.processes
def test_workers_of_a_server_hold_the_file_once_and_answer_as_without_onecopy(tmp_path):
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    run = unchanged.run(tmp_path, replace(SMALL, server=True))
    assert [(sample.state, sample.reason) for sample in run.samples] == [("ok", ""), ("ok", "")]
    held = {sample.row: sample.numbers["held_share"] for sample in run.samples}
    assert held["onecopy.auto"] < 1.5 < held["as it is"]
    sentences = "\n".join(unchanged.SCENARIO.sentences(run))
    assert "results equal" in sentences
    assert "2 workers of a server" in unchanged.described(run)
