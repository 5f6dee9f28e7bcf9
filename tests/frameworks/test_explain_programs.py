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
from tests.support import served
from tests.support.children import run_python
from tests.support.pages import twice_in
from tests.support.served import RUN

import onecopy as oc
from onecopy.memory import proc
from onecopy.memory.proc import command_of
from onecopy.memory.selection import with_descendants

pytestmark = pytest.mark.slow
WORKERS = 4
POOL = """
import multiprocessing, sys, time
{imports}
def load(path):
    global held
    {load}
    time.sleep(1000)
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool({workers}) as pool:
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


RANDOM = "data = numpy.random.default_rng(0).random((80_000, 100))"


def numbers(path: Path) -> None:
    np.save(path, np.random.default_rng(0).random(8_000_000))


def annotations(path: Path) -> None:
    rows = [{"id": i, "bbox": [i + 0.5, i * 2.0, i % 7, 1.5], "category": f"name {i}"} for i in range(60_000)]
    path.write_text(json.dumps(rows))


def onnx_model(path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    weights = onnx.numpy_helper.from_array(np.random.default_rng(0).random((4000, 4000), np.float32), "w")
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [1, 4000]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)


def by(code: str) -> Callable[[Path], None]:
    """Return a function that writes a file with some lines of Python, in a process of its own."""
    lines = f"import sys, numpy\npath = sys.argv[1]\n{RANDOM}\n{code}"

    def write(path: Path) -> None:
        run_python(lines, path)

    return write


@dataclass(frozen=True)
class Program:
    """A program, the file that it loads, and how."""

    file: str
    write: Callable[[Path], object]
    load: str = ""
    """Two lines for a pool: an import, and how a process loads the file at `path`."""
    words: tuple[str, ...] = ("pool.py", "{}")
    """The command, for Python unless it is a path; "{}" stands for the file."""
    needs: str = "numpy"
    remedy: str = "onecopy run --"
    """A part of the remedy, or "" if there is none."""


OF_GUNICORN = ("-m", "gunicorn", "-w", str(WORKERS), "-b", "unix:socket")
OF_CELERY = ("-m", "celery", "-A", "tasks", "worker", "-c", str(WORKERS), "--loglevel", "WARNING")
NEIGHBORS = "joblib.dump(sklearn.neighbors.NearestNeighbors(algorithm='brute').fit(data), path)"
VECTORS = "k = gensim.models.KeyedVectors(100)\nk.add_vectors([str(i) for i in range(80_000)], data)"
PROGRAMS = {
    "torch": Program(
        "m.pt",
        by("import torch\ntorch.save({'w': torch.from_numpy(data)}, path)"),
        "import torch\nheld = torch.load(path)",
        needs="torch",
    ),
    "scikit-learn": Program(
        "m.joblib",
        by(f"import joblib, sklearn.neighbors\n{NEIGHBORS}"),
        "import joblib\nheld = joblib.load(path)",
        needs="sklearn",
    ),
    "pandas": Program(
        "f.pkl",
        by("import pandas\npandas.DataFrame(data).to_pickle(path)"),
        "import pandas\nheld = pandas.read_pickle(path)",
        needs="pandas",
        remedy="onecopy.share_object",
    ),
    "list of dicts, fork": Program("a.json", annotations, words=("preloaded.py", "{}"), remedy="oc.share"),
    "list of dicts, spawn": Program(
        "a.json", annotations, "import json\nheld = json.load(open(path))", remedy="The processes use similar amounts"
    ),
    "gensim": Program(
        "v.kv",
        by(f"import gensim\n{VECTORS}\nk.save(path, separately=['vectors'])"),
        "import gensim\nheld = gensim.models.KeyedVectors.load(path)",
        needs="gensim",
    ),
    "ONNX Runtime": Program(
        "m.onnx", onnx_model, "import onnxruntime\nheld = onnxruntime.InferenceSession(path)", needs="onnxruntime"
    ),
    "C++ server": Program("w.npy", numbers, words=("./server", "{}"), remedy="w.npy: map the file"),
    "gunicorn": Program("w.npy", numbers, words=(*OF_GUNICORN, "app:app"), needs="gunicorn"),
    "gunicorn --preload": Program(
        "w.npy", numbers, words=(*OF_GUNICORN, "--preload", "app:app"), needs="gunicorn", remedy=""
    ),
    "celery": Program("w.npy", numbers, words=OF_CELERY, needs="celery"),
    "allocator": Program("w.npy", numbers, words=("allocator.py",), remedy=""),
}


def write_programs(folder: Path, program: Program) -> None:
    imports, _, load = program.load.partition("\n")
    (folder / "pool.py").write_text(POOL.format(imports=imports, load=load, workers=WORKERS))
    (folder / "preloaded.py").write_text(PRELOADED.format(workers=WORKERS))
    (folder / "allocator.py").write_text(ALLOCATOR)
    if program.words[0] == "./server":
        if shutil.which("c++") is None:
            pytest.skip("there is no C++ compiler")
        (folder / "server.cpp").write_text(SERVER)
        subprocess.run(["c++", "-O1", f"-DWORKERS={WORKERS}", "server.cpp", "-o", "server"], cwd=folder, check=True)


@contextmanager
def running(folder: Path, program: Program, prefix: tuple[str, ...] = ()) -> Iterator[list[int]]:
    """Start a program, wait until its memory is steady, and yield its processes."""
    file = str(folder / program.file)
    words = [file if word == "{}" else word for word in program.words]
    command = [*prefix, *(words if words[0] == "./server" else [sys.executable, *words])]
    environment = {
        **os.environ,
        "MODEL": file,
        "ONECOPY_CACHE": str(folder / "store"),
        "PYTHONPATH": str(served.PROGRAMS),
    }
    environment |= {"BROKER": str(folder), "LOADED": "process"}
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
    if "onecopy run" in found.remedy:
        with running(tmp_path, program, RUN) as pids:
            assert oc.explain(pids).bytes == pytest.approx(found.expected, rel=0.15)
