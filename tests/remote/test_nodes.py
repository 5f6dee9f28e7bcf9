"""Nodes of a job fetch a file once from the origin, and survive the loss of each other."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import is_alive
from tests.support.nodes import Nodes, free_port
from tests.support.object_server import Fault, Objects, Request, serving
from tests.support.waiting import until

import onecopy as oc
from onecopy.remote import boards
from onecopy.remote.groups import SAMPLE

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
CONTENT = os.urandom((3 << 20) + 12345)
PIECE = 1 << 16
DIGEST = hashlib.sha256(CONTENT).hexdigest()
FETCH = """
import hashlib, logging, os, pathlib, sys, time
logging.basicConfig(format="%(message)s")
from onecopy.remote import boards, fetch, transfer
transfer.PIECE = 1 << 16
boards.JOIN_S = float(os.environ.get("JOIN_S", "120"))
rank, restarts = os.environ["GROUP_RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
def progress(done, total):
    if os.environ.get("KILLED") == rank and restarts == "0" and done > total // 3:
        pathlib.Path(sys.argv[0]).with_name("killed").write_text(str(os.getpid()))
        os.kill(os.getpid(), 9)
if os.environ.get("ABSENT") == rank:
    sys.exit()
path = fetch(sys.argv[1], nodes="torchrun", progress=progress)
print("fetched", hashlib.sha256(path.read_bytes()).hexdigest(), flush=True)
time.sleep(float(os.environ.get("WORK_S", "0")))
"""


def samples(nodes: int, pieces: int = -(-len(CONTENT) // PIECE)) -> int:
    """Return the bytes that nodes compare with the origin which receive all pieces from others."""
    return nodes * pieces * SAMPLE


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

    def start(url: str, count: int = 2, processes: int = 1, **options: Any) -> list[str]:
        started.append(Nodes(tmp_path, FETCH, [url], count, processes, **options))
        return started[-1].wait(f"fetched {DIGEST}")  # a traceback may have the word alone

    yield start
    for nodes in started:
        nodes.end()


def test_the_origin_sends_a_file_once_to_all_nodes(objects, run):
    count = 3
    outputs = run(objects.put("model.bin", CONTENT), count=count, processes=2)
    assert [output.count(f"fetched {DIGEST}") for output in outputs] == [2] * count
    versions = 2 * count  # each process asks for the version: a byte
    assert objects.served == len(CONTENT) + versions + samples(count - 1)


def test_nodes_that_have_pieces_pass_them_on(objects, run, tmp_path):
    url = objects.put("model.bin", CONTENT)
    run(url, count=2)
    Path(tmp_path, "node-1").rename(tmp_path / "gone")
    before = objects.served
    outputs = run(url, count=2)
    assert objects.served - before == 2 + samples(1), outputs
    assert [output.count(f"fetched {DIGEST}") for output in outputs] == [1, 1]


def test_nodes_with_one_store_fetch_once(objects, run, tmp_path):
    outputs = run(objects.put("model.bin", CONTENT), ONECOPY_CACHE=str(tmp_path / "shared"))
    assert [output.count(f"fetched {DIGEST}") for output in outputs] == [1, 1]
    assert objects.served == len(CONTENT) + 2


def test_a_node_that_is_killed_is_done_without(objects, run, tmp_path):
    url = objects.put("model.bin", CONTENT)
    hold_the_last_pieces(objects, tmp_path)
    outputs = run(url, KILLED="1")
    assert "another node of the job was lost" in outputs[0]
    assert f"fetched {DIGEST}" in outputs[0]
    assert len(CONTENT) < objects.served < 2 * len(CONTENT) + samples(1)


def test_a_restarted_job_goes_on_with_what_its_nodes_have(objects, run, tmp_path):
    hold_the_last_pieces(objects, tmp_path)
    # a node that ended before the agents restart its process would not take part in the restart: it has work to do
    outputs = run(objects.put("model.bin", CONTENT), elastic=True, KILLED="1", WORK_S="1000")
    assert [output.count(f"fetched {DIGEST}") > 0 for output in outputs] == [True, True]
    assert "another node of the job was lost" not in outputs[1]  # its second process found the other node
    assert objects.served < 2 * len(CONTENT) + samples(1)


def test_a_node_that_does_not_come_is_done_without(objects, run):
    outputs = run(objects.put("model.bin", CONTENT), ABSENT="1", JOIN_S="2")
    assert "another node of the job was lost" in outputs[0]
    assert f"fetched {DIGEST}" in outputs[0]


def test_an_error_of_one_node_is_its_own(objects, run):
    url = objects.put("model.bin", CONTENT)
    objects.faults.extend([Fault(), Fault(), Fault(status=403)])
    outputs = run(url)
    failed = 0 if "PermissionError" in outputs[0] else 1
    assert "PermissionError: [Errno 13] the server answers 403 Forbidden" in outputs[failed]
    assert f"fetched {DIGEST}" in outputs[1 - failed]


def test_hosts_of_a_network_fetch_a_file_once(network, tmp_path):
    program = """
import sys
from onecopy.remote import fetch, transfer
transfer.PIECE = 1 << 16
print(fetch(sys.argv[1], nodes=sys.argv[2:]).read_bytes() == fetch(sys.argv[1]).read_bytes())
"""
    with serving(network.address) as objects:
        url = objects.put("model.bin", CONTENT)
        started = [
            subprocess.Popen(
                [*network.command(number), sys.executable, "-c", program, url, *network.hosts],
                env=os.environ | {"ONECOPY_CACHE": str(tmp_path / f"node-{number}"), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
            )
            for number in (0, 0, 1, 1, 2, 2)
        ]
        assert [process.communicate(timeout=120)[0] for process in started] == [b"True\n"] * 6
        assert objects.served == len(CONTENT) + samples(2) + 12  # each of six processes asks for the version twice
    kept = [list(Path(tmp_path, f"node-{number}").glob("*.partial")) for number in range(3)]
    assert kept == [[], [], []]


def test_hosts_open_a_model_and_run_the_command_together(network, tmp_path):
    path = tmp_path / "model.safetensors"
    oc.save(path, {"weight": np.arange(1 << 16)})
    program = """
import sys
import onecopy as oc
print(int(oc.open(sys.argv[1], nodes=sys.argv[2:])["weight"].sum()))
"""
    command = [sys.executable, "-m", "onecopy", "fetch", "--json"]
    with serving(network.address) as objects:
        url = objects.put("model.safetensors", path.read_bytes())
        for words in ([sys.executable, "-c", program, url, *network.hosts], [*command, *options_of(network), url]):
            before = objects.served
            started = [
                subprocess.Popen(
                    [*network.command(number), *words],
                    env=os.environ | {"ONECOPY_CACHE": str(tmp_path / f"{len(words)}-{number}")},
                    stdout=subprocess.PIPE,
                )
                for number in range(len(network.hosts))
            ]
            outputs = [process.communicate(timeout=120)[0] for process in started]
            assert [process.returncode for process in started] == [0] * 3, outputs
            assert objects.served - before == path.stat().st_size + 2 * SAMPLE + 3  # each asks for the version: a byte
        assert all(json.loads(output)[0]["bytes"] == path.stat().st_size for output in outputs)


def options_of(network) -> list[str]:
    """Return the options of the command."""
    return [word for host in network.hosts for word in ("--node", host)]


def test_nodes_are_for_urls_that_are_opened_whole():
    with pytest.raises(ValueError, match="nodes is for URLs that are opened whole"):
        oc.open("model.safetensors", nodes="torchrun")
    with pytest.raises(ValueError, match="nodes is for URLs that are opened whole"):
        oc.open("http://127.0.0.1/model.safetensors", names=["weight"], nodes="torchrun")


def test_addresses_are_checked():
    with pytest.raises(ValueError, match=r"^nodes: 0 of 203\.0\.113\.1, 203\.0\.113\.2 are addresses of this machine"):
        boards.parsed_addresses(["203.0.113.1", "203.0.113.2"])
    parsed = boards.parsed_addresses(["203.0.113.1:123", "127.0.0.1"])
    assert parsed == (1, [("203.0.113.1", 123), ("127.0.0.1", 29600)])
    with pytest.raises(ValueError, match="'node:x' is not an address such as"):
        boards.parsed_addresses(["node:x"])


VICTIM = """
import hashlib, logging, sys
logging.basicConfig(format="%(message)s")
from onecopy.remote import boards, fetch
boards.JOIN_S = 10.0
print("victim", hashlib.sha256(fetch(sys.argv[1], nodes="torchrun").read_bytes()).hexdigest())
"""
INTRUDER = """
import encodings.idna, json, os, stringprep, sys, time, unicodedata
from pathlib import Path
from types import SimpleNamespace
import torch.distributed as dist
import obstore.store
from onecopy.remote import Origin, boards, groups, versions_of
from onecopy.remote.channels import Channel, NodeLostError
url = sys.argv[1]
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
os.environ["HOME"], boards.JOIN_S = ".", 2.0
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
texts = dist.TCPStore(host, port, is_master=False, wait_for_workers=False)
while not (lists := [text for name in texts.list_keys() if b'"members"' in (text := texts.get(name))]):
    time.sleep(0.05)
print("read", [(name, texts.get(name)) for name in texts.list_keys()])
[[node, host, port, *_]] = json.loads(lists[0].partition(b" ")[2])["members"]
nodes = boards.nodes_of("torchrun", SimpleNamespace(folder=Path(".")))
try:
    Channel.to(host, port, nodes.board.secret)
except NodeLostError as error:
    print("connected:", error)
[version] = versions_of([origin := Origin(url)])
Path("poison").write_bytes(bytes(version.size))
group = groups.Group(nodes, origin.key(version), Path("poison"))
group.join()
print("uid", os.getuid(), "joined", group._others)
for name in texts.list_keys():  # and what can be changed is
    texts.set(name, lists[0].replace(node.encode(), b"000001"))
group.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_joins_no_job_and_reads_nothing_of_it(objects, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    url = objects.put("secret-name/model.bin", CONTENT)
    folder = tmp_path / "intruder"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    port = free_port()
    store = f"s = d.TCPStore('127.0.0.1', {port}, is_master=True, wait_for_workers=False)"
    agent = f"import torch.distributed as d, sys; {store}; print('serves', flush=True); sys.stdin.read()"
    environment = os.environ | {
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": "job",
        "ONECOPY_CACHE": str(tmp_path / "store"),
    }
    run = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([sys.executable, "-c", agent], stdin=subprocess.PIPE, **run) as served:
        assert served.stdout.readline() == "serves\n"
        command = [sys.executable, "-c", VICTIM, url]
        with subprocess.Popen(command, env=environment | {"GROUP_RANK": "0"}, **run) as victim:
            command, environment["GROUP_RANK"] = [sys.executable, "-c", INTRUDER, url], "1"
            done = subprocess.run(command, env=environment, cwd=folder, **run, check=False, timeout=120)
            output, _ = victim.communicate(timeout=120)
        served.stdin.close()
    assert "uid 65534 joined []" in done.stdout, done.stdout
    assert "connected: another node does not know the secret" in done.stdout
    read = next(line for line in done.stdout.splitlines() if line.startswith("read"))
    assert "secret-name" not in read
    assert objects.tag_of("secret-name/model.bin") not in read
    assert f"victim {DIGEST}" in output, output
