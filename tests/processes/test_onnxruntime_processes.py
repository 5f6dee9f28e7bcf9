"""Several processes with one model: one copy of its weights, and nothing in the way of those who come after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import is_alive
from tests.support.onnx_models import IDS, save_inline
from tests.support.waiting import until

import onecopy as oc
from onecopy.integrations.onnxruntime import _packing

pytestmark = pytest.mark.processes

LARGE = {"rows": 20_000, "width": 256, "layers": 4}  # 21 MB

SERVE = """
    import json, sys
    import numpy as np
    import onecopy as oc
    session = oc.onnxruntime.session(sys.argv[1], sys.argv[2], store=sys.argv[3])
    answer = session.run(None, {"ids": np.arange(20_000)})[0]
    print(json.dumps([session.onecopy.mode, session.onecopy.private, float(answer.sum())]), flush=True)
    sys.stdin.readline()  # until all are there
"""


def served(model: Path, mode: str, store: Path, count: int = 3) -> list[tuple[str, int, float]]:
    """Let processes open a model, and return what each says: rung, private bytes, sum of its answer."""
    program = "\n".join(line.strip() for line in SERVE.splitlines())
    command = [sys.executable, "-c", program, str(model), mode, str(store)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    told = [tuple(json.loads(worker.stdout.readline())) for worker in workers]
    for worker in workers:
        worker.communicate("\n", timeout=60)
    assert [worker.returncode for worker in workers] == [0] * count
    return told


def test_workers_share_what_one_has_packed(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, **LARGE)
    store = tmp_path / "store"
    alone = served(model, "read", store)
    first = served(model, "packed", store)
    assert {mode for mode, _, _ in first} <= {"read", "packed"}
    until(lambda: not any(a.state == "building" for a in oc.Store(store).ls()) and len(oc.Store(store).ls()) == 2)
    packed = served(model, "packed", store)
    assert {mode for mode, _, _ in packed} == {"packed"}
    assert len({answer for _, _, answer in (*alone, *first, *packed)}) == 1
    size = model.stat().st_size
    assert min(private for _, private, _ in alone) > size
    assert max(private for _, private, _ in packed) < size / 2
    direct = served(model, "direct", store)
    assert max(private for _, private, _ in direct) < size / 2


def test_of_several_that_wait_one_packs(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, **LARGE)
    store = tmp_path / "store"
    program = (
        "import sys, onecopy as oc; "
        "print(oc.onnxruntime.session(sys.argv[1], 'packed', wait=True, store=sys.argv[2]).onecopy.mode)"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", program, str(model), str(store)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [worker.communicate(timeout=100)[0].strip() for worker in workers] == ["packed"] * 4
    assert sorted(artefact.state for artefact in oc.Store(store).ls()) == ["ready", "ready"]


@pytest.mark.parametrize("after", [0.0, 0.3, 0.6, 0.9])
def test_a_child_that_is_killed_while_it_packs_is_in_nobodys_way(tmp_path, after):
    model = save_inline(tmp_path / "model.onnx", aligned=True, **LARGE)
    store = tmp_path / "store"
    assert oc.onnxruntime.session(model, "packed", store=store).onecopy.mode == "read"
    (child,) = _packing._background
    time.sleep(after)
    child.send_signal(signal.SIGKILL)
    child.wait()
    session = oc.onnxruntime.session(model, "packed", wait=True, store=store)
    assert session.onecopy.mode == "packed"
    assert np.array_equal(session.run(None, {"ids": IDS})[0], oc.onnxruntime.session(model).run(None, {"ids": IDS})[0])
    oc.Store(store).prune()
    assert sorted(artefact.state for artefact in oc.Store(store).ls()) == ["ready", "ready"]


def test_the_child_that_packs_for_one_who_waits_ends_with_it(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, **LARGE)
    program = "import sys, onecopy as oc; oc.onnxruntime.session(sys.argv[1], 'packed', wait=True, store=sys.argv[2])"
    waiting = subprocess.Popen([sys.executable, "-c", program, str(model), str(tmp_path / "store")])
    children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
    until(lambda: children.read_text().split())
    (child,) = map(int, children.read_text().split())
    os.kill(waiting.pid, signal.SIGKILL)
    waiting.wait()
    until(lambda: not is_alive(child))
