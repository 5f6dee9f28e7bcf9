"""Keys of tensors, frames and models have all that they consist of, and are the same in every process."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch

from onecopy.store.keys import digest_of


def with_attributes(made: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def with_gradient(value: float) -> torch.Tensor:
    made = torch.ones(3, requires_grad=True)
    made.grad = torch.ones(3) * value
    return made


def computed(value: float) -> torch.Tensor:
    made = torch.ones(3, requires_grad=True) * 1
    made.retain_grad()
    (made * value).sum().backward()
    return made


def quantized(scale: float, zero: int) -> torch.Tensor:
    return torch._make_per_tensor_quantized_tensor(torch.tensor([10, 20], dtype=torch.uint8), scale, zero)


def by_channel(scales: list[float], axis: int, zero: int = 0) -> torch.Tensor:
    raw = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)
    return torch._make_per_channel_quantized_tensor(raw, torch.tensor(scales), torch.tensor([zero, 1]), axis)


def coo(shape: tuple[int, int]) -> torch.Tensor:
    return torch.sparse_coo_tensor(EYE.indices(), EYE.values(), shape, check_invariants=True)


class Tagged(torch.Tensor):
    pass


FRAME = pd.DataFrame({"a": [1]})
COMPLEX = torch.complex(torch.ones(2), torch.ones(2))
EYE = torch.eye(3).to_sparse()
PAIRS: dict[str, Callable[[], Any]] = {
    "values": lambda: (torch.ones(2), torch.zeros(2)),
    "dtype": lambda: (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    "shape": lambda: (torch.zeros(2, 1), torch.zeros(1, 2)),
    "strides": lambda: (torch.ones(2), torch.ones(4)[::2]),
    "requires_grad": lambda: (torch.ones(2), torch.ones(2, requires_grad=True)),
    "gradient": lambda: (with_gradient(1), with_gradient(2)),
    "gradient of what was computed": lambda: (computed(1), computed(2)),
    "attribute": lambda: tuple(with_attributes(torch.ones(2), tag=n) for n in (1, 2)),
    "attribute of a subclass": lambda: tuple(
        with_attributes(torch.ones(3).as_subclass(Tagged), scale=n) for n in (1, 2)
    ),
    "scale": lambda: (quantized(0.1, 0), quantized(0.2, 0)),
    "zero point": lambda: (quantized(0.1, 0), quantized(0.1, 5)),
    "scales": lambda: (by_channel([0.1, 0.2], 0), by_channel([0.1, 0.3], 0)),
    "axis": lambda: (by_channel([0.1, 0.2], 0), by_channel([0.1, 0.2], 1)),
    "zero points": lambda: (by_channel([0.1, 0.2], 0), by_channel([0.1, 0.2], 0, zero=5)),
    "conjugate": lambda: (COMPLEX, COMPLEX.conj()),
    "conjugated by a flag": lambda: (COMPLEX.conj(), COMPLEX.conj().resolve_conj()),
    "negated by a flag": lambda: (torch._neg_view(torch.ones(2)), -torch.ones(2)),
    "zeros": lambda: (torch._efficientzerotensor(2), torch._efficientzerotensor(3)),
    "sparse values": lambda: (torch.eye(3).to_sparse(), (torch.eye(3) * 2).to_sparse()),
    "coalesced": lambda: (EYE, coo((3, 3))),
    "sparse shape": lambda: (EYE, coo((3, 4)).coalesce()),
    "sparse layout": lambda: (torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csc()),
    "sparse places": lambda: (torch.eye(3).to_sparse_csr(), torch.eye(3).flip(0).to_sparse_csr()),
    "nested": lambda: (torch.nested.nested_tensor([torch.ones(2)]), torch.nested.nested_tensor([torch.ones(3)])),
    "jagged": lambda: tuple(
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3) * n], layout=torch.jagged) for n in (1, 2)
    ),
    "meta": lambda: (torch.empty(2, device="meta"), torch.empty(3, device="meta")),
    "frame": lambda: (FRAME, FRAME * 2),
    "attrs of a frame": lambda: tuple(with_attributes(FRAME.copy(), attrs={"k": n}) for n in (1, 2)),
    "attribute of a frame": lambda: tuple(with_attributes(FRAME.copy(), scale=n) for n in (1, 2)),
}


@pytest.mark.filterwarnings("ignore:.*(deprecated|prototype|beta)")
@pytest.mark.parametrize("make", PAIRS.values(), ids=list(PAIRS))
def test_objects_that_differ_have_two_keys(make):
    pair = make()
    assert digest_of(pair[0], "") != digest_of(pair[1], "")
    assert digest_of(pair[0], "") == digest_of(pair[0], "")


STABLE = {
    "pydantic": (
        "pydantic",
        "import pydantic\nclass Inner(pydantic.BaseModel):\n    a: {int}\nclass G(pydantic.BaseModel):\n"
        "    b: list[Inner] = []\n    @pydantic.field_validator('b')\n    def check(cls, x): return x\n",
    ),
    "an adapter": ("pydantic", "import pydantic\nG = pydantic.TypeAdapter(list[{int}])\n"),
    "a validated call": ("pydantic", "import pydantic\n@pydantic.validate_call\ndef G(a: {int}): return a\n"),
    "a vectorizer": (
        "sklearn",
        "from sklearn.feature_extraction.text import TfidfVectorizer\nG = TfidfVectorizer().fit(['ab {int}', 'cd'])\n",
    ),
    "a tensor": ("torch", "import torch\nG = torch.ones(3, dtype=torch.{int}64)\n"),
    "a forest": (
        "sklearn",
        "from sklearn.ensemble import RandomForestClassifier as F\nG = F({int}(2.5), random_state=0)\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("package", "source"), STABLE.values(), ids=list(STABLE))
def test_a_key_is_the_same_in_two_processes_and_changes_with_an_edit(tmp_path, package, source):
    pytest.importorskip(package)

    def key(word: str, seed: str) -> str:
        ending = "\nimport onecopy.store.keys as k\ndef f(): return G\nprint(k.name_of(f))\n"
        (tmp_path / "program.py").write_text(source.format(int=word) + ending)
        command = [sys.executable, "-W", "ignore", tmp_path / "program.py"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    assert key("int", "1") == key("int", "2") != key("float", "1")
