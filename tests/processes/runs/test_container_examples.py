"""The commands in examples/containers, run as they are written, in namespaces of their own, hold one copy."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.processes.runs.test_servers import NAMESPACES
from tests.support.children import children_of, descendants_of

from onecopy.memory import proc

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
pytestmark = [pytest.mark.processes, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples/containers"
NBYTES = 32 << 20


@pytest.fixture(autouse=True)
def machine(tmp_path: Path) -> Path:
    """Make the folders that the examples name, below the folder of the test."""
    if subprocess.run([*NAMESPACES, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    for name in ("models", "cache", "app", "bin"):
        (tmp_path / name).mkdir()
    np.save(tmp_path / "models/weights.npy", np.random.default_rng(0).random(NBYTES // 8))
    (tmp_path / "app/worker.py").write_bytes((EXAMPLES / "worker.py").read_bytes())
    for name, command in (("python", sys.executable), ("onecopy", f"{sys.executable} -m onecopy")):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def start(machine: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Give a function that starts a command in namespaces of its own, and waits until it is ready."""
    started: list[subprocess.Popen[str]] = []

    def run(command: list[str], environment: dict[str, str], *, folder: Path = machine) -> subprocess.Popen[str]:
        here = {"/models": machine / "models", "/cache": machine / "cache", "/app": machine / "app"}
        for path, real in here.items():
            command = [word.replace(path, str(real)) if word.startswith(path) else word for word in command]
            environment = {name: value.replace(path, str(real)) for name, value in environment.items()}
        process = subprocess.Popen(
            [*NAMESPACES, *command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
            env=os.environ | environment | {"PATH": f"{machine / 'bin'}:{os.environ['PATH']}"},
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline().startswith("ready: "), process.communicate()[1]
        return process

    yield run
    for process in started:
        process.communicate(timeout=100)


def copies(count: int) -> float:
    """Return how many copies of the weights the workers below this process hold together."""
    programs = [pid for pid in descendants_of(os.getpid()) if "worker.py" in proc.process_text(pid, "cmdline")]
    workers = [pid for pid in programs if not children_of(pid)]
    assert len(workers) == count
    regions = [region for pid in workers for region in proc.smaps(pid)]
    return sum(one.memory.pss for one in regions if "weights.npy" in one.path) / NBYTES


def image() -> tuple[list[str], dict[str, str]]:
    lines = [line.partition(" ") for line in (EXAMPLES / "Dockerfile").read_text().splitlines()]
    words = {word: rest for word, _, rest in lines}
    assert "RUN" in words
    name, _, value = words["ENV"].partition("=")
    return json.loads(words["ENTRYPOINT"]) + json.loads(words["CMD"]), {name: value}


def test_the_two_services_of_the_compose_file_hold_one_copy(start, machine):
    services: dict[str, Any] = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert {volume.split(":")[1] for volume in service["volumes"]} == {"/cache", "/models"}
        start(*image())
    assert copies(len(services)) == pytest.approx(1, abs=0.1)


def test_two_units_hold_one_copy(start, machine):
    lines = (EXAMPLES / "worker@.service").read_text().splitlines()
    command = next(line for line in lines if line.startswith("ExecStart=")).partition("=")[2]
    cache = next(line for line in lines if line.startswith("Environment=")).rpartition("=")[2]
    (machine / "models/worker.py").write_bytes((EXAMPLES / "worker.py").read_bytes())
    environment = {"ONECOPY_CACHE": cache.replace("/var/cache/app", "/cache")}
    for _ in range(2):
        start(shlex.split(command), environment, folder=machine / "models")
    assert copies(2) == pytest.approx(1, abs=0.1)


def test_the_pods_of_the_deployment_map_the_file_itself(start, machine):
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / "deployment.yaml").read_text())["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    pods = [start(container["command"] + container["args"], {}) for _ in range(spec["replicas"])]
    assert copies(spec["replicas"]) == pytest.approx(1, abs=0.1)
    reports = [pod.communicate(timeout=100)[1] for pod in pods]
    assert all("numpy.load; the file itself" in report for report in reports)


def test_a_rollout_keeps_the_copy_of_the_containers_that_end(start, machine):
    old = start(*image())
    new = start(*image())
    old.communicate(timeout=100)
    start(*image())
    assert copies(2) == pytest.approx(1, abs=0.1)
    assert "charged to the group of another run" in new.communicate(timeout=100)[1]
