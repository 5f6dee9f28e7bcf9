"""A server whose workers do not fit into its control group: killed alone, it serves and trains under `onecopy run`."""

import hashlib
import json
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support import served
from tests.support.memory_group import NoMemoryGroupError, memory_group
from tests.support.served import GUNICORN, PYTHON, RUN, running
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)

LAYER = 1025 * 1024 * 4
"""Bytes."""
TRAINING = 80 << 20
"""Bytes of private memory that a step of training adds to a worker; 76 MiB were measured."""
SIZES = {"4 workers, 200 MB": (4, 48, None), "8 workers, 1.5 GB, 4 GiB": (8, 357, 4 << 30)}
"""Workers, layers, and bytes of the group; None: as small as the test of `onecopy run` allows."""
MARKS = {"4 workers, 200 MB": pytest.mark.slow, "8 workers, 1.5 GB, 4 GiB": pytest.mark.nightly}


@pytest.fixture(params=[pytest.param(SIZES[name], id=name, marks=MARKS[name]) for name in SIZES])
def case(request, tmp_path, monkeypatch):
    """Give the number of workers, the path of a model, what one process answers, and the bytes of the group."""
    for module in ("torch", "gunicorn"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    workers, layers, limit = request.param
    path = tmp_path / "model.pt"
    weights = served.made_model(path, layers)
    monkeypatch.setenv("MODEL", str(path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = json.loads(served.plain("model.py"))
    interpreter = max(alone["private"] - alone["grown"], 150 << 20)
    if limit is None:  # when all workers train: the snapshot, and 100 MiB for other processes and for reading ahead
        limit = workers * (interpreter + TRAINING) + weights + (100 << 20)
    assert workers * (interpreter + weights) > limit, "the workers alone would fit"
    yield workers, path, alone, limit
    path.unlink()


@contextmanager
def limited(command, folder, limit):
    """Give a server in a control group."""
    try:
        with memory_group(limit) as enter, running([*command, "app:app"], folder, enter=enter) as server:
            yield server
    except NoMemoryGroupError as error:
        pytest.skip(str(error))


@pytest.mark.nightly
def test_workers_alone_are_killed(case, tmp_path):
    workers, _, _, limit = case
    with limited([*PYTHON, *GUNICORN, "-w", str(workers)], tmp_path, limit) as server:
        until(lambda: "SIGKILL" in server.log or server.process.poll() is not None, "the OOM killer", seconds=300)


def digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def test_workers_under_onecopy_run_answer_and_train_each_for_itself(case, tmp_path):
    """Each constructs its model with random weights first: all at once need more than there is."""
    workers, path, alone, limit = case
    before = digest(path)
    with limited([*RUN, *PYTHON, *GUNICORN, "-w", str(workers)], tmp_path, limit) as server:
        answers = server.answers_of(workers, seconds=600)  # they load one after the other
        assert {answer["out"] for answer in answers.values()} == {alone["out"]}
        first = server.ask("/train")
        others = server.answers_of(workers)
        assert Counter(answer["trained"] for answer in others.values()) == {True: 1, False: workers - 1}
        assert {one["out"] for pid, one in others.items() if pid != first["pid"]} == {alone["out"]}
        trained = server.answers_of(workers, "/train")
        report = server.stop()
    assert set(trained) == set(answers), "a worker was replaced"
    assert alone["out_trained"] != alone["out"]
    for answer in (first, *trained.values()):
        assert answer["out"] == alone["out_trained"]
        assert LAYER - 8192 <= answer["written"] <= 2 * LAYER  # pages of one layer, now private
    assert digest(path) == before
    assert "SIGKILL" not in report
