"""`explain` of programs as users have them: copies against all pages hashed, predictions against `onecopy run`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.support.pages import twice_in

import onecopy as oc
from onecopy.memory import proc
from onecopy.memory.proc import command_of
from onecopy.memory.selection import with_descendants

pytestmark = pytest.mark.slow
WORKERS = 4
RUN = (sys.executable, "-m", "onecopy", "run", "--")
POOL = """
import multiprocessing, sys, time
{imports}
def load(path):
    global held
    {load}
    time.sleep(1000)
if __name__ == "__main__":
    with multiprocessing.get_context("{how}").Pool({workers}) as pool:
        pool.map(load, [sys.argv[1]] * {workers}, chunksize=1)
"""
PRELOADED = """
import json, os, sys, time
rows = json.load(open(sys.argv[1]))
for _ in range({workers}):
    if os.fork() == 0:
        total = sum(len(row["bbox"]) for row in rows)
        time.sleep(1000)
time.sleep(1000)
"""
ALLOCATOR = """
import sys, time
held = [bytearray(b"%12d" % number * 80) for number in range(200_000)]
del held[::2]
time.sleep(1000)
"""
WSGI = """
import numpy, os
held = numpy.load(os.environ["DATA"])
def app(environ, start_response):
    start_response("200 OK", [])
    return [b"%f" % held[0]]
"""
TASKS = """
import celery, celery.signals, numpy, os
folders = {{"data_folder_in": "{folder}", "data_folder_out": "{folder}"}}
app = celery.Celery("tasks", broker="filesystem://", broker_transport_options=folders)
@celery.signals.worker_process_init.connect
def load(**_):
    global held
    held = numpy.load(os.environ["DATA"])
"""
SERVER = """
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <unistd.h>
#include <vector>
int main(int, char** words) {
  for (int i = 0; i < WORKERS; ++i)
    if (fork() == 0) {
      std::ifstream file(words[1], std::ios::binary);
      const std::vector<char> held{std::istreambuf_iterator<char>(file), {}};
      pause();
      return held.empty();
    }
  pause();
}
"""


def numbers(path: Path) -> None:
    np.save(path, np.random.default_rng(0).random(8_000_000))


def annotations(path: Path) -> None:
    rows = [{"id": i, "bbox": [i + 0.5, i * 2.0, i % 7, 1.5], "category": f"name {i}"} for i in range(60_000)]
    path.write_text(json.dumps(rows))


def onnx_model(path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    weights = np.random.default_rng(0).random((4000, 4000), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [1, 4000])],
        [helper.make_tensor_value_info("y", 1, [1, 4000])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]), path)


def by(code: str) -> Callable[[Path], None]:
    """Return what writes a file by a line of Python in a process of its own."""

    def write(path: Path) -> None:
        subprocess.run([sys.executable, "-c", f"import sys, numpy\npath = sys.argv[1]\n{code}", path], check=True)

    return write


RANDOM = "data = numpy.random.default_rng(0).random((80_000, 100))"


@dataclass(frozen=True)
class Program:
    """A program, the file that it loads, and how."""

    file: str
    write: Callable[[Path], None]
    imports: str = ""
    load: str = ""
    how: str = "spawn"
    words: tuple[str, ...] = ()
    """The command, if it is not a pool; "{}" stands for the file."""
    needs: str = "numpy"
    remedy: str = "onecopy run --"
    """A part of the remedy, or "" if there is none."""


PROGRAMS = {
    "torch": Program(
        "m.pt",
        by(f"import torch\n{RANDOM}\ntorch.save({{'w': torch.from_numpy(data)}}, path)"),
        "import torch",
        "held = torch.load(path)",
        needs="torch",
    ),
    "scikit-learn": Program(
        "m.joblib",
        by(
            "import joblib, sklearn.neighbors\n"
            f"{RANDOM}\njoblib.dump(sklearn.neighbors.NearestNeighbors(algorithm='brute').fit(data), path)"
        ),
        "import joblib",
        "held = joblib.load(path)",
        needs="sklearn",
    ),
    "pandas": Program(
        "f.pkl",
        by(f"import pandas\n{RANDOM}\npandas.DataFrame(data).to_pickle(path)"),
        "import pandas",
        "held = pandas.read_pickle(path)",
        needs="pandas",
        remedy="onecopy.share_object",
    ),
    "list of dicts, fork": Program(
        "a.json", annotations, words=(sys.executable, "preloaded.py", "{}"), remedy="oc.share"
    ),
    "list of dicts, spawn": Program(
        "a.json", annotations, "import json", "held = json.load(open(path))", remedy="Each process holds about as much"
    ),
    "gensim": Program(
        "v.kv",
        by(
            f"import gensim\n{RANDOM}\nk = gensim.models.KeyedVectors(100)\n"
            "k.add_vectors([str(i) for i in range(80_000)], data)\nk.save(path, separately=['vectors'])"
        ),
        "import gensim",
        "held = gensim.models.KeyedVectors.load(path)",
        needs="gensim",
    ),
    "ONNX Runtime": Program(
        "m.onnx", onnx_model, "import onnxruntime", "held = onnxruntime.InferenceSession(path)", needs="onnxruntime"
    ),
    "C++ server": Program("w.npy", numbers, words=("./server", "{}"), remedy="w.npy: map the file"),
    "gunicorn": Program(
        "w.npy",
        numbers,
        words=(sys.executable, "-m", "gunicorn", "-w", str(WORKERS), "-b", "unix:socket", "wsgi:app"),
        needs="gunicorn",
    ),
    "gunicorn --preload": Program(
        "w.npy",
        numbers,
        words=(sys.executable, "-m", "gunicorn", "--preload", "-w", str(WORKERS), "-b", "unix:socket", "wsgi:app"),
        needs="gunicorn",
        remedy="",
    ),
    "celery": Program(
        "w.npy",
        numbers,
        words=(sys.executable, "-m", "celery", "-A", "tasks", "worker", "-c", str(WORKERS), "--loglevel", "WARNING"),
        needs="celery",
    ),
    "allocator": Program("w.npy", numbers, words=(sys.executable, "allocator.py"), remedy=""),
}


def write_programs(folder: Path, program: Program) -> None:
    settings = {"imports": program.imports, "load": program.load, "how": program.how, "workers": WORKERS}
    texts = {"pool.py": POOL, "preloaded.py": PRELOADED}
    for name, text in texts.items():
        (folder / name).write_text(text.format(**settings))
    (folder / "tasks.py").write_text(TASKS.format(folder=folder))
    (folder / "wsgi.py").write_text(WSGI)
    (folder / "allocator.py").write_text(ALLOCATOR)
    if program.words[:1] == ("./server",):
        if shutil.which("c++") is None:
            pytest.skip("there is no C++ compiler")
        (folder / "server.cpp").write_text(SERVER)
        subprocess.run(["c++", "-O1", f"-DWORKERS={WORKERS}", "server.cpp", "-o", "server"], cwd=folder, check=True)


@contextmanager
def running(folder: Path, program: Program, prefix: tuple[str, ...] = ()) -> Iterator[list[int]]:
    """Start a program, wait until its memory is steady, and yield its processes."""
    words = program.words or (sys.executable, "pool.py", "{}")
    command = [*prefix, *(str(folder / program.file) if word == "{}" else word for word in words)]
    environment = {**os.environ, "DATA": str(folder / program.file), "ONECOPY_CACHE": str(folder / "store")}
    with (folder / "log").open("w") as log:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield steady(child)
        finally:
            tracking = []
            for pid in with_descendants([child.pid]):
                if "resource_tracker" in " ".join(command_of(pid)):
                    tracking.append(pid)  # it removes semaphores when the others have ended
                else:
                    os.kill(pid, signal.SIGKILL)
            child.wait()
            while any(Path(f"/proc/{pid}").exists() for pid in tracking):
                time.sleep(0.01)


def steady(child: subprocess.Popen[bytes]) -> list[int]:
    """Return the processes of a tree whose memory has not changed for two seconds."""
    known, since = (0, 0), time.monotonic()
    while time.monotonic() < since + 2 or known[0] < 20_000_000:
        assert child.poll() is None, (Path(child.args[0]), child.returncode)
        pids = with_descendants([child.pid])
        found = (sum(proc.status(pid).vm_rss for pid in pids) // (1 << 20) << 20, len(pids))
        if found != known:
            known, since = found, time.monotonic()
        time.sleep(0.1)
    return pids


@pytest.mark.parametrize("name", PROGRAMS)
def test_copies_and_the_memory_under_run_are_as_explained(tmp_path, name):
    program = PROGRAMS[name]
    pytest.importorskip(program.needs)
    program.write(tmp_path / program.file)
    write_programs(tmp_path, program)
    with running(tmp_path, program) as pids:
        found, truth = oc.explain(pids), twice_in(pids)
    assert found.copies == pytest.approx(truth, rel=0.05, abs=1 << 20)
    assert program.remedy in found.remedy
    assert bool(program.remedy) == bool(found.remedy)
    measured = None
    if "onecopy run" in found.remedy:
        with running(tmp_path, program, RUN) as pids:
            measured = oc.explain(pids).bytes
        assert measured == pytest.approx(found.expected, rel=0.15)
    values = {"hold": found.bytes, "copies": found.copies, "truth": truth, "expected": found.expected, "run": measured}
    cells = [name, *("-" if value is None else f"{value / 1e6:.0f} MB" for value in values.values())]
    print("|", " | ".join(cells), "|", found.remedy.splitlines()[:1], [str(one) for one in found.causes][:3])
    if (folder := os.environ.get("EXPLAINED")) is not None:
        with Path(folder).open("a") as file:
            file.write("| " + " | ".join(cells) + " |\n")
