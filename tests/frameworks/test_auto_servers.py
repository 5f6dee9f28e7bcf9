"""`onecopy run` with servers as users start them: one copy of the weights, the same answers, nothing left."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.children import CHILD_SECONDS
from tests.support.memory_group import NoMemoryGroupError, memory_group
from tests.support.waiting import until

APP = """
import json, os, sys
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(12)))
model.load_state_dict(torch.load(os.environ["MODEL"]))

def answer():
    with torch.no_grad():
        out = model(torch.ones(1, 2048)).sum().item()
    rollup = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
    return json.dumps({"pid": os.getpid(), "out": out, "private": int(rollup["Anonymous"].split()[0]) << 10}).encode()

def app(environ, start):
    start("200 OK", [("Content-Type", "application/json")])
    return [answer()]

async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": answer()})
"""
WEIGHTS = 12 * 2049 * 2048 * 4
WORKERS = 3


@pytest.fixture
def app(torch, tmp_path, monkeypatch):
    """Give the folder of an application, and its answer without onecopy."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(12)))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.setenv("MODEL", str(tmp_path / "model.pt"))
    code = "import app; print(app.answer().decode())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, timeout=100)
    return tmp_path, json.loads(done.stdout)


@pytest.fixture
def serve(app):
    """Give a function that runs a server under `onecopy run`, asks until all workers answered, and ends it."""
    folder, _ = app
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]

    def asked(workers, server, *arguments, enter=None):
        command = [sys.executable, "-m", "onecopy", "run", "--", sys.executable, "-m", server, *arguments]
        command = [word.replace("PORT", str(port)) for word in command]
        log = (folder / "log").open("wb")
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=enter,  # noqa: PLW1509 - no threads
        )
        answers = {}

        def ask(_):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as response:
                    return json.load(response)
            except OSError:
                return None

        def all_answered():
            assert process.poll() is None, (folder / "log").read_text()
            with ThreadPoolExecutor(workers) as pool:  # at the same time, so that no worker answers all
                answers.update({answer["pid"]: answer for answer in pool.map(ask, range(workers)) if answer})
            return len(answers) >= workers

        try:
            until(all_answered, "all workers to answer", seconds=CHILD_SECONDS)
            process.terminate()
            process.wait(CHILD_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(CHILD_SECONDS)
            log.close()
        return answers.values(), (folder / "log").read_text()

    return asked


SERVERS = {
    "gunicorn": ("gunicorn", "-w", str(WORKERS), "-b", "127.0.0.1:PORT", "--timeout", "90", "app:app"),
    "gunicorn, preloaded": ("gunicorn", "-w", str(WORKERS), "-b", "127.0.0.1:PORT", "--preload", "app:app"),
    "uvicorn": ("uvicorn", "--workers", str(WORKERS), "--port", "PORT", "app:asgi"),
}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", SERVERS)
def test_workers_hold_the_weights_once_and_answer_as_before(app, serve, name):
    pytest.importorskip(SERVERS[name][0], reason=f"{SERVERS[name][0]} is not installed")
    answers, log = serve(WORKERS, *SERVERS[name])
    for answer in answers:
        assert answer["out"] == app[1]["out"]
        assert answer["private"] < app[1]["private"] - WEIGHTS // 2, log
    holding = 1 if "preloaded" in name else WORKERS
    assert f"model.pt, 201 MB, by {holding} process" in log, log


@pytest.mark.slow
@pytest.mark.processes
def test_workers_start_in_less_memory_than_their_models_take(app, serve):
    """Each needs memory for its random weights first: four at once need more than there is."""
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    interpreter = app[1]["private"] - 2 * WEIGHTS
    limit = 4 * max(interpreter, 150 << 20) + 2 * WEIGHTS + (150 << 20)
    arguments = ("gunicorn", "-w", "4", "-b", "127.0.0.1:PORT", "--timeout", "90", "app:app")
    try:
        with memory_group(limit) as enter:
            answers, log = serve(4, *arguments, enter=enter)
    except NoMemoryGroupError as error:
        pytest.skip(str(error))
    assert {answer["out"] for answer in answers} == {app[1]["out"]}
    assert "SIGKILL" not in log
    assert Path(app[0]).exists()
