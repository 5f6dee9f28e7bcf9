"""Records: the same after a round trip, resumed where they ended, never as another run, and without anybody's name."""

import json
import socket
from dataclasses import replace

import pytest
from packages.bench.tests.support import made, read_back, taken, text_of
from tests.support.places import ROOT

from onecopy_bench import runs, system
from onecopy_bench.cli import SCENARIOS
from onecopy_bench.files.opening import SCENARIO, Options
from onecopy_bench.record import FORMAT, Absent, Log, Row, parse, read
from onecopy_bench.runs import Measured, Settings, Trial
from onecopy_bench.stories import reading as stories
from onecopy_bench.stories.story import STORIES

ROWS = (Row("a", "as called", ours=True), Row("b", role="ceiling", uses_cache=False, size=5))


@pytest.fixture
def record():
    samples = [taken("a", ("x", "1"), n, total_ns=1.5) for n in range(3)]
    return made("open", samples, ROWS, data={"bytes": 7}, absent=[Absent("c", "not installed: c")])


def test_a_record_reads_back_as_it_was(record):
    for each in (record, replace(record, seconds=12.5)):
        assert read_back(each) == each
    header, sample, *_ = map(json.loads, text_of(record).splitlines())
    assert header["format"] == FORMAT
    assert sample == {
        "row": "a", "case": ["x", "1"], "round": 0, "started": record.created, "idle_share": 1.0,
        "numbers": {"total_ns": 1.5},
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "\n", "[]", "7", "{}", "no json", '{"format": "onecopy-bench 2"}', f'{{"format": "{FORMAT}"}}', "[" * 9999],
)
def test_another_file_is_not_taken_for_a_record(text, tmp_path):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"x\.jsonl: .* in format"):
        read(tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"row": "a"}', "line 5 .*round"),
        ('{"row": "a", "case": [], "round": 0, "surprise": 1}', "line 5 .*surprise"),
        ('{"row": "a", "case": [], "round": 0, "numbers": {"n": NaN}}', "expected a number in a sample, found 'nan'"),
        ('{"row": "a", "case": [], "round": 0, "numbers": {"n": true}}', "expected a number in a sample, found 'True'"),
        ('{"row": "a", "case": [], "round": 0, "points": [[1e300]]}', "expected a number"),
        ('{"odd": 1}', "'seconds' is missing"),
    ],
)
def test_a_line_that_is_no_sample_is_told_by_its_number(record, line, message):
    with pytest.raises(ValueError, match=message):
        parse(text_of(record) + line + "\n")


def test_the_torn_line_of_a_killed_write_is_dropped_and_written_over(record, tmp_path):
    path = tmp_path / "r.jsonl"
    one, two, _ = record.samples
    log = Log(path)
    log.begin(replace(record, samples=()))
    log.add(one)
    with path.open("a") as file:
        file.write('{"row": "ma')
    again = Log(path, resume=True)
    assert again.begin(record).samples == (one,)
    again.add(two)
    assert Log(path, resume=True).begin(record).samples == (one, two)


@pytest.mark.parametrize("name", ["commit", "machine", "options", "data", "rows", "absent"])
def test_the_file_of_another_run_is_refused_with_what_differs(record, tmp_path, name):
    Log(tmp_path / "r.jsonl").begin(replace(record, samples=()))
    other = {"commit": "7654321", "rows": ROWS[:1], "absent": ()}.get(name, {"seed": 5})
    with pytest.raises(ValueError, match=f"r.jsonl belongs to another run: {name} was .* and is now "):
        Log(tmp_path / "r.jsonl", resume=True).begin(replace(record, **{name: other}))


def test_a_run_that_was_broken_off_takes_only_what_is_missing(tmp_path):
    class Broken(RuntimeError):
        pass

    def stop(progress):
        if progress.done == 3:
            raise Broken

    head, taking = made("x", ()), []
    turns = [Trial("a", ("b",), 0, lambda _: taking.append(1) or Measured({"n": float(len(taking))}))]
    settings = Settings(rounds=5, idle_wait=0.0)
    with pytest.raises(Broken):
        runs.run(head, turns, settings, watch=stop, log=Log(tmp_path / "j"))
    seen = []
    record = runs.run(head, turns, settings, watch=seen.append, log=Log(tmp_path / "j", resume=True))
    assert [(s.round, s.numbers["n"]) for s in record.samples] == [(n, n + 1.0) for n in range(5)]
    assert (seen[0].done, seen[0].total) == (3, 5)
    assert runs.run(head, turns, settings, log=Log(tmp_path / "j", resume=True)) == record
    assert len(taking) == 5


def test_facts_about_the_machine_are_plain_and_nameless(model):
    facts = system.facts(model)
    text = json.dumps(facts)
    assert facts["kernel"].startswith("Linux ")
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 2**20
    assert socket.gethostname() not in text
    assert str(model.parent) not in text


def test_an_empty_file_and_a_folder_are_refused_before_anything_runs(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="contains no data: 0 bytes"):
        SCENARIO.run(tmp_path, Options(file=str(tmp_path / "empty")))
    with pytest.raises(ValueError, match="not a regular file"):
        SCENARIO.run(tmp_path, Options(file=str(tmp_path)))
    with pytest.raises(FileNotFoundError):
        SCENARIO.run(tmp_path, Options(file=str(tmp_path / "nothing")))


RECORDS = sorted((ROOT / "packages/bench/results").rglob("*.jsonl"))


@pytest.mark.skipif(not RECORDS, reason="the records are not in source packages")
def test_every_committed_record_can_be_read_and_says_something():
    for path in RECORDS:
        first, *more = read(path)
        if more:
            found = stories.read(path)
            assert all(found.of(story) for story in STORIES)
            continue
        scenario = SCENARIOS[first.scenario]
        assert scenario.heading(first)
        assert scenario.sentences(first) or list(scenario.tables(first))
        assert any(sample.state == "ok" for sample in first.samples)
        assert all(sample.state == "ok" or sample.reason for sample in first.samples)
