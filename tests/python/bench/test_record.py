"""Records: the same after a round trip, and without anybody's name."""

import json
import os
import socket

import pytest

from onecopy.bench import machine
from onecopy.bench.record import FORMAT, from_json, to_json
from onecopy.bench.scenarios import open as opening


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
