"""Each mechanism in a real child: it reads the right bytes, says what it did, and tells a refusal."""

import os
from dataclasses import replace

import pytest

from onecopy_bench.ceilings import CONTROLS
from onecopy_bench.machine.quiet import Patience
from onecopy_bench.passes import cells, mechanisms
from onecopy_bench.passes.series import Options, Place
from onecopy_bench.scenarios.warm import BESIDE, here

pytestmark = pytest.mark.processes

SIZE = 5_000_001
ENTRIES = (*mechanisms.MECHANISMS, *mechanisms.METHODS)


@pytest.fixture
def spot(cold_file):
    return here(cold_file(SIZE))


def take(spot, entry, *, share=1.0, order="shuffled", **options):
    (work,) = cells.works(spot, (share,), (order,), 0)
    return cells.take(cells.Cell(spot, work, entry), 0, Options(**{"passes": 3} | options), Patience(0))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_mechanism_passes_over_the_bytes_that_a_plain_read_finds(spot, entry):
    taken = take(spot, entry, share=0.5)  # a wrong checksum is the state "wrong data"
    assert (taken.state, taken.reason) == ("ok", "")
    assert len(taken.passes_ns) == 3
    assert sorted(taken.passes_ns) == list(taken.passes_ns)
    assert taken.open_ns < taken.passes_ns[0]
    assert not taken.cut_short
    assert taken.cached_before == 0


def test_mechanisms_that_populate_read_all_and_those_that_wait_read_little(spot):
    everything = take(spot, mechanisms.named("populate-1"), share=0.01).read_bytes
    touched = take(spot, mechanisms.named("random"), share=0.01).read_bytes
    assert everything >= SIZE // 4096 * 4096
    assert touched < SIZE // 4


def test_random_advice_faults_once_for_each_page_that_is_touched(spot):
    taken = take(spot, mechanisms.named("random"), share=0.2)
    pages = sum(-(-piece.nbytes // 4096) for piece in cells.works(spot, (0.2,), ("file",), 0)[0].job.pieces)
    assert taken.major_faults + taken.minor_faults >= pages


def test_copies_are_private_and_mappings_are_not(spot):
    copied, mapped = (take(spot, mechanisms.named(name)) for name in ("copy", "map"))
    assert copied.anonymous > SIZE * 0.9 > SIZE * 0.2 > mapped.anonymous
    assert mapped.pss > SIZE * 0.5  # libraries shared with whoever starts meanwhile are in it


@pytest.mark.parametrize("entry", [*BESIDE, *CONTROLS], ids=lambda entry: entry.name)
def test_ceilings_and_controls_run_in_the_same_child(spot, entry):
    taken = take(spot, entry, order="file")
    assert taken.state == "ok", taken.reason
    assert len(taken.passes_ns) == (3 if "fresh" in entry.name else 0)


def test_a_sample_that_has_no_time_is_cut_short_and_says_how_far_it_came(spot):
    taken = take(spot, mechanisms.named("map"), limit_s=1e-9)
    assert taken.state == "ok"
    assert taken.cut_short
    assert taken.passes_ns == ()
    assert 0 < taken.notes["touched"] < SIZE


def test_a_cell_that_was_cut_short_is_asked_once_and_the_others_in_every_round(spot):
    (work,) = cells.works(spot, (1.0,), ("file",), 0)
    slow, other = (cells.Cell(spot, work, mechanisms.named(name)) for name in ("map", "o_direct-reused-8"))
    seen = []
    options = Options(rounds=3, limit_s=1e-9, idle_wait=0)
    samples = cells.take_all([slow, other], options, lambda p: seen.append((p.done, p.total)))
    assert [s.method for s in samples].count("map") == 1
    assert [s.method for s in samples].count("o_direct-reused-8") == 3
    assert seen[-1] == (4, 4)


def test_when_the_budget_is_spent_no_round_begins_but_the_first_is_whole(spot):
    (work,) = cells.works(spot, (1.0,), ("file",), 0)
    rows = [cells.Cell(spot, work, mechanisms.named(name)) for name in ("map", "warm")]
    samples = cells.take_all(rows, Options(rounds=5, budget_s=1e-6, idle_wait=0))
    assert sorted(s.method for s in samples) == ["map", "warm"]


def test_other_bytes_than_those_of_the_file_are_wrong_data(spot):
    (work,) = cells.works(spot, (1.0,), ("file",), 0)
    cell = cells.Cell(spot, replace(work, checksum=work.checksum ^ 1), mechanisms.named("map"))
    assert cells.take(cell, 0, Options(), Patience(0)).state == "wrong data"


def test_a_file_that_changes_ends_the_run(spot):
    (work,) = cells.works(spot, (1.0,), ("file",), 0)
    cell = cells.Cell(spot, work, mechanisms.named("map"))

    def change(progress):
        if progress.done == 0:
            os.utime(spot.path, ns=(1, 1))

    with pytest.raises(RuntimeError, match="changed while it was measured"):
        cells.take_all([cell], Options(rounds=2, idle_wait=0), change)


def test_a_group_that_cannot_be_joined_is_a_failed_sample(spot, tmp_path):
    there = cells.Spot(Place("tight", "", SIZE, None), spot.path, (tmp_path / "no-such-group",))
    taken = take(there, mechanisms.named("map"))
    assert taken.state == "failed"
    assert "no-such-group" in taken.reason


def test_an_unknown_mechanism_names_the_known_ones():
    with pytest.raises(ValueError, match="no mechanism 'fast'; there are touch, sequential"):
        mechanisms.named("fast")
