"""Processes of `onecopy run` killed at any moment: the others answer as always, and nothing is left but the store.

36 rounds; with ONECOPY_TORTURE=1, 1,000. The workers build an artefact of the store in every second round.
"""

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.support import served
from tests.support.children import children_of
from tests.support.rounds import rounds
from tests.support.served import PYTHON, RUN, Running, running
from tests.support.store_processes import suffixes
from tests.support.waiting import until

import onecopy as oc

ROUNDS = rounds(36)
WORKERS = 3
OF_ONNX_RUNTIME = ".ses"
"""A file that the import of ONNX Runtime leaves in the folder for temporary files."""
VICTIMS = ("worker", "runner", "builder", "server", "all")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 5 * ROUNDS)]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Give the store that workers use; their files and the folder for temporary files are beside it."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from tests.support.onnx_models import save_inline

    save_inline(tmp_path / "model.onnx", aligned=True, rows=20_000, width=256, layers=4)  # 21 MB
    np.save(tmp_path / "table.npy", np.arange(1 << 18, dtype=np.float64))
    (tmp_path / "temporary").mkdir()
    files = {"MODEL": "model.onnx", "TABLE": "table.npy", "TMPDIR": "temporary", "ONECOPY_CACHE": "store"}
    for name, path in files.items():
        monkeypatch.setenv(name, str(tmp_path / path))
    return oc.Store(tmp_path / "store")


def answers_in(log: str) -> list[str]:
    return re.findall(r"^answer \d+ (\S+ \S+)$", log, re.MULTILINE)


def server_of(one: Running) -> int:
    found: list[int] = []
    until(lambda: found.extend(children_of(one.process.pid)) or found or one.process.poll() is not None, "the command")
    return found[0] if found else 0


def has_claim(pid: int) -> bool:
    with suppress(OSError):
        return any(os.readlink(link).endswith(".claim") for link in Path(f"/proc/{pid}/fd").iterdir())  # noqa: PTH115
    return False


def victims(one: Running, victim: str, server: int) -> list[int]:
    runner = one.process.pid
    kinds: dict[str, Callable[[int], bool]] = {
        "worker": lambda pid: pid not in (runner, server),
        "runner": lambda pid: pid == runner,
        "builder": has_claim,
        "server": lambda pid: pid == server,
        "all": lambda _: True,
    }
    # No other process has the PID of one of them: those of the session are waited for by their parents.
    return [pid for pid in one.group() if kinds[victim](pid)]


def kill(one: Running, victim: str, dice: random.Random, seconds: float) -> bool:
    """Kill a kind of process up to some seconds after there is one; return whether there was one."""
    server = server_of(one)
    until(lambda: victims(one, victim, server) or not one.group(), f"a {victim}, or the end")
    time.sleep(dice.uniform(0, seconds / 4 if victim == "builder" else seconds))
    found = victims(one, victim, server)
    chosen = found if victim == "all" else dice.sample(found, min(1, len(found)))
    for pid in chosen:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(chosen)


def one_round(folder: Path, victim: str, dice: random.Random, seconds: float) -> tuple[bool, list[str], int]:
    """Run the workers and kill; return whether a process was killed, the answers, and the exit status."""
    with running([*RUN, *PYTHON, "workers.py", str(WORKERS)], folder) as one:
        killed = kill(one, victim, dice, seconds) if victim else False
        status = one.process.wait(60)
        until(lambda: not one.group(), "all processes to end by themselves")
        return killed, answers_in(one.log), status


def test_processes_killed_at_any_moment_leave_nothing_but_the_store(store, tmp_path):
    started = time.monotonic()
    _, right, status = one_round(tmp_path, "", random.Random(), 0)
    seconds = time.monotonic() - started
    assert status == 0
    assert len(right) == WORKERS
    assert len(set(right)) == 1
    assert answers_in(served.plain("workers.py", "1", ONECOPY_CACHE="")) == right[:1]

    dice, seen = random.Random(ROUNDS), Counter[str]()
    memory = set(Path("/dev/shm").rglob("*"))
    for number in range(ROUNDS):
        victim = VICTIMS[number % len(VICTIMS)]
        if number % 2 == 0 or victim == "builder":
            store.prune(everything=True)  # otherwise the artefact, or what a kill has left of it, is there
        # The first of each kind is killed as soon as it is there; how many are hit later depends on the machine.
        killed, answers, status = one_round(tmp_path, victim, dice, seconds if number >= len(VICTIMS) else 0)
        seen[victim] += killed
        assert set(answers) <= set(right)
        if victim in ("worker", "builder") or not killed:
            assert len(answers) >= WORKERS  # a worker that was killed after its answer was started again
            assert status == 0
        elif victim == "runner":
            assert len(answers) == WORKERS  # the command goes on without it
            assert status == -signal.SIGKILL
        assert {path.name for path in (tmp_path / "temporary").iterdir()} <= {OF_ONNX_RUNTIME}
        assert set(Path("/dev/shm").rglob("*")) == memory
        # The last thread of a killed process ends, and releases its locks, after the process has become a zombie.
        until(lambda: store.prune() and set(suffixes(store)) <= {".about", ".oc", "servers"}, "the store to be swept")
    assert all(seen[victim] for victim in VICTIMS), seen
    assert one_round(tmp_path, "", dice, 0) == (False, right, 0)
