"""`oc.torch.load_into` leaves to torch what torch decides: it does what `load_state_dict` does, but on a mapping."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest

import onecopy as oc

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn

pytestmark = pytest.mark.filterwarnings(
    "ignore:Casting complex values",
    "ignore:.*weight_norm.*is deprecated",
    "ignore:ComplexHalf support",
    "ignore:.*torch.jit.* is deprecated",
)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
        self.head.weight = self.embedding.weight


class Shared(nn.Module):
    """A module that has another one under two names."""

    def __init__(self):
        super().__init__()
        self.first = self.second = nn.Linear(3, 3)


class Scale(nn.Module):
    """A scalar, which torch 0.3 saved with one axis, and buffers of several kinds."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.0))
        self.register_buffer("steps", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("empty", torch.empty(0, 3))
        self.register_buffer("own", torch.ones(2), persistent=False)
        self.register_buffer("none", None)


class Renamed(nn.Module):
    """A module whose hook renames, splits and adds weights of older versions."""

    def __init__(self):
        super().__init__()
        self.new, self.low, self.high = (nn.Parameter(torch.zeros(3)) for _ in range(3))
        self.register_buffer("version", torch.zeros(1))
        self._register_load_state_dict_pre_hook(self.rename)

    def rename(self, state, prefix, *_):
        if prefix + "old" in state:
            state[prefix + "new"] = state.pop(prefix + "old")
            state[prefix + "low"], state[prefix + "high"] = state.pop(prefix + "both").split(3)
            state[prefix + "version"] = torch.ones(1)


class Extra(nn.Module):
    """A module with an extra state that is a tensor of any length."""

    def __init__(self, state=None):
        super().__init__()
        self.weight, self.got = nn.Parameter(torch.zeros(3)), state

    def get_extra_state(self):
        return self.got

    def set_extra_state(self, state):
        self.got = state


class Own(nn.Linear):
    """A module whose method of torch is its own."""

    def load_state_dict(self, state, strict=True, assign=False):
        super().load_state_dict({"bias": torch.zeros(2), **state}, strict, assign)


def without(name, module):
    return {other: tensor for other, tensor in module.state_dict().items() if other != name}


def frozen():
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    module[0].weight.requires_grad_(False)
    return module


def on_meta():
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


new_norm, old_norm = nn.utils.parametrizations.weight_norm, nn.utils.weight_norm
MODULES = {
    "Linear": (lambda: nn.Linear(3, 2), None),
    "frozen": (frozen, None),
    "on meta": (on_meta, lambda: frozen().state_dict()),
    "BatchNorm of torch 0.4": (lambda: nn.BatchNorm1d(3), lambda: without("num_batches_tracked", nn.BatchNorm1d(3))),
    "weight_norm": (lambda: new_norm(nn.Linear(3, 3)), None),
    "old weight_norm": (lambda: new_norm(nn.Linear(3, 3)), lambda: old_norm(nn.Linear(3, 3)).state_dict()),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d()), lambda: frozen().state_dict()),
    "scalar": (Scale, None),
    "scalar with an axis": (Scale, lambda: Scale().state_dict() | {"scale": torch.tensor([5.0])}),
    "renaming hook": (Renamed, lambda: {"old": torch.ones(3), "both": torch.arange(6.0)}),
    "extra state": (Extra, lambda: Extra(torch.arange(5, dtype=torch.uint8)).state_dict()),
    "extra state of another length": (lambda: Extra(torch.zeros(2)), lambda: Extra(torch.ones(7)).state_dict()),
    "own method": (lambda: Own(3, 2), lambda: {"weight": torch.ones(2, 3)}),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8), None),
    "complex128": (lambda: nn.Linear(3, 2, dtype=torch.complex128), None),
    "TorchScript": (lambda: torch.jit.script(nn.Linear(3, 2)), None),
}  # fmt: skip


def changed_states(state):
    """Yield what files may have: all, less, more, other shapes, other dtypes."""
    names = list(state)
    yield state
    yield state | {"more": torch.ones(1), f"{names[0]}.more": torch.ones(1)}
    for name in names[:1] + names[-1:]:
        yield {other: tensor for other, tensor in state.items() if other != name}
        yield state | {name: torch.ones(5, 5)}
        yield state | {name: state[name].to(torch.float64 if state[name].dtype == torch.float32 else torch.float16)}


def is_empty(tensor):
    return tensor.is_meta or nn.parameter.is_lazy(tensor)


def outcome(module, load):
    """Return what a load leaves: an error, or all tensors, whether they require gradients, and the extra state."""
    try:
        load(module)
    except Exception as error:
        return f"{type(error)}: {error}"
    tensors = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    found = {
        name: (
            tensor.dtype,
            tensor.requires_grad,
            type(tensor),
            tensor.device,
            None if is_empty(tensor) else tensor.tolist(),
        )
        for name, tensor in tensors.items()
    }
    return found, list(module.state_dict()), str(getattr(module, "got", None))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_a_file_is_loaded_as_torch_loads_it(name, strict, tmp_path):
    make, state = MODULES[name]
    torch.manual_seed(0)
    errors = 0
    for number, given in enumerate(changed_states(dict(make().state_dict() if state is None else state()))):
        path = tmp_path / f"{number}.pt"
        torch.save(given, path)
        torch.manual_seed(1)
        expected = outcome(make(), lambda module: module.load_state_dict(torch.load(path), strict=strict, assign=True))  # noqa: B023
        torch.manual_seed(1)
        found = outcome(make(), lambda module: oc.torch.load_into(module, path, strict=strict))  # noqa: B023
        assert found == expected
        errors += isinstance(found, str)
    assert errors >= (2 if strict else 1)


class Three(nn.ParameterDict):
    """A weight with three names."""

    def __init__(self):
        super().__init__(dict.fromkeys("abc", nn.Parameter(torch.zeros(3))))


NAMES = {Tied: ["embedding.weight", "head.weight"], Shared: ["first.weight", "second.weight"], Three: ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("make", "names"),
    [(make, names) for make, all_names in NAMES.items() for n in (1, 2, 3) for names in combinations(all_names, n)],
)
def test_of_tied_names_the_last_one_is_loaded_and_the_report_has_the_others(make, names, tmp_path):
    """One of the names is complete."""
    path, plain, ours = tmp_path / "m.pt", make(), make()
    state = {name: one for name, one in plain.state_dict().items() if name not in NAMES[make]}
    shape = ours.state_dict()[names[0]].shape
    torch.save(state | {name: torch.full(shape, float(number)) for number, name in enumerate(names, 1)}, path)
    plain.load_state_dict(torch.load(path), strict=False)
    for dtype in (None, "float16"):
        report = oc.torch.load_into(ours, path, dtype=dtype)
        assert (report.missing, report.unexpected, report.unused) == ((), (), names[:-1])
        assert [one.name for one in report.copied if one.name in NAMES[make]] == NAMES[make][: dtype is not None]
        assert "in the file, but not used: " + ", ".join(names[:-1]) in str(report) or len(names) == 1
        weights = [weight for name, weight in ours.named_parameters(remove_duplicate=False) if name in NAMES[make]]
        assert all(one is weights[0] for one in weights)
        assert torch.equal(weights[0].float(), plain.state_dict()[names[0]])
    torch.save(plain.state_dict(), path)
    assert oc.torch.load_into(ours, path).unused == ()


@pytest.mark.parametrize("cast", ["private", "store"])
def test_an_extra_state_is_not_cast(cast, tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    module, path = Extra(), tmp_path / "m.safetensors"
    oc.save(path, {"weight": torch.ones(3), "_extra_state": torch.arange(3.0) / 3})
    oc.torch.load_into(module, path, dtype="bfloat16", cast=cast)
    assert module.weight.dtype == torch.bfloat16
    assert torch.equal(module.got, torch.arange(3.0) / 3)


def test_what_a_hook_computes_is_reported_as_a_copy(tmp_path):
    path, module = tmp_path / "m.pt", Renamed()
    torch.save({"old": torch.ones(3), "both": torch.arange(6.0)}, path)
    report = oc.torch.load_into(module, path, dtype=torch.float64)
    assert {one.name: one.reason for one in report.copied} == dict.fromkeys(
        ("new", "low", "high", "version"), "cast from float32 to float64"
    )
    report = oc.torch.load_into(module, path)
    (copied,) = report.copied
    assert (copied.name, copied.reason) == ("version", "computed by the module while it was loaded")
    assert report.mapped == 36
    oc.torch.load_into(module, path, device="meta")
    assert {one.device.type for one in module.state_dict().values()} == {"meta"}


@pytest.mark.parametrize("key", ["a.b", "training", "train", "half", "", "_buffers", "load_state_dict", 0])
@pytest.mark.parametrize(
    "kind",
    [nn.Parameter, partial(nn.Parameter, requires_grad=False), torch.Tensor.detach],
    ids=["parameter", "frozen parameter", "tensor"],
)
def test_a_dict_of_tensors_may_have_any_keys(key, kind, tmp_path):
    tied = kind(torch.zeros(2))
    given = {key: kind(torch.zeros(2)), "deep": {key: tied, "module": nn.Linear(1, 1)}}
    torch.save(
        {str(key): torch.ones(2), "deep": {str(key): torch.ones(2) * 2, "module": nn.Linear(1, 1).state_dict()}},
        tmp_path / "m.pt",
    )
    report = oc.torch.load_into(given, tmp_path / "m.pt")
    assert report.missing == report.unexpected == report.copied == ()
    assert (given[key].tolist(), given["deep"][key].tolist()) == ([1, 1], [2, 2])
    assert (type(given[key]), given[key].requires_grad) == (type(tied), tied.requires_grad)


def test_a_dict_of_tensors_has_errors_as_those_of_torch(tmp_path):
    given = {"a.b": torch.zeros(2), "c": torch.zeros(2), "deep": {"d": torch.zeros(1)}}
    before = dict(given)
    torch.save(
        {"a.b": torch.ones(3), "e": torch.ones(1), "deep": {"f": torch.ones(1), "d": torch.ones(1)}}, tmp_path / "m.pt"
    )
    with pytest.raises(RuntimeError) as caught:
        oc.torch.load_into(given, tmp_path / "m.pt")
    for text in (
        'Missing key(s) in state_dict: "c"',
        'Unexpected key(s) in state_dict: "e", "deep.f"',
        "a.b: (3,) in the file, (2,) here",
    ):
        assert text in str(caught.value)
    assert all(given[key] is before[key] for key in before)
    assert given["deep"]["d"].tolist() == [0]


@pytest.mark.parametrize("name", ["complex128", "complex32", "float4_e2m1fn_x2", "bits8", "bits16"])
def test_dtypes_that_only_torch_has_come_back_as_torch_loads_them(name, tmp_path):
    path, raw = tmp_path / "m.pt", torch.arange(96, dtype=torch.uint8)
    tensor = raw.view(getattr(torch, name)).reshape(2, -1)
    torch.save({"w": tensor, "turned": tensor.T, "every second": tensor[:, ::2], "empty": tensor[:0]}, path)
    expected, found = torch.load(path), oc.torch.load(path)
    for key, one in expected.items():
        assert (found[key].dtype, found[key].shape, found[key].stride()) == (one.dtype, one.shape, one.stride())
        assert found[key].untyped_storage()[: one.nbytes].tolist() == one.untyped_storage()[: one.nbytes].tolist()


def test_pairs_of_f4_of_a_safetensors_file_are_those_of_safetensors(tmp_path):
    theirs = pytest.importorskip("safetensors.torch")
    path = tmp_path / "f4.safetensors"
    theirs.save_file({"w": torch.arange(24, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(2, 3, 4)}, path)
    expected, found = theirs.load_file(path)["w"], oc.torch.load(path)["w"]
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape) == (torch.float4_e2m1fn_x2, (2, 3, 4))
    assert found.view(torch.uint8).tolist() == expected.view(torch.uint8).tolist()
    module = nn.Module()
    module.register_buffer("w", torch.empty(2, 3, 4, dtype=torch.float4_e2m1fn_x2))
    assert oc.torch.load_into(module, path, dtype=torch.float16).copied == ()


@pytest.mark.parametrize("suffix", ["npy", "npz"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_complex_numbers_of_numpy_are_tensors(suffix, order, tmp_path):
    array = np.array(np.arange(6).reshape(3, 2) * (1 + 2j), order=order)
    path = tmp_path / f"a.{suffix}"
    np.save(path, array) if suffix == "npy" else np.savez(path, w=array)
    (tensor,) = oc.torch.load(path).values()
    expected = torch.from_numpy(array)
    assert (tensor.dtype, tensor.shape, tensor.stride()) == (expected.dtype, expected.shape, expected.stride())
    assert torch.equal(tensor, expected)


def test_numbers_that_torch_does_not_have_are_bytes(tmp_path):
    np.savez(tmp_path / "a.npz", swapped=np.ones(3, ">f4"), text=np.array(["ab"]), long=np.ones(3, np.longdouble))
    found = oc.torch.load(tmp_path / "a.npz")
    assert {name: (tensor.dtype, tensor.ndim) for name, tensor in found.items()} == dict.fromkeys(
        ("swapped", "text", "long"), (torch.uint8, 1)
    )


def test_tensors_without_elements_are_on_the_cpu_whatever_the_default_device_is(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"scale": torch.tensor(1.0), "steps": torch.ones(2).long(), "empty": torch.empty(0, 3)}, path)
    module = Scale()
    with torch.device("meta"):
        found = oc.torch.load(path)
        oc.torch.load_into(module, path)
    assert {one.device.type for one in (*found.values(), *module.state_dict().values())} == {"cpu"}
    oc.save(path.with_suffix(".safetensors"), {name: torch.empty(0, 3) for name in "ab"})  # at the same place
    for loaded, name in ((found, "empty"), (oc.torch.load(path.with_suffix(".safetensors")), "a")):
        loaded[name].resize_(1, 3).fill_(1)
    assert loaded["b"].untyped_storage().nbytes() == 0
    assert oc.torch.load(path)["empty"].shape == (0, 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("is_cached", [True, False])
def test_a_device_that_the_machine_does_not_have_is_an_error_of_torch(is_cached, tmp_path):
    path, module = tmp_path / "m.safetensors", nn.Linear(2, 2)
    oc.save(path, dict(module.state_dict()))
    (oc.warm if is_cached else oc.evict)(path)
    with pytest.raises((AssertionError, RuntimeError)) as expected:
        torch.empty(1, device="cuda")
    for load in (oc.torch.load, lambda path, device: oc.torch.load_into(module, path, device=device)):
        with pytest.raises(expected.type) as found:
            load(path, device="cuda")
        assert str(found.value) == str(expected.value)
