"""A killed run continues where it was, and never as another run."""

from dataclasses import replace

import pytest

from onecopy_bench.journal import Journal
from onecopy_bench.record import Options
from onecopy_bench.scenarios import open as opening


def test_a_journal_gives_back_the_samples_that_were_added(record_of, tmp_path):
    record = record_of(rounds=2)
    empty = replace(record, samples=())
    journal = Journal(tmp_path / "j")
    assert journal.begin(empty) == empty
    for sample in record.samples:
        journal.add(sample)
    later = replace(empty, created="2027-01-01T00:00:00+00:00")
    assert Journal(tmp_path / "j", resume=True).begin(later) == record
    journal.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_torn_line_of_a_killed_write_is_dropped_and_written_over(record_of, tmp_path):
    record = record_of(rounds=1)
    journal = Journal(tmp_path / "j")
    journal.begin(record)
    journal.add(record.samples[0])
    with (tmp_path / "j").open("a") as file:
        file.write('{"configuration": "ma')
    resumed = Journal(tmp_path / "j", resume=True)
    assert resumed.begin(record).samples == record.samples[:1]
    resumed.add(record.samples[1])
    assert Journal(tmp_path / "j", resume=True).begin(record).samples == record.samples[:2]


def test_without_resume_or_without_a_journal_a_run_begins_anew(record_of, tmp_path):
    record = record_of(rounds=1)
    assert Journal(tmp_path / "none", resume=True).begin(record) == record
    journal = Journal(tmp_path / "j")
    journal.begin(record)
    journal.add(record.samples[0])
    Journal(tmp_path / "j").begin(record)
    assert Journal(tmp_path / "j", resume=True).begin(record).samples == ()


def test_the_journal_of_another_run_is_refused_with_what_differs(record_of, tmp_path):
    record = record_of(rounds=1)
    Journal(tmp_path / "j").begin(record)
    other = replace(record, options=replace(record.options, seed=5))
    with pytest.raises(ValueError, match=r'j tells of another run: options was .*"seed": 0.*, is .*"seed": 5'):
        Journal(tmp_path / "j", resume=True).begin(other)


@pytest.mark.parametrize("text", ["", "\n", "[1]\n", "no json\n", "{}\n"])
def test_another_file_is_not_taken_for_a_journal(record_of, tmp_path, text):
    (tmp_path / "j").write_text(text)
    with pytest.raises(ValueError, match=r"j is no journal|j tells of another run"):
        Journal(tmp_path / "j", resume=True).begin(record_of())


def test_a_line_that_is_no_sample_is_told_by_its_number(record_of, tmp_path):
    Journal(tmp_path / "j").begin(record_of())
    with (tmp_path / "j").open("a") as file:
        file.write('{"readings": []}\n')
    with pytest.raises(ValueError, match="line 2 is no sample"):
        Journal(tmp_path / "j", resume=True).begin(record_of())


@pytest.mark.processes
def test_a_run_that_was_broken_off_takes_only_what_is_missing(model, stand_in, tmp_path):
    class Broken(RuntimeError):
        pass

    def stop(progress):
        if progress.done == 3:
            raise Broken

    good = stand_in("go(); resident(checksum=None); sys.stdin.readline()")
    options = Options(processes=(1,), iterations=5, idle_wait=0.0)
    settings = {"options": options, "configurations": (good,)}
    with pytest.raises(Broken):
        opening.run(model, watch=stop, journal=Journal(tmp_path / "j"), **settings)
    seen = []
    record = opening.run(model, watch=seen.append, journal=Journal(tmp_path / "j", resume=True), **settings)
    assert sorted(sample.round for sample in record.samples) == [0, 1, 2, 3, 4]
    assert (seen[0].done, seen[0].total) == (3, 5)
