"""`onecopy run` with pools of processes: one copy of the weights, the same answers, nothing left."""

import json
from typing import NamedTuple

import pytest
from tests.support import rounds, served

from onecopy.base.text import amount

pytestmark = pytest.mark.slow

WORKERS = 3
POOLS = {
    "joblib": ("joblib",),
    "fork": ("pool", "fork"),
    "spawn": ("pool", "spawn"),
    "forkserver": ("pool", "forkserver"),
    "forkserver, preloaded": ("preloaded",),
    "fork, inherited": ("inherited", "fork"),
    "DataLoader, fork": ("loader", "fork"),
    "DataLoader, spawn": ("loader", "spawn"),
    "DataLoader, forkserver": ("loader", "forkserver"),
}
EACH_TIME = {"joblib", "fork", "spawn", "fork, inherited", "DataLoader, fork", "DataLoader, spawn"}
"""The other rows differ little from one of these."""
LOADED_ONCE = ("preloaded", "inherited")
"""In the names of programs of which one process loads the model, and the others fork from it."""


class Model(NamedTuple):
    """The file of a model, its weights in bytes, and what a process answers that loads it without onecopy."""

    path: str
    weights: int
    alone: dict[str, float]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("torch", reason="torch is not installed")
    path = tmp_path_factory.mktemp("model") / "model.pt"
    made = Model(str(path), served.made_model(path), json.loads(served.plain("model.py", MODEL=str(path))))
    assert made.alone["grown"] > made.weights > 2 * made.alone["mapped"]  # without onecopy, a process has a copy
    return made


@pytest.fixture(autouse=True)
def environment(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MODEL", model.path)
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("TOGETHER", str(tmp_path / "together"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.parametrize("name", rounds.rows(POOLS, EACH_TIME))
def test_processes_of_a_pool_hold_the_weights_once(model, onecopy_process, name):
    pytest.importorskip("joblib", reason="joblib is not installed")
    done = onecopy_process("run", "--", *served.PYTHON, "pools.py", *POOLS[name], cwd=served.PROGRAMS)
    assert done.returncode == 0, done.stderr
    assert_held_once(model, json.loads(done.stdout))
    callers = 1 if any(word in name for word in LOADED_ONCE) else WORKERS
    assert f"{amount(callers, 50_300_000)}   model.pt: torch.load" in done.stderr, done.stderr  # small arrays are read


@pytest.mark.parametrize("start", rounds.rows(["fork", "spawn", "forkserver"], EACH_TIME))
def test_one_import_in_the_program_reaches_the_processes_of_a_pool(model, tmp_path, start):
    """Under spawn and forkserver, processes import the module of the program again, and so this line."""
    program = tmp_path / "program.py"
    program.write_text("import onecopy.auto\n" + (served.PROGRAMS / "pools.py").read_text())
    answers = served.plain(str(program), "pool", start, PYTHONPATH=str(served.PROGRAMS))
    assert_held_once(model, json.loads(answers))


def assert_held_once(model, answers):
    """All weights that a process uses are pages of the file."""
    assert len({answer["pid"] for answer in answers}) == len(answers) == WORKERS
    for answer in answers:
        assert answer["out"] == model.alone["out"]
        assert answer["mapped"] > 0.95 * model.weights
        assert answer["written"] == 0
        assert answer["grown"] < model.weights // 2


@pytest.mark.parametrize("way", rounds.rows(["joblib", "fork", "spawn", "forkserver"], EACH_TIME))
def test_a_model_that_is_given_to_a_process_is_shared_as_the_page_about_servers_says(model, onecopy_process, way):
    pytest.importorskip("joblib", reason="joblib is not installed")
    done = onecopy_process("run", "--", *served.PYTHON, "pools.py", "given", way, cwd=served.PROGRAMS)
    assert done.returncode == 0, done.stderr
    for answer in json.loads(done.stdout):
        assert answer["out"] == model.alone["out"]
        assert (answer["mapped"] > 0.95 * model.weights) == (way == "fork")
        has_copy = answer["private"] > model.alone["private"] - model.weights // 2
        assert has_copy == (way == "joblib")  # under spawn and forkserver it is in /dev/shm, once
