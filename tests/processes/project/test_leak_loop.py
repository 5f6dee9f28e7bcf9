"""Every public function, hundreds of times, errors included: no descriptor, mapping, thread, file or memory is left.

The actions and how they are measured are in tests/support/api_actions.py. Each group of them runs in a fresh process,
so that nothing else in it makes noise; what counts is the least growth of several loops.
"""

import functools
import importlib
import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_actions import ACTIONS, GROUPS, covered, leaks, limits
from tests.support.api_table import USUAL_TIMES
from tests.support.children import run_python
from tests.support.places import ROOT

import onecopy as oc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NOT_CALLED_IN_MODULES = ("parse_", "label_from", "script_of")
"""Beginnings of names in public modules that no action uses: functions of a text, which hold nothing."""
MODULES = ["arrays", "arrays.scratch", "data.caching", "data.objects", "errors", "files.mapping", "files.page_cache"]
MODULES += ["images", "memory", "memory.cgroup", "memory.proc", "records", "store"]


@functools.cache
def growth_of(group: str) -> dict[str, dict[str, int]] | str:
    """Measure all actions of a group: {action: {kind: least growth in a loop}}, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "growth.json"
        command = [
            sys.executable,
            "-W",
            "error",
            "-m",
            "tests.support.api_actions",
            "--group",
            group,
            "--measure",
            file,
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
        if done.returncode:
            return f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        found: dict[str, dict[str, int]] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize(("group", "name"), [(group, one.name) for group, some in GROUPS.items() for one in some])
def test_an_action_leaves_nothing_however_often_it_runs(group: str, name: str) -> None:
    if ACTIONS[name].lacking:
        pytest.skip(f"{', '.join(ACTIONS[name].lacking)} cannot be imported")
    found = growth_of(group)
    assert not isinstance(found, str), found
    grown = found[name]
    assert leaks(grown, ACTIONS[name].times) == {}, f"{grown} in {ACTIONS[name].times} calls"


PLANTED = {
    "descriptors": "held.append(os.dup(0))",
    "mappings": "held.append(mmap.mmap(file, 4096, offset=mmap.PAGESIZE * (2 * len(held) % 64), prot=mmap.PROT_READ))",
    "threads": "threading.Thread(target=stop.wait, daemon=True).start()",
    "tasks": "threading.Thread(target=stop.wait, daemon=True).start()",
    "children": "held.append(subprocess.Popen(['sleep', '60']))",
    "files": "(world.folder / str(time.monotonic_ns())).write_bytes(b'x')",
    "objects": "held.append(object())",
    "memory": "libc.memset(ctypes.c_void_p(libc.malloc(1024)), 1, 1024)",
}
"""What leaks one thing of a kind."""


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_leak_is_seen(kind: str, tmp_path: Path) -> None:
    times = 4 if kind == "children" else 30 if kind in {"threads", "tasks"} else USUAL_TIMES
    said = run_python(
        """
        import sys, os
        sys.path.insert(0, sys.argv[1])
        import ctypes, json, mmap, signal, subprocess, threading, time
        from pathlib import Path
        from tests.support import api_actions
        api_actions.PATIENCE = 0.1
        world = api_actions.use_folder(Path(sys.argv[2]))
        libc, held, stop = ctypes.CDLL(None), [], threading.Event()
        libc.malloc.restype = ctypes.c_void_p
        file = os.open(world.bytes, os.O_RDONLY)
        os.truncate(world.bytes, 1 << 20)
        code = compile(sys.argv[3], "planted", "exec")
        grown = api_actions.measured(lambda world: exec(code), int(sys.argv[4]), world)
        for child in held if sys.argv[5] == "children" else []:
            child.kill(), child.wait()
        print(json.dumps(grown))
        """,
        ROOT,
        tmp_path,
        PLANTED[kind],
        times,
        kind,
    )
    assert kind in leaks(json.loads(said), times), said


def test_a_leak_of_a_kibibyte_a_call_is_above_the_limit_of_every_action() -> None:
    assert [one.name for one in ACTIONS.values() if limits(one.times)["memory"] >= one.times << 10] == []
    assert all(limits(one.times)["descriptors"] == 0 for one in ACTIONS.values())


def public_functions() -> Iterator[str]:
    """Give the functions of the public modules: "records.save", ..."""
    for path in MODULES:
        module: Any = importlib.import_module(f"onecopy.{path}")
        names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        for name in names:
            value = getattr(module, name)
            if inspect.isfunction(value) and value.__module__.startswith(module.__name__):
                yield f"{path}.{name}"


def test_every_public_function_is_used_by_an_action() -> None:
    functions = {name for name in oc.__all__ if not isinstance(getattr(oc, name), type)}
    assert functions - covered() == {"__version__"}


def test_every_function_of_a_public_module_is_used_by_an_action() -> None:
    functions = list(public_functions())
    assert len(functions) > 40
    used = {name.rpartition(".")[2] for name in covered()}
    missing = [name for name in functions if name.rpartition(".")[2] not in used]
    assert [name for name in missing if not name.rpartition(".")[2].startswith(NOT_CALLED_IN_MODULES)] == []
