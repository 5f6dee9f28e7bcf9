"""Programs as their authors write them: each loads a file with its framework, and answers; none knows of onecopy.

    python -P -m onecopy_bench.workers.programs NAME PATH WORKERS REQUESTS [edited]

starts so many workers. Each loads the file; when all have, they answer requests one after the other, so that times of
requests are not those of a wait for a CPU, write what they have measured beside the file, and hold.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np

from onecopy_bench.engine import ways
from onecopy_bench.engine.child import die_with
from onecopy_bench.engine.ways import named

WIDTH = 2048
"""Of the layers of modules."""
WARM_UP = 3
"""Requests before those that are measured."""
MODULE = "onecopy_bench.workers.programs"
ANSWERED = "all workers have answered"
"""What the program prints then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(ways.Way):
    """A program.

    Attributes
    ----------
    make
        Writes the file, once: called with a path and a number of bytes, about which it is to have.
    load, answer
        Called in each process: with the path; with what `load` returned and the number of the request. The answer is
        a number that depends on all of the data.
    prepare
        Called before memory is measured: imports what the framework imports late.
    edited
        `make` and `load` of the program with one line edited to load with onecopy; None where there is nothing to gain.
    """

    make: Callable[[str, int], None]
    load: Callable[[str], Any]
    answer: Callable[[Any, int], float]
    prepare: Callable[[], object] = tuple
    edited: tuple[Callable[[str, int], None], Callable[[str], Any]] | None = None


def _module(count: int) -> Any:
    import torch

    torch.set_num_threads(1)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count)))


def _count(nbytes: int) -> int:
    return max(round(nbytes / (4 * WIDTH * WIDTH)), 1)


def _make_safetensors(path: str, nbytes: int) -> None:
    from safetensors.torch import save_file

    save_file(_module(_count(nbytes)).state_dict(), path)


def _make_checkpoint(path: str, nbytes: int) -> None:
    import torch

    torch.save(_module(_count(nbytes)).state_dict(), path)


def _load_safetensors(path: str) -> Any:
    from safetensors.torch import load_file

    model = _module(_count(os.path.getsize(path)))  # noqa: PTH202
    model.load_state_dict(load_file(path))
    return model.eval()


def _load_checkpoint(path: str) -> Any:
    import torch

    model = _module(_count(os.path.getsize(path)))  # noqa: PTH202
    model.load_state_dict(torch.load(path))
    return model.eval()


def _forward(model: Any, number: int) -> float:
    import torch

    with torch.no_grad():
        return float(model(torch.full((1, WIDTH), 1.0 + number % 7)).sum())


def _make_gpt(path: str, nbytes: int) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    width = 1280
    layers = max(round(nbytes / (12 * width * width * 4)), 1)
    torch.manual_seed(0)
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=20, vocab_size=8000, bos_token_id=None, eos_token_id=None)
    GPT2LMHeadModel(config).save_pretrained(path)


def _tiny_gpt() -> None:
    from transformers import AutoModelForCausalLM, GPT2Config

    config = GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20, bos_token_id=None, eos_token_id=None)
    model = AutoModelForCausalLM.from_config(config)
    _generate(model, 0)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        AutoModelForCausalLM.from_pretrained(folder)


def _load_gpt(path: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(path)


def _load_gpt_cast(path: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)


def _generate(model: Any, number: int) -> float:
    import torch

    prompt = torch.arange(4)[None] + number % 7
    found = model.generate(prompt, max_new_tokens=4, do_sample=False, pad_token_id=0, attention_mask=prompt >= 0)
    return float(found.sum())


def _make_onnx(path: str, nbytes: int) -> None:
    import onnx
    from onnx import TensorProto

    from onecopy_bench.workers.models_written import model_of, products

    weights: dict[str, Any] = {}
    nodes: list[Any] = []
    shape, layers = ["batch", WIDTH], _count(nbytes)
    products(WIDTH, layers, nodes, weights)
    onnx.save(model_of(nodes, weights, ("x0", TensorProto.FLOAT, shape), (f"x{layers}", shape)), path)


def _load_onnx(path: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _run_onnx(session: Any, number: int) -> float:
    return float(session.run(None, {"x0": np.full((1, WIDTH), 1.0 + number % 7, np.float32)})[0].sum())


def _neighbors(nbytes: int) -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    points = np.random.default_rng(0).standard_normal((nbytes // (64 * 4), 64), np.float32)
    return KNeighborsClassifier(5, algorithm="brute", n_jobs=1).fit(points, points[:, 0] > 0)


def _make_neighbors(path: str, nbytes: int) -> None:
    import joblib

    joblib.dump(_neighbors(nbytes), path)


def _load_object(path: str) -> Any:
    import onecopy

    return onecopy.load_object(path, trusted=True)


def _as_object(make: Callable[[int], Any]) -> tuple[Callable[[str, int], None], Callable[[str], Any]]:
    """Return what saves an object that `make` makes of a number of bytes, and what loads it with onecopy."""

    def save(path: str, nbytes: int) -> None:
        import onecopy

        onecopy.save_object(path, make(nbytes))

    return save, _load_object


def _load_neighbors(path: str) -> Any:
    import joblib

    return joblib.load(path)


def _predict(model: Any, number: int) -> float:
    distances, rows = model.kneighbors(np.full((1, 64), 0.01 * (number % 7), np.float32))
    return float(distances.sum() + rows.sum())


def _make_table(path: str, nbytes: int) -> None:
    with Path(path).open("wb") as file:
        np.save(file, np.random.default_rng(0).standard_normal((nbytes // (128 * 4), 128), np.float32))


def _load_table(path: str) -> Any:
    return np.load(path)


def _multiply(table: Any, number: int) -> float:
    return float((table @ np.full(128, 1.0 + number % 7, np.float32)).sum())


def _vectors(nbytes: int) -> Any:
    from gensim.models import KeyedVectors

    rows = nbytes // (300 * 4)
    words = KeyedVectors(300)
    vectors = np.random.default_rng(0).standard_normal((rows, 300), np.float32)
    words.add_vectors([f"w{n}" for n in range(rows)], vectors)
    return words


def _make_vectors(path: str, nbytes: int) -> None:
    _vectors(nbytes).save(path)


def _load_vectors(path: str) -> Any:
    from gensim.models import KeyedVectors

    return KeyedVectors.load(path)


def _similar(words: Any, number: int) -> float:
    return float(words.most_similar(f"w{number % 7}", topn=1)[0][1])


def _frame(nbytes: int) -> Any:
    import pandas as pd

    rows = nbytes // (9 * 8)
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {f"c{n}": random.standard_normal(rows) for n in range(8)}
    return pd.DataFrame(columns | {"kind": pd.Categorical.from_codes(np.arange(rows) % 5, list("abcde"))})


def _make_frame(path: str, nbytes: int) -> None:
    _frame(nbytes).to_pickle(path)


def _load_frame(path: str) -> Any:
    import pandas as pd

    return pd.read_pickle(path)  # noqa: S301 - the file was written above


def _sum(frame: Any, number: int) -> float:
    return float(sum(frame[f"c{n}"].sum() for n in range(8)) + (frame["kind"].cat.codes == number % 5).sum())


PROGRAMS = (
    Program(
        "torch, safetensors", "model.load_state_dict(safetensors.torch.load_file(path))",
        ("torch", "safetensors.torch"),
        make=_make_safetensors, load=_load_safetensors, answer=_forward,
    ),
    Program(
        "torch, checkpoint", "model.load_state_dict(torch.load(path))", ("torch",),
        make=_make_checkpoint, load=_load_checkpoint, answer=_forward,
    ),
    Program(
        "transformers", "AutoModelForCausalLM.from_pretrained(folder)", ("torch", "transformers"),
        make=_make_gpt, load=_load_gpt, answer=_generate, prepare=_tiny_gpt,
    ),
    Program(
        "transformers, cast", "AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)",
        ("torch", "transformers"), make=_make_gpt, load=_load_gpt_cast, answer=_generate, prepare=_tiny_gpt,
    ),
    Program(
        "ONNX Runtime", "onnxruntime.InferenceSession(path)", ("onnxruntime", "onnx"),
        make=_make_onnx, load=_load_onnx, answer=_run_onnx,
    ),
    Program(
        "scikit-learn", "joblib.load(path) of a KNeighborsClassifier", ("joblib", "sklearn"),
        make=_make_neighbors, load=_load_neighbors, answer=_predict, edited=_as_object(_neighbors),
    ),
    Program(
        "gensim", "KeyedVectors.load(path)", ("gensim",),
        make=_make_vectors, load=_load_vectors, answer=_similar, edited=_as_object(_vectors),
    ),
    Program(
        "pandas", "pandas.read_pickle(path)", ("pandas",),
        make=_make_frame, load=_load_frame, answer=_sum, edited=_as_object(_frame),
    ),
    Program("numpy", "numpy.load(path)", ("numpy",), make=_make_table, load=_load_table, answer=_multiply),
)  # fmt: skip


def serve(name: str, path: str, workers: int, requests: int, *edited: str) -> None:
    """Start the workers, let all answer when all have loaded, say so, and hold until the end."""
    command = [sys.executable, "-P", "-m", MODULE, "worker", str(os.getpid()), str(monotonic_ns())]
    arguments = [name, path, str(requests), *edited]
    pipes = [subprocess.Popen([*command, *arguments], stdin=-1, stdout=-1) for _ in range(workers)]
    for word in (b"answer\n", b"hold\n"):
        for process in pipes:
            assert process.stdout is not None
            if not process.stdout.readline():
                sys.exit(f"a worker ended with status {process.wait()}")
        for process in pipes:
            assert process.stdin is not None
            process.stdin.write(word)
            process.stdin.flush()
    sys.stdout.write(ANSWERED + "\n")
    sys.stdout.flush()
    for process in pipes:
        process.wait()


def work(parent: str, start: str, name: str, path: str, requests: str, *edited: str) -> None:
    """Be a worker: load, answer, write what was measured, and hold."""
    from onecopy_bench.engine.memory import memory_of

    die_with(int(parent))
    program = named(PROGRAMS, name)
    load = program.edited[1] if edited and program.edited else program.load
    for module in program.needs:
        importlib.import_module(module)
    program.prepare()
    gc.collect()
    before = memory_of(os.getpid())
    state = load(path)
    loaded = monotonic_ns() - int(start)
    checksum = sum(program.answer(state, number) for number in range(WARM_UP))
    gc.collect()
    sys.stdout.write("loaded\n")
    sys.stdout.flush()
    sys.stdin.readline()
    after, times = memory_of(os.getpid()), []
    with Path(path).parent.joinpath("turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for number in range(int(requests)):
            begin = monotonic_ns()
            checksum += program.answer(state, number)
            times.append(monotonic_ns() - begin)
    grown = {"pss": after.pss - before.pss, "anonymous": after.anonymous - before.anonymous}
    answers = Path(path).parent / f"answers-{os.getpid()}.json"
    answers.write_text(json.dumps({"load_ns": loaded, "times_ns": times, "checksum": checksum, **grown}))
    sys.stdout.write("answered\n")
    sys.stdout.flush()
    while sys.stdin.readline():
        pass


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work(*sys.argv[2:])
    else:
        serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
