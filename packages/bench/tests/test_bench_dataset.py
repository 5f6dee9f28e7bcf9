"""`bench dataset`: images that ranks and their workers read, and what is made of the numbers."""

from dataclasses import replace

import pytest
from packages.bench.tests.support import made, read_back, taken

from onecopy_bench.engine import pictures
from onecopy_bench.engine.record import Row
from onecopy_bench.scenarios.dataset import scenario as dataset
from onecopy_bench.scenarios.dataset.ways import NAMES

pytest.importorskip("PIL.Image", reason="Pillow is not installed")

MB = 1_000_000
SMALL = dataset.Options(rounds=1, idle_wait=0.0, timeout=90.0, count=60, height=400, width=300)


@pytest.mark.processes
def test_all_ways_read_the_same_pixels(tmp_path):
    run = dataset.run(tmp_path, SMALL)
    assert [(one.state, one.reason) for one in run.samples] == [("ok", "")] * len(NAMES)
    assert {one.row for one in run.samples} == set(NAMES)
    (checksum,) = {one.numbers["checksum"] for one in run.samples}
    assert checksum > 60 * 400 * 300
    cached = {one.row: one.numbers["cached"] for one in run.samples}
    pixels = 60 * 400 * 300 * 3
    assert cached["Pillow"] == cached["list of arrays"] == 0
    assert min(cached[".npy files"], cached["onecopy"]) >= pixels
    anonymous = {one.row: one.numbers["anonymous"] for one in run.samples}
    assert anonymous["list of arrays"] - anonymous["onecopy"] > pixels  # one copy in each of two ranks
    assert read_back(run) == run
    assert "The pixels of all ways are equal." in dataset.SCENARIO.sentences(run)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images"]


@pytest.mark.processes
def test_what_a_rank_cannot_decode_is_a_failed_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "write", lambda folder, _: (folder.mkdir(), (folder / "0.jpg").write_text("text")))
    run = dataset.run(tmp_path, replace(SMALL, ways=("list of arrays",)))
    (one,) = run.samples
    assert one.state == "failed"
    assert "cannot identify image file" in one.reason


def test_tables_sentences_and_pictures_of_a_record(tmp_path):
    case = ("2 ranks of 2 workers",)
    theirs = {"first_ns": 4e9, "second_ns": 2e9, "pss": 900 * MB, "anonymous": 800 * MB, "cached": 0.0, "checksum": 1.0}
    ours = theirs | {"second_ns": 1e9, "anonymous": 8 * MB}
    samples = [taken("Pillow", case, **theirs), taken("onecopy", case, **ours)]
    rows = [Row("Pillow"), Row("onecopy", ours=True)]
    run = made("dataset", samples, rows, options=SMALL, data={"decoded": 2 * MB, "compressed": MB})
    (table,) = dataset.SCENARIO.tables(run)
    assert table.rows[0] == ("Pillow", "4", "2", "30", "900", "800", "0")
    said = dataset.SCENARIO.sentences(run)
    assert "Pillow -> onecopy: anonymous memory 800 MB -> 8 MB, second epoch in 0.5 of the time." in said
    assert "60 JPEG images of 400 x 300 pixels" in dataset.SCENARIO.heading(run)
    different = made("dataset", [samples[0], taken("onecopy", case, **ours | {"checksum": 2.0})], rows, options=SMALL)
    assert "The pixels of all ways are DIFFERENT." in list(dataset.findings(different))
    pictures.save(tmp_path / "out.svg", lambda figure: dataset.SCENARIO.draw(figure, run))
    assert (tmp_path / "out.svg").stat().st_size > 1000
