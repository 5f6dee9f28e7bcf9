"""Every example in a docstring of a public module runs and shows what it says."""

import contextlib
import doctest
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest
from tests.support.kernel import has_memory_files
from tests.support.places import ROOT

import onecopy

MODULES = sorted(
    path.relative_to(source).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for source in (ROOT / "python", *ROOT.glob("packages/*/src"))
    for path in source.rglob("*.py")
    if ">>> " in path.read_text() and path.stem != "transformers"  # loads a framework: in tests/frameworks
)
OF_ITS_OWN = ("onecopy.auto.", "onecopy.run.call_log")
"""Modules whose examples replace functions of frameworks: they run in an interpreter of their own."""


@pytest.mark.parametrize("module", [module for module in MODULES if module.startswith(OF_ITS_OWN)])
def test_the_examples_of_a_module_that_replaces_functions_are_true(module, python, tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    code = f"import doctest, {module} as module; print(doctest.testmod(module))"
    assert re.fullmatch(r"TestResults\(failed=0, attempted=[1-9]\d*\)\n", python(code))


@pytest.mark.parametrize("module", [module for module in MODULES if not module.startswith(OF_ITS_OWN)])
def test_the_examples_of_a_module_are_true(module, tmp_path, monkeypatch, request):
    if module.startswith(("onecopy.arrays.scratch", "onecopy_images")):
        request.getfixturevalue("reserving")
    if module.startswith("onecopy_onnxruntime"):
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    if module.startswith("onecopy_images."):
        pytest.importorskip("tifffile")
        pytest.importorskip("imagecodecs")
    if module in ("onecopy_records._arrow_unions", "onecopy_records.rows", "onecopy_records.row_files"):
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not has_memory_files():  # to the examples any new file is as good
        monkeypatch.setattr(os, "memfd_create", lambda name: tempfile.mkstemp(name)[0])
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    with contextlib.suppress(onecopy.DataLost):  # of the example of `guard`: reported once
        onecopy.files.check()
    assert result.attempted > 0
    assert result.failed == 0


def test_four_workers_hold_one_copy(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, ROOT / "examples/share_between_workers.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    held = int(re.fullmatch(r"4 workers hold (\d+) MB of a file of 64 MB\n", done.stdout)[1])
    assert 60 <= held <= 70  # and not 256


@pytest.mark.slow
def test_workers_under_run_hold_one_copy_and_calculate_the_same(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "examples/eight_workers.py", "--gigabytes", "0.1", "--workers", "3", "--rounds", "1"]
    command += ["--json", tmp_path / "record.json", "--picture", tmp_path / "picture.svg"]
    subprocess.run(command, cwd=ROOT, check=True)
    record = json.loads((tmp_path / "record.json").read_text())
    before = record["rounds"][0]["plain"]
    assert re.search(r"3 x .* MB   private copies of .*model\.pt", before["page"])
    assert before["expected"] < before["bytes"] - 100e6  # two of three copies, less what `onecopy run` itself needs
    assert record["medians"]["run"]["bytes"] == pytest.approx(before["expected"], rel=0.15)
    assert "onecopy run --" in (tmp_path / "picture.svg").read_text()


@pytest.mark.slow
def test_an_inference_server_holds_one_copy(tmp_path, monkeypatch):
    pytest.importorskip("uvicorn")
    pytest.importorskip("onnxruntime")
    models = pytest.importorskip("tests.support.onnx_models", reason="onnx is not installed", exc_type=ImportError)
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    model, request = models.save_inline(tmp_path / "model.onnx", aligned=True, rows=40_000), tmp_path / "request.json"
    request.write_text('{"ids": [1, 2, 3]}')
    command = [sys.executable, ROOT / "examples/serve_model.py", model, request, "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    private = dict(re.findall(r"^(read|prepacked) .* (\d+) MB .*ms$", done.stdout, re.MULTILINE))
    assert int(private["prepacked"]) < int(private["read"]) - 30  # of twice 20


def test_an_io_manager_maps_what_it_wrote_and_keeps_what_was_loaded(tmp_path, monkeypatch):
    numpy = pytest.importorskip("numpy")
    monkeypatch.syspath_prepend(ROOT / "examples/io_manager")
    monkeypatch.setitem(sys.modules, "dagster", None)  # in tests/frameworks
    manager = importlib.import_module("onecopy_io").OnecopyIOManager(tmp_path)
    monkeypatch.delitem(sys.modules, "onecopy_io")
    asset = SimpleNamespace(has_asset_key=True, get_asset_identifier=lambda: ["maps", "../2026/11.0"])
    output = SimpleNamespace(has_asset_key=False, get_identifier=lambda: ["run", "step", "result"])
    manager.handle_output(asset, {"table": numpy.arange(100_000)})
    manager.handle_output(output, [1])
    assert manager.load_input(output) == [1]
    loaded = manager.load_input(asset)["table"]
    manager.handle_output(asset, {"table": numpy.zeros(3)})
    assert (loaded[-1], manager.load_input(asset)["table"].size) == (99_999, 3)
    assert not loaded.flags.writeable
    assert (tmp_path / "maps/..%2F2026%2F11.0.oc").exists()
    with pytest.raises(FileNotFoundError):
        manager.load_input(SimpleNamespace(has_asset_key=True, get_asset_identifier=lambda: ["none"]))
