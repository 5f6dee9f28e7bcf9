"""Datasets with torch: tensors, DataLoader workers of every start method, and the examples as they stand."""

import copy
import os
import pickle
import subprocess
import sys
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
from tests.support.datasets import Bag, Pictures, moved, stays

import onecopy as oc
from onecopy_monitor import assert_shared
from onecopy_records.shuffle import Shuffle

EXAMPLES = Path(__file__).parents[2] / "examples"


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
    plain = Pictures(60_000)
    subset = data.Subset(plain, list(range(0, 60_000, 2)))
    both = data.ConcatDataset([subset, Pictures(50_000)])
    before = [both[i] for i in (0, 5, 29_999, 30_000, 79_999)]
    oc.torch.share_dataset(both)
    assert {"datasets[0].dataset.samples", "datasets[1].boxes"} <= set(moved(both))
    order = Shuffle(len(both), seed=3)
    loader = data.DataLoader(
        both, batch_sampler=order.batches(64), num_workers=2, multiprocessing_context=method, persistent_workers=True
    )
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


def run_example(tmp_path: Path, *command: str | Path) -> str:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "ONECOPY_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_a_data_loader_runs(torch, tmp_path):
    lines = run_example(tmp_path, EXAMPLES / "dataloader_shared.py").splitlines()
    assert [line.split()[0] for line in lines if "workers hold" in line] == ["fork:", "spawn:", "forkserver:"]


def test_the_example_of_torchrun_builds_once_and_then_never_again(torch, tmp_path):
    command = ["-m", "torch.distributed.run", "--nproc-per-node=2", EXAMPLES / "torchrun_shared.py"]
    for builders in (1, 0):
        said = run_example(tmp_path, *command)
        assert said.count("builds") == builders
        assert "2 ranks and their 4 workers hold one copy" in said
