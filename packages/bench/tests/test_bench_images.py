"""`bench images`: images that are decoded, held and stitched, and what is made of their numbers."""

from dataclasses import replace

import numpy as np
import pytest
from packages.bench.tests.support import made, read_back, taken

from onecopy_bench.engine import pictures
from onecopy_bench.engine.record import Record, Row, Sample
from onecopy_bench.scenarios.images import sampler
from onecopy_bench.scenarios.images import scenario as images
from onecopy_bench.scenarios.images.scenario import SCENARIO
from onecopy_bench.scenarios.images.ways import NAMES

tifffile = pytest.importorskip("tifffile", reason="tifffile is not installed")
pytest.importorskip("imagecodecs", reason="imagecodecs is not installed")

MB = 1_000_000
SMALL = images.Options(rounds=1, idle_wait=0.0, timeout=60.0, count=3, columns=2, limit=0, cap=4 << 20)
SHAPE = 300, 200, 3


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cells.tif"
    image = np.random.default_rng(1).integers(0, 255, SHAPE, np.uint8)
    tifffile.imwrite(path, image, tile=(64, 64), compression="deflate", photometric="rgb")
    return path


@pytest.mark.processes
@pytest.mark.parametrize("kind", images.INPUTS)
@pytest.mark.slow
def test_every_way_that_is_installed_makes_the_same_canvas(tmp_path, file, kind):
    place = tmp_path / "place"
    place.mkdir()
    run = images.run(place, replace(SMALL, inputs=(kind,)), file=str(file))
    there = [entry.name for entry in run.rows]
    assert {"numpy", "numpy.memmap", "onecopy", "onecopy, capped"} <= set(there) <= set(NAMES)
    assert sorted(set(NAMES) - set(there)) == sorted(absent.name for absent in run.absent)
    assert {(s.row, s.state, s.reason) for s in run.samples} == {(name, "ok", "") for name in there}
    for sample in run.samples:
        numbers = sample.numbers
        assert numbers["total_ns"] == numbers["decode_ns"] + numbers["stitch_ns"] + numbers["sync_ns"] > 0
        assert {"peak_anonymous", "peak_file", "peak_dirty", "peak_used", "peak_committed"} <= numbers.keys()
        assert sample.points
    assert read_back(run) == run
    assert not [path for path in place.rglob("*") if path.is_file() and path.parent.name not in images.INPUTS]


@pytest.mark.processes
def test_another_canvas_is_no_result(tmp_path, file, monkeypatch):
    monkeypatch.setattr(images.Expected, "of", lambda *_: 1)
    run = images.run(tmp_path, replace(SMALL, ways=("numpy",), syncs=(False,)), file=str(file))
    assert {s.state for s in run.samples} == {"wrong data"}


@pytest.mark.processes
def test_a_limit_stops_the_heap_alone(tmp_path):
    """72 MB of images and as much of a canvas, where 64 MiB of private memory are allowed.

    The decoder of onecopy takes 17 MiB on an idle machine, and 8 MiB more for the stack of each thread that ends late.
    """
    path = tmp_path / "big.tif"
    image = np.zeros((3000, 2000, 3), np.uint8)
    image[::7, ::5] = 200
    tifffile.imwrite(path, image, tile=(256, 256), compression="deflate", photometric="rgb")
    place = tmp_path / "place"
    place.mkdir()
    options = replace(SMALL, count=4, limit=64 << 20, inputs=("compressed",), syncs=(), ways=("numpy", "onecopy"))
    run = images.run(place, options, file=str(path))
    states = {sample.row: sample.state for sample in run.samples}
    assert states == {"numpy": "failed", "onecopy": "ok"}
    assert any("onecopy finishes; these do not: numpy" in sentence for sentence in SCENARIO.sentences(run))


def test_the_sampler_tells_what_is_above_its_first_look():
    import os

    looks = sampler.Sampler(os.getpid())
    block = np.ones(96 << 20, np.uint8)  # more than a heap keeps of what other tests have freed
    looks.look()
    assert looks.peaks()["peak_anonymous"] >= 90 << 20
    assert looks.until_back(0.1, 0.05) is None
    del block
    assert looks.until_back(0.1, 5.0) is not None


def record() -> Record:
    case = ("compressed files", "left to the kernel")
    limited = ("compressed files", "at most 24 MiB of private memory")
    points = ((0.1, 1.0, 2.0, 3.0, 4.0), (0.9, 5.0, 6.0, 7.0, 8.0))
    heap = {"total_ns": 2e9, "decode_ns": 1e9, "peak_anonymous": 900 * MB, "peak_file": 0.0}
    ours = {"total_ns": 1e9, "decode_ns": 1e9, "peak_anonymous": 20 * MB, "peak_file": 900 * MB}
    good = [taken("numpy", case, **heap), taken("onecopy", case, **ours), taken("onecopy", limited, **ours)]
    samples = [
        *(replace(sample, points=points) for sample in good),
        Sample("numpy", limited, 0, "failed", "MemoryError"),
    ]
    rows = [Row("numpy"), Row("onecopy", ours=True)]
    data = {"shape": [10, 20, 3], "decoded": 4800, "compressed": 1000}
    return made("images", samples, rows, options=images.Options(rounds=1), data=data)


def test_tables_sentences_and_pictures_of_a_record(tmp_path):
    run = record()
    second, first = SCENARIO.tables(run)
    assert first.rows[0][:2] == ("numpy", "2")
    assert second.rows[0][1] == "failed"
    said = SCENARIO.sentences(run)
    assert "compressed files, left to the kernel: anonymous memory 900 MB -> 20 MB, in 0.5 of the time." in said
    assert "10 x 20 x 3 bytes" in SCENARIO.heading(run)
    for name in ("out.svg", "out.png"):
        pictures.save(tmp_path / name, lambda figure: SCENARIO.draw(figure, run))
        assert (tmp_path / name).stat().st_size > 1000
