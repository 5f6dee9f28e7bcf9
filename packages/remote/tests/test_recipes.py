"""The programs of the page on several machines run, and fetch a model once."""

import subprocess
import sys

import numpy as np
import pytest
from tests.support.places import ROOT

import onecopy as oc

pytestmark = pytest.mark.slow
ARRAYS = {"weight": np.arange(1, 1001, dtype=np.float64), "bias": np.ones(4)}


@pytest.fixture
def model(objects, tmp_path, monkeypatch) -> str:
    path = tmp_path / "model.safetensors"
    oc.save(path, ARRAYS)
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    return str(objects.put("model.safetensors", path.read_bytes()))


def run(example: str, url: str) -> list[str]:
    """Run an example; return the lines that it printed."""
    command = [sys.executable, str(ROOT / "examples" / example), url]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_workers_of_dask_open_a_url(model, objects):
    pytest.importorskip("distributed", reason="dask is not installed")
    size = len(objects.contents["model.safetensors"])
    lines = run("dask_cluster.py", model)
    assert lines == [f"{name}: {np.linalg.norm(ARRAYS[name]):.6g}" for name in oc.open(model)]
    versions = [one for one in objects.requests if one not in objects.data_requests]
    assert objects.served == size + len(versions)


@pytest.mark.nightly
def test_tasks_data_and_servers_of_ray_open_a_handle(model, objects):
    pytest.importorskip("ray.serve", reason="ray is not installed")
    size = len(objects.contents["model.safetensors"])
    lines = run("ray_cluster.py", model)
    with oc.open(model) as file:
        name = next(iter(file))
    norm, mean = np.linalg.norm(ARRAYS[name]), ARRAYS[name].mean()
    assert f"task: {norm:.6g}" in lines
    assert f"data: {sum(range(8)) * mean:.6g}" in lines
    assert f"serve: {norm:.6g}" in lines
    assert objects.served == size + 2  # the version: once for the handle, once by this test
