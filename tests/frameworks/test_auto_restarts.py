"""Programs under `onecopy run` whose processes are all killed, and that are started again."""

import json

import pytest
from tests.support import served
from tests.support.page_cache import forget, pages_in_cache
from tests.support.served import GUNICORN, PYTHON, RUN, running
from tests.support.store_processes import suffixes
from tests.support.waiting import until

import onecopy as oc

pytestmark = pytest.mark.slow

WORKERS = 3
SERVER = [*RUN, *PYTHON, *GUNICORN, "-w", str(WORKERS), "app:app"]
HOLD = [*PYTHON, "-m", "onecopy", "hold", "--json"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Give the path of a model that is not in memory, and the bytes of its weights."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    path = tmp_path / "model.pt"
    weights = served.made_model(path)
    monkeypatch.setenv("MODEL", str(path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    forget(path)
    if 1 in pages_in_cache(path):
        pytest.skip(f"the file system of {tmp_path} keeps its files in memory")
    return path, weights


def killed_and_asked_again(path, folder):
    """Kill a server with `onecopy run`, evict the file as far as possible, and start it again; return its answers."""
    with running(SERVER, folder) as server:
        before = server.answers_of(WORKERS)
        server.kill()
    forget(path)
    with running(SERVER, folder) as server:
        after = server.answers_of(WORKERS)
        server.stop()
    assert {answer["out"] for answer in before.values()} == {answer["out"] for answer in after.values()}
    assert not set(before) & set(after)
    return after.values()


def test_held_weights_are_not_read_again_after_all_processes_were_killed(model, tmp_path):
    path, weights = model
    with running([*HOLD, str(path)], tmp_path) as holder:
        until(lambda: '"held"' in holder.log, "the file to be held")
        if json.loads(holder.log.splitlines()[0])["locked"] < path.stat().st_size:
            pytest.skip("RLIMIT_MEMLOCK does not allow to lock the file")
        answers = killed_and_asked_again(path, tmp_path)
        assert set(pages_in_cache(path)) == {1}
        assert holder.process.poll() is None
    assert sum(answer["read"] for answer in answers) < weights // 50


@pytest.mark.nightly
def test_weights_that_nothing_holds_are_read_from_the_disk_again(model, tmp_path):
    """What the test above measures would show it."""
    path, weights = model
    answers = killed_and_asked_again(path, tmp_path)
    assert sum(answer["read"] for answer in answers) > 0.9 * weights


def test_weights_whose_cast_was_killed_are_cast_by_the_next_process(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    store = oc.Store(tmp_path / "store")
    model = str(tmp_path / "gpt")
    served.plain("casting.py", model, "make")
    right = served.plain("casting.py", model).strip()
    command = [*RUN, *PYTHON, "casting.py", model]
    killed = 0
    while not killed:  # in most first rounds: writing the cast takes longer than noticing that it has begun
        store.prune(everything=True)
        with running(command, tmp_path) as one:
            until(lambda: {".claim", ".oc"} & set(suffixes(store)), "the cast to begin")
            one.kill()
        killed += ".oc" not in suffixes(store)
    with running(command, tmp_path) as one:
        assert one.process.wait(60) == 0
        assert right in one.log
        assert "47.1 MB of 1 file" in one.log
    until(lambda: store.prune() and set(suffixes(store)) == {".about", ".oc"}, "the store to be swept")
