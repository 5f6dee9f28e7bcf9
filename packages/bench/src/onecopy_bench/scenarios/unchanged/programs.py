"""Programs as their authors write them: each loads a file with its framework, and answers.

None of them knows of onecopy. A program has three moments: `make` writes the file, once; `load`, when a process starts;
`answer`, for each request, which returns a number that depends on all of the data.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 2048
"""Of the layers of modules."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A program after one line was edited, to load with onecopy.

    Attributes
    ----------
    detail
        The call that loads.
    make, load
        As those of `Program`; the file is another one.
    """

    detail: str
    make: Callable[[str, int], None]
    load: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Program:
    """A program.

    Attributes
    ----------
    name, detail
        The name, and the calls that load.
    needs
        Modules that it imports.
    make
        Called with a path and a number of bytes, about which the file is to have.
    load, answer
        Called in each process: with the path, and with what `load` returned and the number of the request.
    """

    name: str
    detail: str
    needs: tuple[str, ...]
    make: Callable[[str, int], None]
    load: Callable[[str], Any]
    answer: Callable[[Any, int], float]
    prepare: Callable[[], object] = tuple
    """Called before memory is measured: imports what the framework imports late."""
    edited: Edited | None = None
    """The program with one line edited; None where `onecopy.auto` is all there is to gain."""


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
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    shape: list[Any] = ["batch", WIDTH]
    weights, nodes, count = [], [], _count(nbytes)
    for n in range(count):
        matrix = random.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(WIDTH**0.5)
        weights.append(numpy_helper.from_array(matrix, f"w{n}"))
        nodes.append(helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"]))
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"x{count}", TensorProto.FLOAT, shape)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


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


def _as_object(make: Callable[[int], Any]) -> Edited:
    """Return the program that loads an object which `make` makes of a number of bytes."""

    def save(path: str, nbytes: int) -> None:
        import onecopy

        onecopy.save_object(path, make(nbytes))

    return Edited("onecopy.load_object(path, trusted=True)", save, _load_object)


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


PROGRAMS: tuple[Program, ...] = (
    Program(
        "torch, safetensors",
        "model.load_state_dict(safetensors.torch.load_file(path))",
        ("torch", "safetensors.torch"),
        _make_safetensors,
        _load_safetensors,
        _forward,
    ),
    Program(
        "torch, checkpoint",
        "model.load_state_dict(torch.load(path))",
        ("torch",),
        _make_checkpoint,
        _load_checkpoint,
        _forward,
    ),
    Program(
        "transformers",
        "AutoModelForCausalLM.from_pretrained(folder)",
        ("torch", "transformers"),
        _make_gpt,
        _load_gpt,
        _generate,
        _tiny_gpt,
    ),
    Program(
        "transformers, cast",
        "AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)",
        ("torch", "transformers"),
        _make_gpt,
        _load_gpt_cast,
        _generate,
        _tiny_gpt,
    ),
    Program(
        "ONNX Runtime", "onnxruntime.InferenceSession(path)", ("onnxruntime", "onnx"), _make_onnx, _load_onnx, _run_onnx
    ),
    Program(
        "scikit-learn",
        "joblib.load(path) of a KNeighborsClassifier",
        ("joblib", "sklearn"),
        _make_neighbors,
        _load_neighbors,
        _predict,
        edited=_as_object(_neighbors),
    ),
    Program(
        "gensim",
        "KeyedVectors.load(path)",
        ("gensim",),
        _make_vectors,
        _load_vectors,
        _similar,
        edited=_as_object(_vectors),
    ),
    Program(
        "pandas",
        "pandas.read_pickle(path)",
        ("pandas",),
        _make_frame,
        _load_frame,
        _sum,
        edited=_as_object(_frame),
    ),
    Program("numpy", "numpy.load(path)", ("numpy",), _make_table, _load_table, _multiply),
)
"""In the order of the tables."""

NAMES = tuple(program.name for program in PROGRAMS)
