"""Records: the same after a round trip, and without anybody's name."""

import json
import os
import socket
from dataclasses import replace

import pytest
from tests.support.places import ROOT

from onecopy_bench import machine
from onecopy_bench.record import FIRST_FORMAT, FORMAT, Case, from_json, to_json
from onecopy_bench.report import sentences, summary
from onecopy_bench.scenarios import open as opening


def test_a_record_reads_back_as_it_was(record_of):
    record = record_of(touch_ms=500.0, rounds=2)
    assert from_json(to_json(record)) == record
    assert from_json(to_json(record, sentences=["computed"], rows=[])) == record


def test_what_is_computed_is_there_for_readers(record_of):
    assert json.loads(to_json(record_of(), sentences=["a"]))["sentences"] == ["a"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "onecopy-bench 99"}', f'{{"format": "{FORMAT}"}}'])
def test_another_file_is_not_taken_for_a_record(text):
    with pytest.raises(ValueError, match="record of the format"):
        from_json(text)


def test_a_record_with_an_unknown_field_is_an_error(record_of):
    plain = json.loads(to_json(record_of()))
    plain["options"]["surprise"] = 1
    with pytest.raises(ValueError, match="surprise"):
        from_json(json.dumps(plain))


def test_facts_about_the_machine_are_plain_and_nameless(model):
    facts = machine.facts(model)
    text = json.dumps(facts)
    assert facts["kernel"].startswith("Linux ")
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 2**20
    assert socket.gethostname() not in text
    assert str(model.parent) not in text


def test_the_file_system_is_that_of_the_device():
    text = (
        "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n22 1 0:5 / /home/some\\040body rw shared:1 - xfs /dev/sdb rw\n"
    )
    assert machine.file_system(text, os.makedev(0, 5)) == "xfs"
    assert machine.file_system(text, os.makedev(9, 9)) is None


def test_the_chosen_word_of_a_switch_is_in_brackets():
    assert machine.chosen("always [madvise] never\n") == "madvise"
    assert machine.chosen("") is None


def test_a_cpu_has_its_name_or_none():
    assert machine.cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n") == "AMD EPYC"
    assert machine.cpu_model("BogoMIPS : 3\n") is None


def test_an_empty_file_and_a_folder_are_refused_before_anything_runs(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="holds no data: 0 bytes"):
        opening.run(tmp_path / "empty")
    with pytest.raises(ValueError, match="not a regular file"):
        opening.run(tmp_path)
    with pytest.raises(FileNotFoundError):
        opening.run(tmp_path / "nothing")


def test_a_record_is_cut_into_its_cases_with_all_ceilings_in_each(record_of):
    one, four, warm = record_of(n=1), record_of(n=4), record_of(n=4, cache="warm")
    whole = replace(
        four,
        options=replace(four.options, processes=(1, 4), caches=("cold", "warm")),
        samples=(*four.samples, *(s for other in (one, warm) for s in other.samples if s.cache)),
    )
    cases = {case.case: case for case in whole.cases()}
    assert cases[Case(4, "cold")] == four
    assert {s.configuration for s in cases[Case(1, "cold")].samples} == {entry.name for entry in four.entries}
    assert not [s for s in cases[Case(1, "warm")].samples if s.cache]
    with pytest.raises(ValueError, match="unpack"):
        _ = whole.processes
    assert from_json(to_json(whole)) == whole


def test_a_record_of_the_first_format_becomes_one_of_a_single_case(record_of):
    record = record_of(rounds=1)
    plain = json.loads(to_json(record))
    plain["format"] = FIRST_FORMAT
    del plain["absent"]
    for options in (plain["options"],):
        options |= {"processes": 4, "cold": True, "ceilings": True}
        del options["caches"], options["order"]
    for entry in plain["entries"]:
        del entry["size"]
    for sample in plain["samples"]:
        del sample["cache"]
    assert from_json(json.dumps(plain)) == replace(record, options=replace(record.options, ceilings="all"))


RECORDS = sorted((ROOT / "bench" / "results").rglob("*.json"))


@pytest.mark.skipif(not RECORDS, reason="the records are not in source packages")
def test_every_committed_record_can_be_read_and_says_something():
    for path in RECORDS:
        text = path.read_text()
        if not json.loads(text)["format"].startswith("onecopy-bench "):
            continue
        record = from_json(text)
        if record.scenario == "structs":  # its cases are its own: see tests/python/bench/test_structs.py
            assert all(sample.state == "ok" or sample.reason for sample in record.samples)
            assert {sample.configuration for sample in record.samples if sample.state == "ok"} >= {"map", "warm"}
            continue
        for case in record.cases():
            assert summary.rows_of(case)[0].good > 0
            assert sentences.sentences_of(case)
