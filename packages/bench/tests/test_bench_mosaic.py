"""`bench mosaic`: canvases made of tiles, and what is made of their numbers."""

from dataclasses import replace

import numpy as np
import pytest
from packages.bench.tests.support import read_back, resumed

from onecopy_bench.engine import pictures
from onecopy_bench.scenarios.images import mosaic, tiles
from onecopy_bench.scenarios.images.mosaic import SCENARIO

pytest.importorskip("tifffile", reason="tifffile is not installed")

SMALL = mosaic.Options(rounds=1, idle_wait=0.0, timeout=60.0, rows=3, columns=2, size=300, cap=1 << 20)


@pytest.mark.processes
def test_every_way_that_is_installed_makes_the_same_canvas(tmp_path):
    run = mosaic.run(tmp_path, SMALL)
    there = [entry.name for entry in run.rows]
    assert {"write, fdatasync", "numpy", "numpy.memmap", "onecopy", "onecopy, capped"} <= set(there)
    assert sorted(set(tiles.NAMES) - set(there)) == sorted(absent.name for absent in run.absent)
    assert {(s.row, s.state, s.reason) for s in run.samples} == {(name, "ok", "") for name in there}
    assert run.data == {"bytes": 3 * 2 * 300 * 300 * 2}
    assert read_back(run) == run
    (found,) = SCENARIO.tables(run)
    assert [row[0] for row in found.rows] == there
    assert any("of the rate of write, fdatasync" in sentence for sentence in SCENARIO.sentences(run))
    assert "3 x 2 tiles of 300 x 300 u16" in SCENARIO.heading(run)
    pictures.save(tmp_path / "out.svg", lambda figure: SCENARIO.draw(figure, run))
    assert (tmp_path / "out.svg").stat().st_size > 1000


@pytest.mark.processes
def test_another_canvas_is_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(tiles, "expected", lambda _: 1)
    run = mosaic.run(tmp_path, replace(SMALL, ways=("numpy",)))
    assert [s.state for s in run.samples] == ["wrong data"]


@pytest.mark.processes
def test_a_run_that_was_killed_goes_on(tmp_path):
    first, second = resumed(mosaic.run, replace(SMALL, ways=("numpy",), rounds=2), tmp_path)
    assert second.samples[0] == first.samples[0]
    assert len(second.samples) == 2


def test_tiles_differ_from_their_neighbours_and_are_the_same_each_time():
    errand = mosaic.errand_of("", "", SMALL)
    first, second = errand.tile(errand.seed(), 0), errand.tile(errand.seed(), 1)
    assert first.shape == second.shape == (300, 300)
    assert (first != second).mean() > 0.9
    assert np.array_equal(first, errand.tile(errand.seed(), 0))
