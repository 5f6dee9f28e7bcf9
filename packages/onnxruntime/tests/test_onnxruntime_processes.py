"""Several processes with one model: one copy of its weights, and nothing in the way of those who come after a kill."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import children_of, is_alive
from tests.support.onnx_models import IDS, save_inline
from tests.support.store_processes import suffixes
from tests.support.waiting import until

import onecopy as oc
from onecopy_onnxruntime import prepacking

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


@pytest.mark.slow
def test_workers_share_what_one_has_prepacked(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, **LARGE)
    store = tmp_path / "store"
    alone = served(model, "read", store)
    first = served(model, "prepacked", store)
    assert {mode for mode, _, _ in first} <= {"read", "prepacked"}
    until(lambda: not any(a.state == "building" for a in oc.Store(store).ls()) and len(oc.Store(store).ls()) == 2)
    prepacked = served(model, "prepacked", store)
    assert {mode for mode, _, _ in prepacked} == {"prepacked"}
    assert len({answer for _, _, answer in (*alone, *first, *prepacked)}) == 1
    size = model.stat().st_size
    assert min(private for _, private, _ in alone) > size
    assert max(private for _, private, _ in prepacked) < size / 2
    direct = served(model, "direct", store)
    assert max(private for _, private, _ in direct) < size / 2


# The child that prepacks in the background, stopped before or after one of its functions: it makes a file and waits.
CHILD = """
    import pathlib, signal, sys
    from onecopy_onnxruntime import prepacking
    moment, reached, *arguments = sys.argv[1:]
    def stop():
        pathlib.Path(reached).touch()
        signal.pause()
    def stopping_before(function):
        return lambda *given: (stop(), function(*given))
    def stopping_after(function):
        return lambda *given: (function(*given), stop())
    if moment == "before the digest":
        prepacking.Recipe._write_digest = stopping_before(prepacking.Recipe._write_digest)
    elif moment == "before ONNX Runtime writes":
        prepacking._save = stopping_before(prepacking._save)
    elif moment == "after ONNX Runtime wrote":
        save = prepacking._save
        prepacking._save = lambda *given: (save(*given), stop())[0]
    elif moment == "before the claim is released":
        prepacking.write = stopping_after(prepacking.write)
    else:
        assert moment == "after everything"
        prepacking.main = stopping_after(prepacking.main)
    prepacking.main(*arguments)
"""
# What the store has at each moment: files, by what they are; bytes in the largest that has a hidden name, at least.
MOMENTS = {
    "before the digest": ([".claim"], 0),
    "before ONNX Runtime writes": ([".about", ".claim", ".oc", "hidden", "hidden"], 0),
    "after ONNX Runtime wrote": ([".about", ".claim", ".oc", "hidden", "hidden"], 10_000_000),
    "before the claim is released": ([".about", ".claim", ".oc", ".oc"], 0),
    "after everything": ([".about", ".about", ".oc", ".oc"], 0),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_child_that_is_killed_while_it_prepacks_is_in_nobodys_way(tmp_path, monkeypatch, moment):
    files, least = MOMENTS[moment]
    model = save_inline(tmp_path / "model.onnx", aligned=True, **LARGE)
    store, reached = oc.Store(tmp_path / "store"), tmp_path / "reached"
    with monkeypatch.context() as patched:
        command = [sys.executable, "-c", textwrap.dedent(CHILD), moment, str(reached)]
        patched.setattr(prepacking, "_command", lambda: command)
        assert oc.onnxruntime.session(model, "prepacked", store=store.folder).onecopy.mode == "read"
    (child,) = prepacking._background
    try:
        until(lambda: reached.exists() or child.poll() is not None, moment)
        assert child.poll() is None
        hidden = list(store.folder.glob(".onecopy-*"))
        assert sorted("hidden" if path in hidden else path.suffix for path in store.folder.iterdir()) == files
        assert max((path.stat().st_size for path in hidden), default=0) >= least
    finally:
        child.kill()
        status = child.wait()
    assert status == -signal.SIGKILL

    session = oc.onnxruntime.session(model, "prepacked", wait=True, store=store.folder)
    assert session.onecopy.mode == "prepacked"
    assert np.array_equal(session.run(None, {"ids": IDS})[0], oc.onnxruntime.session(model).run(None, {"ids": IDS})[0])
    store.prune()
    assert sorted(artefact.state for artefact in store.ls()) == ["ready", "ready"]
    assert suffixes(store) == [".about", ".about", ".oc", ".oc"]


def packers_of(pid: int) -> list[int]:
    """List the children of a process that prepack weights."""
    return [child for child in children_of(pid) if "onecopy_onnxruntime.prepacking" in command_of(child)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_the_child_that_prepacks_for_one_who_waits_ends_with_it(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, **LARGE)
    program = (
        "import sys, onecopy as oc; oc.onnxruntime.session(sys.argv[1], 'prepacked', wait=True, store=sys.argv[2])"
    )
    waiting = subprocess.Popen([sys.executable, "-c", program, str(model), str(tmp_path / "store")])
    until(lambda: packers_of(waiting.pid) or waiting.poll() is not None, "a child that prepacks")
    (child,) = packers_of(waiting.pid)
    os.kill(waiting.pid, signal.SIGKILL)
    assert waiting.wait() == -signal.SIGKILL
    until(lambda: not is_alive(child), "the end of the child")
