"""Each mechanism in a real child: it reads the right bytes, says what it did, and reports a refusal."""

import os
from dataclasses import replace

import pytest

from onecopy_bench.engine import rounds
from onecopy_bench.engine.machine.disks import here
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.passes import cells, mechanisms
from onecopy_bench.scenarios.passes.cells import Options
from onecopy_bench.scenarios.passes.warm import BESIDE

pytestmark = pytest.mark.processes

SIZE = 5_000_001
ENTRIES = (*mechanisms.MECHANISMS, *mechanisms.METHODS)


@pytest.fixture
def spot(cold_file):
    return here(cold_file(SIZE))


def cell_of(spot, entry, *, share=1.0, order="shuffled"):
    (work,) = cells.works(spot, (share,), (order,), 0)
    return cells.Cell(spot, work, entry)


def take(spot, entry, *, share=1.0, order="shuffled", **options):
    settings = Options(**{"passes": 3, "idle_wait": 0.0} | options)
    return rounds.take(cell_of(spot, entry, share=share, order=order).turn(settings), 0, settings)


def of(name):
    return named((*mechanisms.MECHANISMS, *mechanisms.METHODS, *BESIDE), name)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_mechanism_passes_over_the_bytes_that_a_plain_read_finds(spot, entry):
    taken = take(spot, entry, share=0.5)  # a wrong checksum is the state "wrong data"
    assert (taken.state, taken.reason) == ("ok", "")
    (process,) = taken.processes
    ends = process["notes"]["passes_ns"]
    assert len(ends) == 3
    assert sorted(ends) == ends
    assert process["open_ns"] < ends[0]
    assert not process["notes"]["cut_short"]
    assert taken.numbers["cached_before"] == 0


def test_mechanisms_that_populate_read_all_and_those_that_wait_read_little(spot):
    everything = take(spot, of("populate-1"), share=0.01).processes[0]["read_bytes"]
    touched = take(spot, of("random"), share=0.01).processes[0]["read_bytes"]
    assert everything >= SIZE // 4096 * 4096
    assert touched < SIZE // 4


def test_copies_are_private_and_mappings_are_not(spot):
    copied, mapped = (take(spot, of(name)).processes[0] for name in ("copy", "map"))
    private = [each["anonymous"] - each["empty_anonymous"] for each in (copied, mapped)]
    assert private[0] > SIZE * 0.9 > SIZE * 0.2 > private[1]
    assert mapped["pss"] - mapped["empty_pss"] > SIZE * 0.5  # libraries shared with later processes are in it


def test_a_sample_that_has_no_time_is_cut_short_and_says_how_far_it_came(spot):
    taken = take(spot, of("map"), limit_s=1e-9)
    assert taken.state == "ok"
    notes = taken.processes[0]["notes"]
    assert notes["cut_short"]
    assert notes["passes_ns"] == []
    assert 0 < notes["touched"] < SIZE


def test_a_cell_that_was_cut_short_is_taken_once_and_the_others_in_every_round(spot):
    every = [cell_of(spot, of(name), order="file") for name in ("map", "o_direct-reused-8")]
    options = Options(rounds=3, limit_s=1e-9, idle_wait=0)
    record = cells.run("warm", spot.path, every, options)
    assert [s.row for s in record.samples].count("map") == 1
    assert [s.row for s in record.samples].count("o_direct-reused-8") == 3


def test_other_bytes_than_those_of_the_file_are_wrong_data(spot):
    cell = cell_of(spot, of("map"))
    wrong = replace(cell, work=replace(cell.work, checksum=cell.work.checksum ^ 1))
    assert rounds.take(wrong.turn(Options(idle_wait=0)), 0, Options(idle_wait=0)).state == "wrong data"


def test_a_file_that_changes_ends_the_run(spot):
    def change(progress):
        if progress.done == 0:
            os.utime(spot.path, ns=(1, 1))

    with pytest.raises(RuntimeError, match="changed while it was measured"):
        cells.run("warm", spot.path, [cell_of(spot, of("map"))], Options(rounds=2, idle_wait=0), watch=change)


def test_a_group_that_cannot_be_joined_is_a_failed_sample(spot, tmp_path):
    taken = take(replace(spot, groups=(tmp_path / "no-such-group",)), of("map"))
    assert taken.state == "failed"
    assert "no-such-group" in taken.reason
