"""One copy of an object however many processes load it, and stores that are limited while many processes build."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import fork, status_of
from tests.support.places import ROOT
from tests.support.waiting import until

import onecopy as oc

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

MB = 1_000_000

WORKER = """
import json, sys
import onecopy as oc
from tests.processes.objects import test_shared_objects as here
model = oc.share_object(here.build, "model", store=sys.argv[1])
total = float(model["weights"].sum())
print(json.dumps({"total": total, **here.memory_of(sys.argv[1])}), flush=True)
sys.stdin.read()
"""


def build() -> dict[str, object]:
    return {"weights": np.ones(5 * MB), "labels": {i: str(i) for i in range(1000)}}


def memory_of(folder: str) -> dict[str, int]:
    """Return the resident and the private bytes of the mappings of files in a folder."""
    found = {"Rss": 0, "Anonymous": 0}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = folder in line
        elif inside and words[0][:-1] in found:
            found[words[0][:-1]] += int(words[1]) * 1024
    return found


def test_processes_that_share_an_object_have_no_private_copy_of_its_arrays(tmp_path):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "store")],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    answers = [json.loads(worker.stdout.readline()) for worker in workers if worker.stdout]
    for worker in workers:
        worker.communicate(timeout=60)
    assert [answer["total"] for answer in answers] == [5.0 * MB] * 4
    assert all(answer["Rss"] >= 40 * MB and answer["Anonymous"] == 0 for answer in answers)
    assert [worker.returncode for worker in workers] == [0] * 4
    assert len(oc.Store(tmp_path / "store").ls()) == 1


def test_a_builder_of_an_object_that_is_killed_leaves_nothing_and_another_process_builds(tmp_path):
    store = oc.Store(tmp_path / "store", on_wait=None)
    begun = tmp_path / "begun"

    def endless() -> dict[str, object]:
        begun.touch()
        signal.pause()
        return {}

    killed = fork(lambda: oc.share_object(endless, "k", store=store))
    until(begun.exists)
    os.kill(killed, signal.SIGKILL)
    assert status_of(killed) != 0
    store.prune()
    assert list(store.folder.iterdir()) == []
    assert oc.share_object(lambda: {"a": np.zeros(1000)}, "k", store=store)["a"].shape == (1000,)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [False, True])
def test_many_builders_keep_a_store_small_and_each_gets_what_it_requested(tmp_path, kills):
    store = oc.Store(tmp_path / "store", max_bytes=5 * 100_000, on_wait=None)

    def work(seed: int) -> bool:
        dice = random.Random(seed)
        for _ in range(60):
            number = dice.randrange(12)
            rows = oc.share_object(lambda number=number: np.full(12_500, number), f"array {number}", store=store)
            assert rows[0] == rows[-1] == number
        return True

    workers = [fork(lambda seed=seed: work(seed)) for seed in range(4)]
    if kills:
        until(lambda: len(store.ls()) >= 3)
        os.kill(workers[0], signal.SIGKILL)
    statuses = [status_of(pid) for pid in workers]
    assert statuses[1:] == [0, 0, 0]
    assert statuses[0] == 0 or kills
    store.prune(max_bytes="500 kB")
    assert sum(artefact.bytes for artefact in store.ls()) <= 500_000
    assert {artefact.state for artefact in store.ls()} == {"ready"}
