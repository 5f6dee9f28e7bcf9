"""Nodes of a job fetch a file once from the origin, and survive the loss of each other."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import is_alive
from tests.support.object_server import Fault, Objects, Request
from tests.support.waiting import until
from torchrun_nodes import Nodes

import onecopy as oc

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
CONTENT = os.urandom((3 << 20) + 12345)
PIECE = 1 << 16
DIGEST = hashlib.sha256(CONTENT).hexdigest()
FETCH = """
import hashlib, logging, os, pathlib, sys, time
logging.basicConfig(format="%(message)s")
from onecopy_remote import fetch, nodes, transfer
transfer.PIECE = 1 << 16
nodes.JOIN_S = float(os.environ.get("JOIN_S", "120"))
rank, restarts = os.environ["GROUP_RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
def progress(done, total):
    if os.environ.get("KILLED") == rank and restarts == "0" and done > total // 3:
        pathlib.Path(sys.argv[0]).with_name("killed").write_text(str(os.getpid()))
        os.kill(os.getpid(), int(os.environ.get("SIGNAL", "9")))
if os.environ.get("ABSENT") == rank:
    sys.exit()
url = sys.argv[1] + os.environ.get(f"MORE_{rank}", "")
path = fetch(url, nodes="torchrun", progress=progress)
print("fetched", hashlib.sha256(path.read_bytes()).hexdigest(), flush=True)
time.sleep(float(os.environ.get("WORK_S", "0")))
"""


def hold_the_last_pieces(objects: Objects, folder: Path) -> None:
    """Do not send the last third of the content before a process is killed."""
    lock = threading.Lock()

    def is_killed() -> bool:
        text = Path(folder, "killed").read_text() if Path(folder, "killed").exists() else ""
        return text != "" and not is_alive(int(text))

    def hold(request: Request) -> None:
        if request.begin > 2 * len(CONTENT) // 3:
            with lock:
                until(is_killed, "the process")

    objects.on_data = hold


@pytest.fixture
def run(tmp_path) -> Iterator[object]:
    """Run a script on several nodes; what still runs at the end of the test is ended."""
    pytest.importorskip("torch", reason="torch is not installed")
    started = []

    def start(url: str, count: int = 2, processes: int = 1, waits_for: int | None = None, **options: Any) -> list[str]:
        started.append(Nodes(tmp_path, FETCH, [url], count, processes, **options))
        return started[-1].wait(f"fetched {DIGEST}", waits_for)  # a traceback may have the word alone

    yield start
    for nodes in started:
        nodes.end()


def test_the_origin_sends_a_file_once_to_all_nodes(objects, run):
    count = 3
    outputs = run(objects.put("model.bin", CONTENT), count=count, processes=2)
    assert [output.count(f"fetched {DIGEST}") for output in outputs] == [2] * count
    versions = 2 * count  # each process asks for the version: a byte
    assert objects.served == len(CONTENT) + versions


def test_nodes_that_have_pieces_pass_them_on(objects, run, tmp_path):
    url = objects.put("model.bin", CONTENT)
    run(url, count=2)
    Path(tmp_path, "node-1").rename(tmp_path / "gone")
    before = objects.served
    outputs = run(url, count=2)
    assert objects.served - before == 2, outputs
    assert [output.count(f"fetched {DIGEST}") for output in outputs] == [1, 1]


def test_nodes_with_one_store_fetch_once(objects, run, tmp_path):
    outputs = run(objects.put("model.bin", CONTENT), ONECOPY_CACHE=str(tmp_path / "shared"))
    assert [output.count(f"fetched {DIGEST}") for output in outputs] == [1, 1]
    assert objects.served == len(CONTENT) + 2


def test_a_node_that_is_killed_is_done_without(objects, run, tmp_path):
    url = objects.put("model.bin", CONTENT)
    hold_the_last_pieces(objects, tmp_path)
    outputs = run(url, KILLED="1")
    assert "lost another node of the job" in outputs[0]
    assert f"fetched {DIGEST}" in outputs[0]
    assert len(CONTENT) < objects.served < 2 * len(CONTENT)


def test_a_node_that_is_stopped_is_done_without(objects, run, tmp_path):
    url = objects.put("model.bin", CONTENT)
    objects.on_data = lambda _: time.sleep(0.01)
    outputs = run(url, waits_for=0, KILLED="1", SIGNAL=str(int(signal.SIGSTOP)), JOIN_S="3")
    assert "it has neither sent nor received data for 3 s" in outputs[0]
    assert f"fetched {DIGEST}" in outputs[0]
    assert Path(tmp_path, "killed").exists()


def test_a_restarted_job_goes_on_with_what_its_nodes_have(objects, run, tmp_path):
    hold_the_last_pieces(objects, tmp_path)
    # a node that ended before the agents restart its process would not take part in the restart: it has work to do
    outputs = run(objects.put("model.bin", CONTENT), elastic=True, KILLED="1", WORK_S="1000")
    assert [output.count(f"fetched {DIGEST}") > 0 for output in outputs] == [True, True]
    assert "lost another node of the job" not in outputs[1]  # its second process found the other node
    assert objects.served < 2 * len(CONTENT)


def test_a_node_that_does_not_come_is_done_without(objects, run):
    outputs = run(objects.put("model.bin", CONTENT), ABSENT="1", JOIN_S="2")
    assert "lost another node of the job" in outputs[0]
    assert f"fetched {DIGEST}" in outputs[0]


def test_nodes_that_fetch_different_files_of_one_size_get_their_own(objects, run):
    other = CONTENT[::-1]
    objects.put("model.bin2", other)
    outputs = run(objects.put("model.bin", CONTENT), MORE_1="2")
    assert "the nodes fetch different files at the same time" in "".join(outputs)
    assert f"fetched {DIGEST}" in outputs[0]
    assert f"fetched {hashlib.sha256(other).hexdigest()}" in outputs[1]


def test_an_error_of_one_node_is_its_own(objects, run):
    url = objects.put("model.bin", CONTENT)
    objects.faults.extend([Fault(), Fault(), Fault(status=403)])
    outputs = run(url)
    failed = 0 if "PermissionError" in outputs[0] else 1
    assert "PermissionError: [Errno 13] the server answered 403 Forbidden" in outputs[failed]
    assert f"fetched {DIGEST}" in outputs[1 - failed]


def test_nodes_are_for_urls_that_are_opened_whole():
    with pytest.raises(ValueError, match="`nodes` requires a URL"):
        oc.open("model.safetensors", nodes="torchrun")
    with pytest.raises(ValueError, match="`names` and `nodes` cannot be combined"):
        oc.open("http://127.0.0.1/model.safetensors", names=["weight"], nodes="torchrun")
