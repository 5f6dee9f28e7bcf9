"""Weights to a device: what is being sent stays as it is until it has arrived; exact, tied where they were."""

import numpy as np
import pytest

import onecopy as oc

torch = pytest.importorskip("torch", reason="torch is not installed")

from onecopy.integrations.torch._upload import Uploading, send_all  # noqa: E402 - after the question for torch

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class LateLane:
    """A device that copies at `synchronize`, as late as a real one may: a source that changes before is noticed."""

    def __init__(self) -> None:
        self.under_way = []
        self.staged = []
        self.longest = 0

    def staging(self, nbytes):
        self.staged.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)

    def send(self, target, source):
        self.under_way.append((target, source))
        self.longest = max(self.longest, len(self.under_way))

    def mark(self):
        return LateMark(self, len(self.under_way))


class LateMark:
    def __init__(self, lane, sent) -> None:
        self.waiting = lane.under_way[:sent]
        self.lane = lane

    def synchronize(self):
        for pair in self.waiting:
            if any(pair is one for one in self.lane.under_way):
                pair[0].copy_(pair[1])
        self.lane.under_way = [pair for pair in self.lane.under_way if not any(pair is one for one in self.waiting)]


@pytest.mark.parametrize("sizes", [[], [1], [64], [63, 1], [1000], [1, 2, 300, 5, 64, 64, 7], [10] * 50])
def test_buffers_are_used_again_only_when_they_have_arrived(sizes):
    generator = torch.Generator().manual_seed(1)
    sources = [torch.randint(0, 256, (length,), dtype=torch.uint8, generator=generator) for length in sizes]
    targets = [torch.zeros_like(source) for source in sources]
    lane = LateLane()
    send_all(lane, zip(sources, targets, strict=True), 64)
    assert lane.staged == [64, 64]
    assert not lane.under_way
    for source, target in zip(sources, targets, strict=True):
        assert torch.equal(source, target)


def test_one_buffer_is_filled_while_the_other_is_sent():
    lane = LateLane()
    source, target = torch.arange(256, dtype=torch.uint8), torch.zeros(256, dtype=torch.uint8)
    send_all(lane, [(source, target)], 64)
    assert lane.longest == 2
    assert torch.equal(source, target)


def test_nothing_is_pinned_beyond_what_is_sent():
    uploading, lane = Uploading("cpu"), LateLane()
    target = uploading.place(torch.arange(100, dtype=torch.uint8))
    report = uploading.run(lane)
    assert (report.bytes, report.pinned, lane.staged) == (100, 200, [100, 100])
    assert torch.equal(target, torch.arange(100, dtype=torch.uint8))
    assert "two pinned buffers" in str(report)
    assert Uploading("cpu").run(LateLane()).bytes == 0


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    rng = np.random.default_rng(1)
    oc.save(
        path,
        {
            "big": rng.integers(0, 255, 70 << 20, np.uint8),
            "weight": rng.standard_normal((4, 5)).astype(np.float32),
            "bias": np.arange(5.0),
            "none": np.zeros((0, 3), np.float32),
        },
    )
    return path


def test_a_device_without_pinned_memory_is_given_the_shapes(path):
    """torch's meta device takes no bytes, and is a device that is not the host's."""
    state = oc.torch.load(path, device="meta")
    assert list(state) == list(oc.torch.load(path))
    assert {tensor.device.type for tensor in state.values()} == {"meta"}
    assert (state["weight"].shape, state["weight"].dtype) == ((4, 5), torch.float32)


def test_the_host_itself_is_no_device_to_send_to(path):
    module = torch.nn.Linear(5, 4)
    oc.save(path, {"weight": np.ones((4, 5), np.float32), "bias": np.ones(4, np.float32)})
    report = oc.torch.load_into(module, path, device=torch.device("cpu"))
    assert report.uploaded is None
    assert report.mapped == 96


@needs_cuda
@pytest.mark.parametrize("names", [None, ["bias", "weight"]])
def test_a_real_device_has_what_the_file_has(path, names):
    state = oc.torch.load(path, names=names, device="cuda")
    for name, tensor in oc.torch.load(path, names=names).items():
        assert state[name].is_cuda
        assert torch.equal(state[name].cpu(), tensor)


@needs_cuda
def test_a_module_on_a_real_device(tmp_path):
    path = tmp_path / "linear.safetensors"
    oc.save(path, {"weight": np.ones((4, 5), np.float32), "bias": np.arange(4, dtype=np.float32)})
    with torch.device("meta"):
        module = torch.nn.Linear(5, 4)
    report = oc.torch.load_into(module, path, device="cuda:0", dtype=torch.bfloat16)
    assert (report.mapped, report.uploaded.bytes, report.uploaded.device) == (0, 96, "cuda:0")
    assert [one.name for one in report.copied] == ["weight", "bias"]
    assert module(torch.ones(5, device="cuda", dtype=torch.bfloat16)).tolist() == [5, 6, 7, 8]
