"""Programs that load a file with a framework and answer requests, without using onecopy.

    python -P -m onecopy_bench.programs NAME PATH WORKERS REQUESTS

starts WORKERS workers, each of which loads the file. When all have loaded it, they answer requests one worker at a
time, so that the times do not include waiting for a CPU. Then they write their measurements next to the file, and wait.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np

from onecopy_bench.peers import Peer, module, named
from onecopy_bench.worker import die_with

WIDTH = 2048
"""The width of a module's layers."""
WARM_UP = 3
"""The number of requests before the measured ones, for warming up."""
MODULE = "onecopy_bench.programs"
ANSWERED = "all workers have answered"
"""The text that the program prints when all workers have answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Peer):
    """A program: `make` writes a file of about the given size in bytes, and each process calls `load` and `answer`.

    `answer` takes the number of the request, and returns a number that depends on all the data. `rewritten` is the name
    of the program, if any, that does the same work with a mapped file and different calls. `immutable`: also measure
    the program with its folder declared immutable, so that no snapshot is made.
    """

    make: Callable[[str, int], None]
    load: Callable[[str], Any]
    answer: Callable[[Any, int], float]
    rewritten: str = ""
    immutable: bool = False


def _module(nbytes: int) -> Any:
    nn, count = module("torch").nn, max(round(nbytes / (4 * WIDTH * WIDTH)), 1)
    module("torch").set_num_threads(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count)))


def _load_checkpoint(path: str) -> Any:
    model = _module(os.path.getsize(path))  # noqa: PTH202
    model.load_state_dict(module("torch").load(path))
    return model.eval()


def _weights(nbytes: int) -> Any:
    module("torch").manual_seed(7)  # the same in every file
    return _module(nbytes).state_dict()


def _load_on_meta(read: Callable[[str], Any], path: str) -> Any:
    with module("torch").device("meta"):
        model = _module(os.path.getsize(path))  # noqa: PTH202
    model.load_state_dict(read(path), assign=True)
    return model.eval()


def _forward(model: Any, number: int) -> float:
    torch = module("torch")
    with torch.no_grad():
        return float(model(torch.full((1, WIDTH), 1.0 + number % 7)).sum())


def _make_checkpoint(path: str, nbytes: int) -> None:
    module("torch").save(_weights(nbytes), path)


def _make_table(path: str, nbytes: int) -> None:
    with Path(path).open("wb") as file:
        np.save(file, np.random.default_rng(0).standard_normal((nbytes // (128 * 4), 128), np.float32))


PROGRAMS = (
    Program(
        "torch, checkpoint", "model.load_state_dict(torch.load(path))", ("torch",), load=_load_checkpoint,
        make=_make_checkpoint, answer=_forward,
        rewritten="torch, safetensors",
    ),
    Program(
        "torch, safetensors", "model.load_state_dict(safetensors.torch.load_file(path), assign=True)",
        ("torch", "safetensors.torch"), answer=_forward,
        load=lambda path: _load_on_meta(module("safetensors.torch").load_file, path),
        make=lambda path, nbytes: module("safetensors.torch").save_file(_weights(nbytes), path),
    ),
    Program(
        "torch, on meta", "model.load_state_dict(torch.load(path), assign=True)", ("torch",), answer=_forward,
        load=lambda path: _load_on_meta(module("torch").load, path),  # which is replaced under onecopy run
        make=_make_checkpoint, rewritten="torch, mapped", immutable=True,
    ),
    Program(
        "torch, mapped", "model.load_state_dict(torch.load(path, mmap=True), assign=True)", ("torch",),
        load=lambda path: _load_on_meta(partial(module("torch").load, mmap=True), path), answer=_forward,
        make=_make_checkpoint,
    ),
    Program(
        "numpy", "numpy.load(path)", ("numpy",), make=_make_table,
        load=lambda path: np.load(path),  # noqa: PLW0108 - it is replaced under onecopy run
        answer=lambda table, number: float((table @ np.full(128, 1.0 + number % 7, np.float32)).sum()),
    ),
)  # fmt: skip


def serve(name: str, path: str, workers: int, requests: str) -> None:
    """Start the workers, have them answer requests once all have loaded the file, print `ANSWERED`, and wait."""
    command = [sys.executable, "-P", "-m", MODULE, "worker", str(os.getpid()), str(monotonic_ns())]
    arguments = [name, path, requests]
    pipes: list[Any] = [
        subprocess.Popen([*command, *arguments], stdin=-1, stdout=-1, text=True) for _ in range(workers)
    ]
    for word in ("answer", "hold"):
        for process in pipes:
            if not process.stdout.readline():
                sys.exit(f"a worker ended with status {process.wait()}")
        for process in pipes:
            print(word, file=process.stdin, flush=True)
    print(ANSWERED, flush=True)  # noqa: T201
    for process in pipes:
        process.wait()


def work(parent: str, start: str, name: str, path: str, requests: str) -> None:
    """Run one worker: load the file, answer requests, write the measurements, and wait until stdin is closed."""
    from onecopy.memory.proc import rollup

    die_with(int(parent))
    program = named(PROGRAMS, name)
    for needed in program.needs:
        module(needed)
    gc.collect()
    before = rollup(os.getpid())
    state = program.load(path)
    loaded = monotonic_ns() - int(start)
    checksum = sum(program.answer(state, number) for number in range(WARM_UP))
    gc.collect()
    print("loaded", flush=True)  # noqa: T201
    sys.stdin.readline()
    after, times = rollup(os.getpid()), []
    with Path(path).parent.joinpath("turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for number in range(int(requests)):
            begin = monotonic_ns()
            checksum += program.answer(state, number)
            times.append(monotonic_ns() - begin)
    grown = {"pss": after.pss - before.pss, "anonymous": after.anonymous - before.anonymous}
    answers = Path(path).parent / f"answers-{os.getpid()}.json"
    answers.write_text(json.dumps({"load_ns": loaded, "times_ns": times, "checksum": checksum, **grown}))
    print("answered", flush=True)  # noqa: T201
    while sys.stdin.readline():
        pass


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work(*sys.argv[2:])
    else:
        serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
