"""Datasets with torch: tensors, rows, images and DataLoader workers of every start method, and the examples."""

import copy
import os
import pickle
import sys
import warnings
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import finished
from tests.support.datasets import Bag, Pictures, moved, stays
from tests.support.images import save_photos
from tests.support.places import ROOT

import onecopy as oc
from onecopy_monitor import assert_shared
from onecopy_records.shuffle import Shuffle

MIB, COUNT = 1 << 20, 24
TENSORS = ["float32", "float64", "bfloat16", "float16", "int64", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_are_the_same_afterwards_also_elsewhere(torch, kind):
    before = torch.arange(12).reshape(3, 4).to(getattr(torch, kind))
    for value in (before, before.T, before[:, 1]):
        ours = oc.torch.share_dataset(Bag(tensor=value.clone(memory_format=torch.preserve_format)), 0).tensor
        text = bytes(ForkingPickler.dumps(ours))
        for after in (ours, pickle.loads(text), copy.deepcopy(ours)):
            assert isinstance(after, torch.Tensor)
            assert (after.dtype, after.shape) == (value.dtype, value.shape)
            assert torch.equal(after, value)
        assert type(ours[0]) is type(ours + ours) is torch.Tensor
        assert len(text) < 500


def test_what_was_written_to_a_tensor_is_in_every_copy_of_it(torch, tmp_path):
    tensor = oc.torch.share_dataset(Bag(tensor=torch.arange(500_000))).tensor
    expected = (tensor.clone() + 1).tolist()
    tensor += 1
    torch.save(tensor, tmp_path / "tensor.pt")
    saved = torch.load(tmp_path / "tensor.pt")
    assert type(saved) is torch.Tensor
    for again in (saved, pickle.loads(pickle.dumps(tensor)), pickle.loads(ForkingPickler.dumps(tensor))):
        assert again.tolist() == expected
    resource_sharer.stop()  # the thread that torch sends the memory of tensors with


def test_tensors_that_are_more_than_data_stay(torch):
    dataset = oc.torch.share_dataset(
        Bag(
            parameter=torch.nn.Parameter(torch.zeros(500_000)),
            tracked=torch.zeros(500_000, requires_grad=True),
            sparse=torch.eye(1000).to_sparse(),
        ),
        0,
    )
    assert set(stays(dataset)) == {"parameter", "tracked", "sparse"}
    assert "share tensor.detach()" in stays(dataset)["parameter"]
    assert "use the result of to_dense()" in stays(dataset)["sparse"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_data_loader_shares_and_gives_what_it_gave_before(torch, method):
    data = torch.utils.data
    subset = data.Subset(Pictures(60_000), list(range(0, 60_000, 2)))
    both = data.ConcatDataset([subset, Pictures(50_000)])
    before = [both[i] for i in (0, 5, 29_999, 30_000, 79_999)]
    oc.torch.share_dataset(both)
    assert {"datasets[0].dataset.samples", "datasets[1].boxes"} <= set(moved(both))
    order = Shuffle(len(both), seed=3)
    loader = loader_of(torch, both, method, batch_sampler=order.batches(64))
    iterator = iter(loader)
    (names, numbers), targets, boxes = next(iterator)
    next(iterator)  # of the other worker
    for i in range(64):
        sample, target, box = both[order[i]]
        assert (names[i], int(numbers[i]), int(targets[i])) == (*sample, target)
        assert np.array_equal(boxes[i].numpy(), box)
    first = assert_shared(both, iterator)
    assert len(first.workers) == 2
    for _ in iterator:
        pass
    assert_shared(both, iterator, since=first)
    for i, (sample, target, box) in zip((0, 5, 29_999, 30_000, 79_999), before, strict=True):
        assert both[i][:2] == (sample, target)
        assert np.array_equal(both[i][2], box)
    del iterator, loader


class Labelled:
    """A map-style dataset of images with labels."""

    def __init__(self, images: oc.images.Images) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        return self.images[number][::-1].copy(), number  # as after an augmentation: a new array


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_workers_of_a_data_loader_map_one_file_of_images(torch, tmp_path, method):
    pytest.importorskip("PIL.Image")
    images = oc.images.share(save_photos(tmp_path, [(300, 400)] * COUNT), store=tmp_path / "store")
    dataset = Labelled(images)
    assert oc.torch.share_dataset(dataset, 0).images is images
    loader = loader_of(torch, dataset, method, batch_size=4)
    for _ in range(2):
        iterator, seen = iter(loader), list[int]()
        for batch, numbers in iterator:
            seen += numbers.tolist()
            assert np.array_equal(batch.numpy(), images.array[numbers.numpy()][:, ::-1])
        assert seen == list(range(COUNT))
        assert len(assert_shared(images, iterator, allowance="4 MiB" if method != "fork" else None).workers) == 2
    del iterator, loader


def test_private_images_are_a_dataset_without_a_copy_and_without_a_warning(torch, tmp_path):
    pytest.importorskip("PIL.Image")
    images = oc.images.share(save_photos(tmp_path, [(30, 40)] * COUNT), store=tmp_path / "store", private=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = torch.from_numpy(images[3])
        assert tensor.data_ptr() == images[3].ctypes.data
        batches = list(torch.utils.data.DataLoader(images, batch_size=6, num_workers=2))
    assert np.array_equal(torch.cat(batches).numpy(), images.array)


def loader_of(torch: Any, dataset: Any, method: str, **options: Any) -> Any:
    workers = {"num_workers": 2, "multiprocessing_context": method, "persistent_workers": True}
    return torch.utils.data.DataLoader(dataset, **workers, **options)


def test_torch_gets_tensors_on_the_same_memory(torch):
    table = oc.share([{"n": i, "b": [i / 2] * i, "s": "x"} for i in range(5)])
    taken = table.take(torch.tensor([4, 1]), out="torch")
    assert taken["n"].tolist() == [4, 1]
    assert taken["b"].values.dtype == torch.float64
    assert taken["b"].offsets.tolist() == [0, 4, 5]
    assert taken["s"] == ["x", "x"]


def test_a_module_is_looked_at_weight_by_weight(torch, tmp_path):
    ones = np.ones((1024, 1024), np.float32)
    oc.save(tmp_path / "m.safetensors", {"0.weight": ones, "0.bias": ones[0]})
    module = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024))
    oc.torch.load_into(module, tmp_path / "m.safetensors", strict=False)
    float(module[0].weight.detach().sum())  # in memory
    findings = {one.name: one for one in oc.explain(module).findings}
    assert (findings["0.weight"].kind, findings["0.weight"].private) == ("shared", 0)
    assert findings["0.weight"].path == str(tmp_path / "m.safetensors")
    assert (findings["1.weight"].kind, findings["1.weight"].private) == ("heap", 4 * MIB)
    assert "oc.torch.load_into" in findings["1.weight"].advice
    module[0].weight.data[512] += 1
    written = {one.name: one for one in oc.explain(module).findings}["0.weight"]
    assert written.kind == "written"
    assert 4096 <= written.private <= 3 * 4096
    assert "written to in place" in str(oc.explain(module))
    assert [str(path) for path in assert_shared(module, [os.getpid()]).paths] == [str(tmp_path / "m.safetensors")]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_takes_it_as_sampler_and_as_batch_sampler(torch, workers):
    data = torch.utils.data
    rows, order = list(range(100, 200)), Shuffle(100, seed=4)
    one = data.DataLoader(rows, sampler=order, batch_size=7, num_workers=workers)
    other = data.DataLoader(rows, batch_sampler=order.batches(7), num_workers=workers)
    assert len(one) == len(other) == 15
    for epoch in range(2):
        order.set_epoch(epoch)
        expected = [100 + number for number in Shuffle(100, 4, epoch)]
        for loader in (one, other):
            assert [number for batch in loader for number in batch.tolist()] == expected


def run_example(tmp_path: Path, *command: str | Path) -> str:
    environment = {"TMPDIR": str(tmp_path), "ONECOPY_CACHE": str(tmp_path / "cache"), "PIPELINE_FOLDER": str(tmp_path)}
    environment["DAGSTER_DISABLE_TELEMETRY"] = "1"
    return finished([sys.executable, *command], env=os.environ | environment)


def test_the_example_of_a_data_loader_runs(torch, tmp_path):
    lines = run_example(tmp_path, ROOT / "examples/dataloader_shared.py").splitlines()
    assert [line.split()[0] for line in lines if "workers hold" in line] == ["fork:", "spawn:", "forkserver:"]


def test_the_example_of_torchrun_builds_once_and_then_never_again(torch, tmp_path):
    command = ["-m", "torch.distributed.run", "--nproc-per-node=2", ROOT / "examples/torchrun_shared.py"]
    for builders in (1, 0):
        said = run_example(tmp_path, *command)
        assert said.count("builds") == builders
        assert "2 ranks and their 4 workers hold one copy" in said


@pytest.mark.slow
def test_the_steps_of_a_pipeline_hold_one_copy(tmp_path):
    """The project in examples/io_manager, run by Dagster."""
    pytest.importorskip("dagster", reason="dagster is not installed")
    done = run_example(tmp_path, ROOT / "examples/io_manager/pipeline.py")
    assert done == "4 steps hold 64 MB of a table of 64 MB\n"
