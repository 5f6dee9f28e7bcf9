"""Weights on a device: those of the file, tied where they were."""

import numpy as np
import pytest

import onecopy as oc
from onecopy.files import page_cache
from onecopy.frameworks.torch import _load

torch = pytest.importorskip("torch", reason="torch is not installed")

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
if torch.cuda.is_available():
    torch.zeros(1, device="cuda")  # what CUDA keeps open is there before the first test


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    rng = np.random.default_rng(1)
    arrays = {"big": rng.integers(0, 255, 70 << 20, np.uint8), "weight": rng.random((4, 5), np.float32)}
    oc.save(path, arrays | {"bias": np.arange(5.0), "none": np.zeros((0, 3), np.float32)})
    return path


def test_a_device_without_memory_is_given_the_shapes(path):
    """torch's meta device takes no bytes, and is a device that is not the host's."""
    state = oc.torch.load(path, device="meta")
    assert list(state) == list(oc.torch.load(path))
    assert {tensor.device.type for tensor in state.values()} == {"meta"}
    assert (state["weight"].shape, state["weight"].dtype) == ((4, 5), torch.float32)


def test_the_host_itself_is_no_device_to_send_to(path):
    module = torch.nn.Linear(5, 4)
    oc.save(path, {"weight": np.ones((4, 5), np.float32), "bias": np.ones(4, np.float32)})
    report = oc.torch.load_into(module, path, device=torch.device("cpu"))
    assert report.sent == 0
    assert report.mapped == 96


@pytest.mark.parametrize("memory", [1 << 40, 32 << 20])
def test_weights_that_are_larger_than_memory_reach_a_device_through_a_window(path, monkeypatch, memory):
    """The host stands for a device, which not every machine has."""
    monkeypatch.setattr(_load, "is_cpu", lambda _: False)
    monkeypatch.setattr(page_cache, "available_memory", lambda: memory)
    oc.evict(path)
    with oc.open(path) as file:
        tensors, job = _load.tensors_in(file, list(file), device="cpu")
        if job is not None:
            job.wait()
        assert (job is None) is (file.residency().cached < 16 << 20) is (memory < file.nbytes)
        assert np.shares_memory(tensors["big"].numpy(), file["big"]) is (memory > file.nbytes)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(tensor.numpy(), file[name], strict=True)


@needs_cuda
@pytest.mark.parametrize("names", [None, ["bias", "weight"]])
def test_a_real_device_has_what_the_file_has(path, names):
    state = oc.torch.load(path, names=names, device="cuda")
    assert all(tensor.is_cuda for tensor in state.values())
    assert_equal(state, oc.torch.load(path, names=names))


def assert_equal(state, expected):
    assert {name: torch.equal(tensor.cpu(), expected[name]) for name, tensor in state.items()} == dict.fromkeys(
        expected, True
    )


@needs_cuda
@pytest.mark.parametrize("is_cached", [True, False])
def test_safetensors_on_a_real_device(path, is_cached):
    from onecopy.safetensors import safe_open
    from onecopy.safetensors.torch import load_file

    expected = {name: tensor.clone() for name, tensor in load_file(path).items()}
    (oc.warm if is_cached else oc.evict)(path)
    with safe_open(path, "pt", "cuda") as file:
        one_by_one = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        twice = [file.get_tensors() for _ in range(2)]
        part = file.get_slice("weight")[1:3]
    assert torch.equal(part.cpu(), expected["weight"][1:3])
    for state in (one_by_one, *twice, load_file(path, "cuda")):
        assert_equal(state, expected)


@needs_cuda
def test_a_module_on_a_real_device(tmp_path):
    path = tmp_path / "linear.safetensors"
    oc.save(path, {"weight": np.ones((4, 5), np.float32), "bias": np.arange(4, dtype=np.float32)})
    with torch.device("meta"):
        module = torch.nn.Linear(5, 4)
    report = oc.torch.load_into(module, path, device="cuda:0", dtype=torch.bfloat16)
    assert (report.mapped, report.sent) == (0, 96)
    assert [one.name for one in report.copied] == ["weight", "bias"]
    assert module(torch.ones(5, device="cuda", dtype=torch.bfloat16)).tolist() == [5, 6, 7, 8]
