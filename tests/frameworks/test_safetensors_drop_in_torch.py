"""`onecopy.safetensors.torch`, beside `safetensors.torch`."""

import copy

import pytest
import safetensors
from tests.support.children import run_python
from tests.support.safetensors_files import bytes_of

import onecopy.safetensors.torch as ours
from onecopy.frameworks.torch._load import TYPES
from onecopy.memory.proc import Regions
from onecopy.safetensors import SafetensorError, safe_open

torch = pytest.importorskip("torch", reason="torch is not installed")
theirs = pytest.importorskip("safetensors.torch")

ALL = {name: torch.arange(48, dtype=torch.uint8).view(getattr(torch, kind)) for name, kind in TYPES.items()}
ALL["BOOL"] = torch.tensor([True, False])
ALL |= {"empty": torch.zeros(0, 3), "0-d": torch.tensor(5.5), "deep": torch.arange(24).reshape(2, 3, 4)}
"""A tensor of each dtype, and of other shapes."""


def bits(tensor):
    return tensor.reshape(-1).contiguous().view(torch.uint8).tolist() if tensor.numel() else []


def check_same(found, expected):
    assert {name: (one.dtype, one.shape, bits(one)) for name, one in found.items()} == {
        name: (one.dtype, one.shape, bits(one)) for name, one in expected.items()
    }


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("device", ["cpu", None, torch.device("cpu")], ids=repr)
def test_what_either_writes_the_other_reads_in_all_dtypes(path, backend, device):
    theirs.save_file(ALL, path, metadata={"step": "7"})
    check_same(ours.load_file(path, device, backend=backend), ALL)
    ours.save_file(ALL, path, metadata={"step": "7"})
    check_same(ours.load_file(str(path), backend=backend), ALL)
    check_same(theirs.load_file(path), ALL)


def test_the_bytes_of_save_are_those_of_safetensors():
    packed = torch.arange(8, dtype=torch.uint8).reshape(2, 4).view(torch.float4_e2m1fn_x2)
    assert ours.save(ALL | {"packed": packed}, {"a": "b"}) == theirs.save(ALL | {"packed": packed}, {"a": "b"})
    check_same(ours.load(theirs.save(ALL)), ALL)


def test_tensors_are_on_one_mapping_and_writes_are_private(path):
    theirs.save_file({"w": torch.arange(1000.0), "v": torch.ones(9)}, path)
    before = path.read_bytes()
    found = ours.load_file(path)
    region = Regions().at(found["w"].data_ptr())
    assert region is not None
    assert (region.path, region.perms) == (str(path), "rw-p")
    found["w"].mul_(0)
    assert path.read_bytes() == before
    assert ours.load_file(path)["w"][5] == 5


@pytest.mark.parametrize(
    "index", ["[:]", "[()]", "[1:, -1]", "[0, 1]", "[[]]", "[::2]", "[..., 0]", "[:20]", "[[1, 0]]"]
)
def test_slices_are_those_of_safetensors(path, index):
    theirs.save_file({"w": torch.arange(12).reshape(4, 3)}, path)
    with safe_open(path, "pt") as mine, safetensors.safe_open(path, "pt") as other:
        one, two = mine.get_slice("w"), other.get_slice("w")
        assert (one.get_shape(), one.get_dtype()) == (two.get_shape(), two.get_dtype())
    found, expected = eval(f"one{index}"), eval(f"two{index}")
    assert found.shape == expected.shape
    assert torch.equal(found, expected)
    for whole in (one, two):
        with pytest.raises(IndexError):
            whole[9]


def test_packed_elements_are_pairs_as_in_safetensors(path):
    path.write_bytes(bytes_of({"p": ("F4", [2, 4], b"\x12\x34\x56\x78"), "a": ("U8", [1], b"x")}))
    check_same(ours.load_file(path), theirs.load_file(path))
    for dtype, shape, data in (("F4", [2, 3], b"123"), ("F6_E2M3", [4], b"123")):
        path.write_bytes(bytes_of({"p": (dtype, shape, data)}))
        for module, error in ((ours, SafetensorError), (theirs, safetensors.SafetensorError)):
            with pytest.raises(error):
                module.load_file(path)


CODES = torch.arange(16, dtype=torch.uint8).reshape(2, 8)
PACKED = (CODES[:, ::2] | CODES[:, 1::2] << 4).view(torch.float4_e2m1fn_x2)
WHOLE_PAIRS = [
    "[:]",
    "[0]",
    "[...]",
    "[None]",
    "[:, 2:6]",
    "[..., 4:]",
    "[1, -4:]",
    "[:, 4:100]",
    "[:, 6:2]",
    "[0:1, :]",
]
DIVIDED_PAIRS = ["[:, 1:3]", "[:, ::2]", "[0, 0]", "[..., 3]", "[0, [0, 1]]", "[:, 0:4, None]"]


@pytest.mark.parametrize("index", WHOLE_PAIRS + DIVIDED_PAIRS)
def test_a_slice_of_packed_elements_counts_elements_and_gives_their_pairs(path, index):
    theirs.save_file({"p": PACKED}, path)
    with safe_open(path, "pt") as file:
        part = file.get_slice("p")
    if index in DIVIDED_PAIRS:
        with pytest.raises(SafetensorError, match="'p': F4 stores the last axis"):
            eval(f"part{index}", {"part": part})
        return
    found = eval(f"part{index}", {"part": part}).view(torch.uint8)
    apart = torch.stack([found & 15, found >> 4], -1).flatten(-2)
    assert apart.tolist() == eval(f"CODES{index}").tolist()


WHOLE = torch.arange(12.0).reshape(4, 3)
REFUSED = {
    "no dict": ([WHOLE], ValueError),
    "no tensor": ({"a": [1]}, ValueError),
    "sparse": ({"a": WHOLE.to_sparse()}, ValueError),
    "strided": ({"a": WHOLE[:, 1]}, ValueError),
    "transposed": ({"a": WHOLE.T}, ValueError),
    "twice": ({"a": WHOLE, "b": WHOLE}, RuntimeError),
    "overlapping": ({"a": WHOLE[:2], "b": WHOLE[1:]}, RuntimeError),
    "tied and strided": ({"a": WHOLE, "b": WHOLE.T}, RuntimeError),
    "meta": ({"a": WHOLE.to("meta")}, RuntimeError),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("name", ["save_file", "save"])
def test_what_safetensors_refuses_is_refused_with_the_same_class(path, kind, name):
    given, error = REFUSED[kind]
    for module in (ours, theirs):
        with pytest.raises(error) as raised:
            getattr(module, name)(given, *([path] if name == "save_file" else []))
        assert not isinstance(raised.value, SafetensorError)
    assert not path.exists()


def test_parts_of_one_storage_that_do_not_overlap_are_written(path):
    parts = {"a": WHOLE[:2], "b": WHOLE[2:], "grad": torch.nn.Parameter(torch.ones(2)), "negated": torch.ones(2)}
    ours.save_file(parts, path)
    check_same(theirs.load_file(path), {name: tensor.detach() for name, tensor in parts.items()})


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = self.a
        self.c = torch.nn.Linear(4, 4)


class Apart(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (torch.nn.Linear(4, 4) for _ in "abc")


@pytest.mark.parametrize(("writer", "reader"), [(ours, ours), (ours, theirs), (theirs, ours)])
def test_tied_weights_are_written_once_and_both_read_them(path, writer, reader):
    model, metadata, tied = Tied(), {"step": "7", "b.bias": "mine"}, {"b.weight": "a.weight"}
    model.c.weight = torch.nn.Parameter(torch.arange(16.0).reshape(4, 4).T)  # made contiguous
    with pytest.raises(ValueError, match=r"use save_model\(..., force_contiguous=True\)"):
        writer.save_model(model, path, force_contiguous=False)
    for module, given, added in ((Apart(), metadata, {}), (model, None, tied), (model, metadata, tied)):
        writer.save_model(module, path, given)
        assert writer is theirs or len(metadata) == 2
        with safe_open(path, "pt") as file:
            assert {**(given or {}), **added}.items() <= file.metadata().items()
    with safe_open(path, "pt") as file:
        assert file.keys() == ["a.bias", "a.weight", "c.bias", "c.weight"]
    check_loaded(reader, model, path)
    named_b = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if not name.startswith("a.")}
    theirs.save_file(named_b, path)  # either name loads both
    check_loaded(reader, model, path)


def check_loaded(reader, model, path):
    other = Tied()
    before = other.a.weight
    assert reader.load_model(other, path) == (set(), [])
    assert other.a.weight is before is other.b.weight
    check_same(other.state_dict(), model.state_dict())


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [(Tied, Apart, ({"b.bias", "b.weight"}, [])), (Apart, Tied, (set(), ["b.bias", "b.weight"]))],
)
def test_other_names_are_reported_or_raised_as_by_safetensors(path, source, target, found):
    theirs.save_model(source(), path)
    for module in (ours, theirs):
        missing, unexpected = module.load_model(target(), path, strict=False)
        assert (missing, sorted(unexpected)) == found
        with pytest.raises(RuntimeError, match=r'key\(s\) in state_dict: "b.bias", "b.weight"'):
            module.load_model(target(), path)


def test_weights_that_no_name_covers_are_refused_as_by_safetensors(path):
    model = torch.nn.Linear(4, 4)
    model.weight = torch.nn.Parameter(torch.zeros(8, 4)[:4])
    for module in (ours, theirs):
        with pytest.raises(RuntimeError):
            module.save_model(model, path)


def test_load_model_with_onecopy_auto_moves_weights_to_the_mapping(path, tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    run_python(
        """
import sys, torch
import onecopy as oc, onecopy.auto
from onecopy.safetensors.torch import load_model, save_model
saved, model, plain = (torch.nn.Linear(700, 700) for _ in range(3))
save_model(saved, sys.argv[1])
weight = model.weight
assert load_model(model, sys.argv[1]) == (set(), [])
assert model.weight is weight and torch.equal(weight, saved.weight)
assert oc.explain(model).private < 10_000 < oc.explain(plain).private
""",
        path,
    )


@pytest.mark.parametrize("seed", range(30))
def test_shared_memory_is_found_as_by_safetensors(seed):
    torch.manual_seed(seed)
    bases = [torch.arange(40.0), torch.arange(30, dtype=torch.int16)]
    state = {}
    for number in range(6):
        base = bases[int(torch.randint(2, ()))]
        begin, length = int(torch.randint(len(base), ())), int(torch.randint(12, ()))
        state[f"t{number}"] = base[begin : begin + length : 1 + number % 2]
    state |= {"whole": bases[0], "copy": copy.deepcopy(bases[0])}
    found = sorted(map(sorted, ours._overlapping(state)))
    assert found == sorted(map(sorted, theirs._find_shared_tensors(state)))


def test_torch_that_is_missing_is_an_error_that_names_it(path):
    run_python(
        """
import sys
sys.modules["torch"] = None
from onecopy.safetensors.torch import load_file
from onecopy.safetensors.numpy import save_file
import numpy as np
save_file({"a": np.zeros(3)}, sys.argv[1])
try:
    load_file(sys.argv[1])
except ModuleNotFoundError as error:
    assert error.name == "torch" and "pip install torch" in str(error), error
else:
    raise AssertionError
""",
        path,
    )
