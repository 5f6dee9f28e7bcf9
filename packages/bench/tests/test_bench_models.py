"""`bench models`: real sessions in real processes, small; and what is made of their numbers."""

from dataclasses import replace

import numpy as np
import pytest
from packages.bench.tests.support import read_back
from tests.support.onnx_models import IDS, save_inline

from onecopy.cli import command_line
from onecopy_bench.engine import pages, pictures
from onecopy_bench.engine.tables import above_empty
from onecopy_bench.scenarios.models import scenario as models
from onecopy_bench.scenarios.models import ways
from onecopy_bench.scenarios.models.scenario import SCENARIO

SMALL = models.Options(rounds=1, idle_wait=0.0, timeout=60.0, processes=(1, 2), runs=2, batches=(1, 4))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    model = save_inline(folder / "words.onnx", aligned=False, rows=40_000)
    (folder / "place").mkdir()
    return models.run(folder / "place", SMALL, file=str(model))


@pytest.mark.processes
@pytest.mark.slow
def test_every_way_gives_the_outputs_of_onnx_runtime(run):
    assert {(s.row, s.state, s.reason) for s in run.samples} == {
        (name, "ok", "") for name in (*models.NAMES, ways.EMPTY)
    }
    assert run.cases() == (("words", "1 process"), ("words", "2 processes"))


@pytest.mark.processes
@pytest.mark.slow
def test_what_is_shared_is_held_once(run):
    two = ("words", "2 processes")
    held = {way.name: above_empty("anonymous")(run, way.name, two).median for way in ways.WAYS}
    assert held["inline"] > 2 * 20
    for name in ("onecopy direct", "onecopy direct, inline", "onecopy packed", "onecopy auto"):
        assert held[name] < 15, name


@pytest.mark.processes
@pytest.mark.slow
def test_tables_sentences_and_a_picture_are_made_of_it(run, tmp_path):
    first, second = SCENARIO.tables(run)
    assert first.title == "words, 1 process"
    assert [heading.split("\n")[0] for heading in first.header][-2:] == ["run, 4", "run, 4"]
    assert len(second.header) == len(first.header) - 4
    assert len(first.rows) == len(ways.WAYS) + 1
    said = "\n".join(SCENARIO.sentences(run))
    assert "words, 2 processes: MB in all: onecopy packed" in said
    pictures.save(tmp_path / "picture.svg", lambda figure: SCENARIO.draw(figure, run))
    assert "MB, less empty" in (tmp_path / "picture.svg").read_text()
    assert read_back(run) == run
    assert "saved packed" in pages.page(SCENARIO, run)


@pytest.mark.processes
def test_inputs_may_be_given(tmp_path):
    model = save_inline(tmp_path / "words.onnx", aligned=True)
    np.savez(tmp_path / "inputs.npz", ids=IDS)
    options = replace(SMALL, ways=("inline",), processes=(1,), inputs=str(tmp_path / "inputs.npz"))
    (tmp_path / "place").mkdir()
    run = models.run(tmp_path / "place", options, file=str(model))
    assert [(s.row, s.state) for s in run.samples if s.row == "inline"] == [("inline", "ok")]


@pytest.mark.processes
def test_a_model_that_cannot_be_written_is_absent_with_its_reason(tmp_path):
    (tmp_path / "odd.onnx").write_bytes(b"no model")
    (tmp_path / "place").mkdir()
    run = models.run(tmp_path / "place", SMALL, file=str(tmp_path / "odd.onnx"))
    assert run.samples == ()
    assert [absent.name for absent in run.absent] == ["odd"]


def test_what_is_missing_is_said_without_the_name_of_a_class(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(models, "NEEDS", ("no_such_onnx",))
    assert command_line.run(["bench", "models", "--json", str(tmp_path / "out.json")]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith("onecopy: bench models needs no_such_onnx: pip install no_such_onnx")
