"""The scenes that the documentation's terminals and curves show: programs from its pages, which are run."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.docs_pictures.terminal import output_of, screen_of

ROOT = Path(__file__).parents[2]
MODEL = """
import numpy as np
import onecopy as oc

random = np.random.default_rng(0)
oc.save("model.safetensors", {f"layer{i}.weight": random.standard_normal((2048, 2048), np.float32) for i in range(12)})
"""
WORKER = """
import sys
import numpy as np
import onecopy as oc

if sys.argv[1] == "heap":
    data = np.fromfile("model.safetensors", np.uint8)
else:
    data = np.frombuffer(oc.Mapping("model.safetensors").view(), np.uint8)
total = int(data[::4096].sum())  # a byte of each page
print("ready", flush=True)
sys.stdin.read()
"""
SERVER = """
import subprocess, sys, time
command = [sys.executable, "worker.py", sys.argv[1]]
workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
for worker in workers:
    worker.stdout.readline()
print("ready", flush=True)
sys.stdin.read() if len(sys.argv) > 2 else time.sleep(1)
for worker in workers:
    worker.communicate()
"""
POOL = """
import multiprocessing, sys, numpy
def load(path):
    global weights
    weights = numpy.load(path)
    ready.wait()
def start(barrier):
    global ready
    ready = barrier
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    numpy.save("weights.npy", numpy.random.default_rng(0).random(26_000_000))
    with context.Pool(4, start, (context.Barrier(4),)) as pool:
        pool.map(load, ["weights.npy"] * 4, chunksize=1)
        print("ready", flush=True)
        sys.stdin.read()
"""


def program(page: str, title: str) -> str:
    """Return the program with this title on a page."""
    found = re.search(
        rf'^```python title="{re.escape(title)}"\n(.*?)^```$', (ROOT / "docs" / page).read_text(), re.M | re.S
    )
    if found is None:
        raise ValueError(f"docs/{page} has no program {title!r}")
    return found[1]


def run(folder: Path, *command: str) -> None:
    """Run a command until it ends. Raise RuntimeError if it fails."""
    output_of(list(command), folder, 96)


def write_model(folder: Path) -> None:
    """Write 201 MB of weights."""
    (folder / "model.py").write_text(MODEL)
    run(folder, "python", "model.py")


def write_server(folder: Path) -> None:
    """Write a program with four workers that hold the weights on the heap, or map them."""
    (folder / "serve.py").write_text(SERVER)
    (folder / "worker.py").write_text(WORKER)


@contextlib.contextmanager
def running(folder: Path, *command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a program until it has printed a line. When the block ends, close its stdin, which ends it."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        yield child, child.stdout.readline().strip()


def ls(folder: Path) -> bytes:
    """Show a file that is not in memory."""
    write_model(folder)
    run(folder, "onecopy", "evict", "model.safetensors")
    return screen_of("ls", [["onecopy", "ls", "model.safetensors"]], folder, 80)


def warm(folder: Path) -> bytes:
    """Show how a file is warmed, and how much of it is then in memory."""
    write_model(folder)
    steps = [["evict", "model.safetensors"], ["warm", "model.safetensors"]]
    return screen_of("warm", [["onecopy", *step] for step in steps], folder, 104)


def top(folder: Path) -> bytes:
    """Show four workers that map one file."""
    write_model(folder)
    write_server(folder)
    with running(folder, "serve.py", "map", "wait") as (child, _):
        return screen_of("top", [["onecopy", "top", "--once", "--tree", str(child.pid), "-n", "6"]], folder, 104)


def explain(folder: Path) -> bytes:
    """Show four workers that have loaded the same file."""
    (folder / "serve.py").write_text(POOL)
    with running(folder, "serve.py"):
        picture = screen_of("explain", [["onecopy", "explain", "serve.py"]], folder, 80)
    shown = b"/srv/weather-service-v1".ljust(len(bytes(folder)), b"0")  # each text in the picture has a fixed length
    return picture.replace(bytes(folder), shown[: len(bytes(folder))])


def datasets(folder: Path) -> bytes:
    """Record the tutorial's training, with a list and with a shared one."""
    (folder / "train.py").write_text(program("tutorials/datasets.md", "train.py"))
    run(folder, "python", "train.py", "share")  # builds the file; the next run is recorded, as in the tutorial
    for how in ("list", "share"):
        run(folder, "onecopy", "record", "-q", "-o", f"{how}.jsonl", "--", "python", "train.py", how)
    return difference(folder, "list.jsonl", "share.jsonl", "200,000 annotations, three workers: a list, and shared")


def watch_memory(folder: Path) -> bytes:
    """Record four workers that read a file into memory, and four that map it."""
    write_model(folder)
    write_server(folder)
    for how in ("heap", "map"):
        run(folder, "onecopy", "record", "--exact", "-q", "-o", f"{how}.jsonl", "--", "python", "serve.py", how)
    return difference(folder, "heap.jsonl", "map.jsonl", "200 MB in four workers: read into memory, and mapped")


def difference(folder: Path, before: str, after: str, title: str) -> bytes:
    """Draw two recordings on the same axes."""
    run(folder, "onecopy", "diff", before, after, "-o", "both.svg", "--title", title, "--processes", "2")
    return (folder / "both.svg").read_bytes()


def mosaic(folder: Path) -> bytes:
    """Stitch the tutorial's tiles."""
    (folder / "make.py").write_text(program("tutorials/images.md", "make.py"))
    run(folder, "python", "make.py")
    stitch = ["images", "stitch", ".", "-o", "whole.oc", "--names", "tile*.tif", "--grid", "4x3", "--overlap", "18%"]
    run(folder, "onecopy", *stitch)
    run(folder, "onecopy", "images", "view", "whole.oc", "--max-side", "400", "-o", "whole.png")
    return (folder / "whole.png").read_bytes()
