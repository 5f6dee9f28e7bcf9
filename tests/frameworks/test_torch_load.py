"""Weights as tensors on a mapping: exact, copy-on-write, tied where they were; a module that is given them."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import ChildKilledError

import onecopy as oc

torch = pytest.importorskip("torch", reason="torch is not installed")

WIDTH = 512


class Model(torch.nn.Module):
    """Two layers whose outer weights are one, and a buffer that no file holds."""

    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(1000, WIDTH)
        self.inner = torch.nn.Linear(WIDTH, WIDTH)
        self.head = torch.nn.Linear(WIDTH, 1000, bias=False)
        self.register_buffer("scale", torch.full((WIDTH,), 0.5))
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(torch.relu(self.inner(self.words(ids))) * self.scale)


def on_meta(make, *arguments):
    with torch.device("meta"):
        return make(*arguments)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def file(model, tmp_path) -> Path:
    """A file of what the model has, without the second name of what is tied, as transformers writes it."""
    path = tmp_path / "model.safetensors"
    oc.save(path, {name: tensor.numpy() for name, tensor in model.state_dict().items() if name != "head.weight"})
    return path


def test_tensors_are_what_was_saved(model, file):
    state = oc.torch.load(file)
    assert sorted(state) == ["inner.bias", "inner.weight", "scale", "words.weight"]
    for name, tensor in state.items():
        assert torch.equal(tensor, model.state_dict()[name])
        assert not tensor.requires_grad
    assert list(oc.torch.load(file, names=["scale"])) == ["scale"]
    with pytest.raises(KeyError, match="nothing"):
        oc.torch.load(file, names=["nothing"])


def test_writing_in_place_changes_neither_file_nor_other_loads(file):
    before = file.read_bytes()
    one, other = oc.torch.load(file), oc.torch.load(file)
    one["words.weight"].zero_()
    assert other["words.weight"].abs().sum() > 0
    assert file.read_bytes() == before


def test_a_write_to_what_is_shared_unsafely_ends_the_process(file, in_child):
    with pytest.raises(ChildKilledError, match="SIGSEGV"):
        in_child(oc.torch.load(file, unsafe_shared=True)["scale"].zero_)


def test_a_module_on_meta_is_given_the_file(model, file):
    empty = on_meta(Model)
    report = oc.torch.load_into(empty, file)
    ids = torch.arange(10)
    assert torch.equal(empty(ids), model(ids))
    assert empty.head.weight is empty.words.weight
    assert report.copied == report.missing == report.unexpected == report.on_meta == ()
    assert report.tied == (("words.weight", "head.weight"),)
    assert report.mapped == sum(t.numel() * 4 for t in oc.torch.load(file).values())
    assert "0 B copied" in str(report)
    assert all(parameter.requires_grad for parameter in empty.parameters())
    empty.head.weight.data[0, 0] = 5
    assert empty.words.weight[0, 0] == 5


def test_a_cast_is_reported_as_the_copy_it_is(file):
    empty = on_meta(Model)
    empty.inner.bias.requires_grad_(False)
    report = oc.torch.load_into(empty, file, dtype=torch.bfloat16)
    assert {one.name for one in report.copied} == {"words.weight", "inner.weight", "inner.bias", "scale"}
    assert report.copied[0].reason == "cast from float32 to bfloat16"
    assert report.mapped == 0
    assert empty.head.weight is empty.words.weight
    assert {name: (one.dtype, one.requires_grad) for name, one in empty.named_parameters()} == {
        name: (torch.bfloat16, name != "inner.bias") for name in ("words.weight", "inner.weight", "inner.bias")
    }


@pytest.mark.parametrize("dtype", ["bf16", "cuda", "nn", 16, ""])
def test_what_is_no_dtype_is_refused_and_nothing_is_changed(model, file, dtype):
    before = model.inner.weight
    with pytest.raises(TypeError, match=r"dtype must be a torch\.dtype or its name, such as torch\.bfloat16"):
        oc.torch.load_into(model, file, dtype=dtype)
    assert model.inner.weight is before


def test_what_does_not_match_raises_and_nothing_is_changed(model, file, tmp_path):
    before = [*model.parameters(), *model.buffers()]
    oc.save(tmp_path / "odd.safetensors", {"inner.weight": np.zeros((2, 2), np.float32), "more": np.zeros(3)})
    with pytest.raises(RuntimeError, match=r'for Model:\s+Missing.*"words.weight".*\s+Unexpected.*"more"'):
        oc.torch.load_into(model, tmp_path / "odd.safetensors")
    with pytest.raises(RuntimeError, match=r"size mismatch for inner\.weight"):
        oc.torch.load_into(model, tmp_path / "odd.safetensors", strict=False)
    assert all(one is now for one, now in zip(before, [*model.parameters(), *model.buffers()], strict=True))


def test_a_cast_can_be_made_once_for_all_processes(file, tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    for dtype in ("bfloat16", torch.bfloat16, "torch.float16"):
        empty = on_meta(Model)
        report = oc.torch.load_into(empty, file, dtype=dtype, cast="store")
        assert report.copied == ()
        assert report.path.startswith(str(tmp_path / "cache"))
        assert empty.inner.weight.dtype == getattr(torch, str(dtype).removeprefix("torch."))
        assert torch.equal(empty.inner.weight, oc.torch.load(file)["inner.weight"].to(empty.inner.weight.dtype))
    store = oc.Store(tmp_path / "cache")
    assert len(store.ls()) == 2
    assert oc.torch.load_into(Model(), file, dtype=torch.float32, cast="store").path == str(file)
    with pytest.raises(ValueError, match="cast must be"):
        oc.torch.load_into(Model(), file, cast="nowhere")
    assert store.prune(missing_source=True).removed == []
    file.unlink()
    assert len(store.prune(missing_source=True).removed) == 2


def test_a_model_in_shards_is_mapped_from_all_of_them(tmp_path):
    arrays = {"weight": np.arange(4, dtype=np.float32).reshape(2, 2), "bias": np.full(2, 5, np.float32)}
    weight_map = {name: f"{name}.safetensors" for name in arrays}
    for name, array in arrays.items():
        oc.save(tmp_path / weight_map[name], {name: array})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert oc.torch.load(tmp_path).keys() == {"weight", "bias"}  # the folder of the index
    module = on_meta(torch.nn.Linear, 2, 2)
    report = oc.torch.load_into(module, index, warm=True)
    assert (report.mapped, report.copied, report.missing) == (24, (), ())
    assert report.warming.wait().complete
    assert module(torch.ones(1, 2)).tolist() == [[6.0, 10.0]]


class Rotary(torch.nn.Module):
    """A module with two buffers that it does not save, as transformers' embeddings and rotary tables are."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.register_buffer("positions", torch.arange(8), persistent=False)
        self.register_buffer("frequencies", torch.arange(4) / 3, persistent=False)


def saved(path, **more):
    torch.manual_seed(2)
    oc.save(path, {name: tensor.detach() for name, tensor in torch.nn.Linear(8, 8).named_parameters("layer")} | more)
    return path


@pytest.mark.parametrize("name", ["positions", "frequencies"])
def test_buffers_that_would_stay_on_meta_are_an_error(tmp_path, name):
    """Buffers that the file does not have, or has with another dtype."""
    given = {"positions": torch.arange(8).int(), "frequencies": torch.arange(4) / 3}
    del given[name]
    path, module = saved(tmp_path / "model.safetensors", **given), on_meta(Rotary)
    lost = {"positions": "positions", "frequencies": "positions, frequencies"}[name]
    with pytest.raises(RuntimeError, match=rf"on the meta device are not in the file: {lost} .*strict"):
        oc.torch.load_into(module, path)
    assert module.layer.weight.is_meta
    assert module.frequencies.is_meta
    report = oc.torch.load_into(module, path, strict=False)
    assert ", ".join(report.on_meta) == lost
    assert f"still on the meta device: {lost}" in str(report)
    assert oc.torch.load_into(Rotary(), path).on_meta == ()


@pytest.mark.parametrize("strict", [True, False])
def test_buffers_that_are_not_saved_are_filled_where_the_file_has_them(strict, tmp_path):
    path = saved(tmp_path / "model.safetensors", positions=torch.arange(1, 9), frequencies=torch.linspace(0, 2, 4))
    module = on_meta(Rotary)
    report = oc.torch.load_into(module, path, strict=strict)
    assert report.on_meta == report.unexpected == ()
    assert module.positions.tolist() == list(range(1, 9))
    assert torch.equal(module.frequencies, torch.linspace(0, 2, 4))
    assert "positions" not in module.state_dict()
    own = Rotary()  # what a module has made itself is right, whatever an old file says
    assert oc.torch.load_into(own, path, strict=strict).unexpected == ()
    assert own.positions.tolist() == list(range(8))


def test_a_part_of_a_file_is_loaded_by_its_prefix(tmp_path):
    torch.manual_seed(4)
    inner, path = torch.nn.Linear(8, 8), tmp_path / "checkpoint.pt"
    torch.save({"model": inner.state_dict(), "step": torch.tensor(3)}, path)
    module = on_meta(torch.nn.Linear, 8, 8)
    with pytest.raises(RuntimeError, match=r'Missing.*: "weight", "bias"(.|\n)*pass prefix=.model\.. if'):
        oc.torch.load_into(module, path)
    report = oc.torch.load_into(module, path, prefix="model.")
    assert torch.equal(module.weight, inner.weight)
    assert report.unexpected == report.missing == report.on_meta == ()
    assert report.mapped == 8 * 8 * 4 + 8 * 4
    assert set(oc.torch.load_into(module, path, prefix="other.", strict=False).missing) == {"weight", "bias"}


def test_a_dict_of_modules_and_tensors_is_given_a_file(tmp_path):
    torch.manual_seed(5)
    model, ema, path = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), tmp_path / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "ema": {"net": ema.state_dict()}, "step": torch.arange(4)}, path)
    with torch.device("meta"):
        parts = {"model": torch.nn.Linear(8, 8), "ema": {"net": torch.nn.Linear(8, 8)}, "step": torch.empty(4).long()}
    given = parts["model"]
    report = oc.torch.load_into(parts, path)
    assert parts["model"] is given
    assert torch.equal(given.weight, model.weight)
    assert torch.equal(parts["ema"]["net"].bias, ema.bias)
    assert parts["step"].tolist() == [0, 1, 2, 3]
    assert (report.copied, report.on_meta) == ((), ())
    with pytest.raises(TypeError, match=r"'lr' must be a torch\.nn\.Module or dict .*, not float"):
        oc.torch.load_into({"model": given, "lr": 0.1}, path)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\) in state_dict: .*step"):
        oc.torch.load_into({"model": given}, path)


MADE = {
    "sparse": torch.Tensor.to_sparse,
    "sparse rows": torch.Tensor.to_sparse_csr,
    "mkldnn": torch.Tensor.to_mkldnn,
    "half": torch.Tensor.half,
    "nothing": lambda _: None,
}


@pytest.mark.filterwarnings("ignore:.*(beta|prototype)")
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_what_a_module_makes_of_a_weight_while_it_is_loaded_is_kept_and_reported(tmp_path, make):
    class Making(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.eye(30))

        def _load_from_state_dict(self, *given):
            super()._load_from_state_dict(*given)
            self.mask = make(self.mask)

    module, mask = Making(), torch.ones(30, 30)
    oc.save(tmp_path / "x.safetensors", {"mask": mask})
    report = oc.torch.load_into(module, tmp_path / "x.safetensors")
    if module.mask is None:
        assert (report.mapped, report.copied) == (0, ())
        return
    assert (module.mask.layout, module.mask.dtype) == (make(mask).layout, make(mask).dtype)
    assert torch.equal(module.mask.to_dense().float(), mask)
    assert [(one.name, one.reason) for one in report.copied] == [("mask", "computed by the module while it was loaded")]
