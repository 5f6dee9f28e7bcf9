"""The memory of four workers of servers, schedulers and test runners, started plain and with `onecopy run`."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.support import rounds, served
from tests.support.served import GUNICORN, PROGRAMS, PYTHON, RUN, Answer, Running, running
from tests.support.waiting import until

from onecopy.base.text import amount

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WORKERS = 4
BYTES = 48 << 20
"""The size of the array that all workers load."""
OWN = 6 << 20
"""Bytes that a worker may hold besides: 2 MB of onecopy were measured, 5 MB in forks that import it themselves."""


def by_http(path: str = "/", body: bytes | None = None) -> Callable[[Running], Iterable[Answer]]:
    """Return a function that asks all workers of a server, once more when all of them have loaded the array."""

    def ask(server: Running) -> Iterable[Answer]:
        server.answers_of(WORKERS, path, body)
        return server.answers_of(WORKERS, path, body).values()

    return ask


def by_client(server: Running) -> Iterable[Answer]:
    """Return what the workers of Celery answer to a client, when all of them have loaded the array."""
    ask = partial(served.plain, "tasks.py", str(WORKERS), BROKER=str(server.folder), LOADED="process")
    ask()
    return json.loads(ask())


def by_print(program: Running) -> Iterable[Answer]:
    """Return what a program prints as its last line."""
    assert program.process.wait(300) == 0, program.log
    return json.loads(next(line for line in program.log.splitlines() if line.startswith("[{")))


def by_files(program: Running) -> Iterable[Answer]:
    """Return what processes write that answer together."""
    found: list[str] = []

    def have_answered() -> bool:
        found[:] = filter(None, (path.read_text() for path in (program.folder / "together-measured").glob("*")))
        return len(found) == WORKERS or program.process.poll() is not None

    until(have_answered, "all tasks to answer", seconds=300)
    assert len(found) == WORKERS, program.log
    return map(json.loads, found)


class Server(NamedTuple):
    """How to start a server, in words for Python, and how to ask its workers."""

    package: str
    words: tuple[str, ...]
    ask: Callable[[Running], Iterable[Answer]] = by_http()
    loading: int = WORKERS
    """Processes that load the array; the other workers are forks of them."""
    more: Mapping[str, str] = {}
    """Added to the environment."""
    stop: int = signal.SIGTERM


OF_GUNICORN = (*GUNICORN, "-w", str(WORKERS))
OF_UVICORN = ("-m", "uvicorn", "--workers", str(WORKERS), "--port", "PORT", "app:asgi")
OF_CELERY = ("-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "--concurrency", str(WORKERS))
OF_XDIST = ("-m", "pytest", "-p", "xdist", "-n", str(WORKERS), "-c", "FOLDER/pytest.ini", "--noconftest")
OF_TRITON = {"path": "/v2/models/answer/infer", "body": b'{"inputs": []}'}
ASGI = ("-k", "uvicorn_worker.UvicornWorker")
AIRFLOW = {
    "AIRFLOW_HOME": "FOLDER",
    "AIRFLOW__API__PORT": "PORT",
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(PROGRAMS),
    "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": "http://localhost:PORT/execution/",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__PARALLELISM": str(WORKERS),
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}
SERVERS = {
    "gunicorn": Server("gunicorn", (*OF_GUNICORN, "app:app")),
    "gunicorn, preloaded": Server("gunicorn", (*OF_GUNICORN, "--preload", "app:app"), loading=1),
    "uvicorn_worker": Server("uvicorn-worker", (*OF_GUNICORN, *ASGI, "app:asgi")),
    "uvicorn_worker, preloaded": Server("uvicorn-worker", (*OF_GUNICORN, *ASGI, "--preload", "app:asgi"), loading=1),
    "uvicorn": Server("uvicorn", OF_UVICORN),
    "Celery": Server("celery", OF_CELERY, by_client, more={"LOADED": "process"}),
    "Celery, loaded at import": Server("celery", OF_CELERY, by_client, loading=1, more={"LOADED": "import"}),
    "BentoML": Server(
        "bentoml", ("-m", "bentoml", "serve", "bento_service:Server", "-p", "PORT"), by_http("/answer", b"{}")
    ),
    "LitServe": Server("litserve", ("lit_server.py", "PORT"), by_http("/predict", b"{}"), stop=signal.SIGINT),
    "HTTP server with a pool": Server("Python", ("http_pool.py", "PORT")),
    "Jupyter kernels": Server("jupyter_client", ("jupyter_kernels.py",), by_print),
    "short tasks": Server("Python", ("short_tasks.py",), by_files, loading=2 * WORKERS),
    "pytest-xdist": Server(
        "pytest-xdist", (*OF_XDIST, "checked.py"), by_files, more={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ),
    "Ray Serve": Server("ray", ("deployment.py",), by_print),
    "Triton": Server("nvidia-pytriton", ("triton_server.py", "FOLDER/triton", "PORT"), by_http(**OF_TRITON)),
    "Airflow": Server("apache-airflow", ("-m", "airflow", "standalone"), by_files, more=AIRFLOW, stop=signal.SIGINT),
}
EACH_TIME = {"gunicorn", "uvicorn", "Celery", "BentoML", "LitServe", "HTTP server with a pool"}
EACH_TIME |= {"Jupyter kernels", "short tasks", "pytest-xdist"}
"""The other rows differ little from one of these, or take minutes."""


@pytest.fixture(scope="module")
def array(tmp_path_factory):
    """Give the path of the array."""
    path = tmp_path_factory.mktemp("array") / "vectors.npy"
    np.save(path, np.arange(BYTES // 4, dtype=np.float32).reshape(-1, 1024))
    return path


@pytest.fixture(autouse=True)
def environment(array, tmp_path, monkeypatch):
    monkeypatch.setenv("MODEL", str(array))
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def measured(server: Server, folder: Path, *before: str, auto: str = "") -> tuple[list[Answer], str]:
    """Start a server and ask its workers; return their answers, and what was printed."""
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    more = {"BROKER": "FOLDER", "TOGETHER": "FOLDER/together", "ONECOPY_AUTO": auto, **server.more}
    more = {name: value.replace("FOLDER", str(folder)) for name, value in more.items()}
    words = [word.replace("FOLDER", str(folder)) for word in (*PYTHON, *server.words)]
    with running([*before, *words], folder, more=more) as started:
        answers = list(server.ask(started))
        return answers, started.stop(server.stop)


def assert_mapped(answers: list[Answer]) -> None:
    """All pages of the array that a process uses are those of a snapshot, and none is private."""
    assert len({answer["pid"] for answer in answers}) == len(answers) == WORKERS
    for answer in answers:
        assert answer["mapped"] > 0.95 * BYTES
        assert answer["written"] == 0


@pytest.mark.parametrize("name", rounds.rows(SERVERS, EACH_TIME))
def test_workers_hold_an_array_once(array, tmp_path, tested, name):
    server = SERVERS[name]
    tested.version_of(server.package)
    plain, _ = measured(server, tmp_path / "plain", auto="0")
    shared, report = measured(server, tmp_path / "run", *RUN)
    assert {answer["out"] for answer in shared} == {answer["out"] for answer in plain}
    assert_mapped(shared)
    assert f"{amount(server.loading, 50_300_000)}   vectors.npy: numpy.load" in report, report
    before, after = (sum(answer["pss"] for answer in answers) for answers in (plain, shared))
    saved = (min(server.loading, WORKERS) - 1) * BYTES
    assert saved - WORKERS * OWN < before - after < saved + WORKERS * OWN, (before, after)
    tested.record("server", name, server.package, before=before, after=after)


@pytest.mark.parametrize("name", rounds.rows(["gunicorn", "gunicorn, preloaded", "uvicorn"], EACH_TIME))
def test_one_import_in_the_application_reaches_the_workers_of_a_server(array, tmp_path, tested, name):
    tested.version_of(SERVERS[name].package)
    (tmp_path / "app.py").write_text("import onecopy.auto\n" + (PROGRAMS / "app.py").read_text())
    more = {"PYTHONPATH": str(PROGRAMS)}
    with running([*PYTHON, *SERVERS[name].words], tmp_path, cwd=tmp_path, more=more) as server:
        assert_mapped(list(server.answers_of(WORKERS).values()))
