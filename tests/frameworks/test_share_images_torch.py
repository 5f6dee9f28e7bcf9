"""Shared datasets of images with torch: DataLoader workers of every start method, and ranks of torchrun."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.support.images import save_photos

import onecopy as oc
from onecopy.images import Images
from onecopy_monitor import assert_shared

pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.processes

COUNT = 24


class Labelled:
    """A map-style dataset of images with labels."""

    def __init__(self, images: Images) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        return self.images[number][::-1].copy(), number  # as after an augmentation: a new array


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_workers_of_a_data_loader_map_one_file(torch, tmp_path, method):
    images = oc.images.share(save_photos(tmp_path, [(300, 400)] * COUNT), store=tmp_path / "store")
    loader = torch.utils.data.DataLoader(
        Labelled(images), batch_size=4, num_workers=2, multiprocessing_context=method, persistent_workers=True
    )
    for _ in range(2):
        iterator = iter(loader)
        seen = 0
        for batch, numbers in iterator:
            seen += len(numbers)
            assert np.array_equal(batch.numpy(), images.array[numbers.numpy()][:, ::-1])
        assert seen == COUNT
        assert len(assert_shared(images, iterator, allowance="4 MiB" if method != "fork" else None).workers) == 2
    del iterator, loader


def test_private_images_are_a_dataset_without_a_copy_and_without_a_warning(torch, tmp_path):
    images = oc.images.share(save_photos(tmp_path, [(30, 40)] * COUNT), store=tmp_path / "store", private=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = torch.from_numpy(images[3])
        assert tensor.data_ptr() == images[3].ctypes.data
        loader = torch.utils.data.DataLoader(images, batch_size=6, num_workers=2)
        batches = list(loader)
    assert np.array_equal(torch.cat(batches).numpy(), images.array)


def test_share_dataset_leaves_shared_images_as_they_are(torch, tmp_path):
    dataset = Labelled(oc.images.share(save_photos(tmp_path, [(300, 400)] * COUNT), store=tmp_path / "store"))
    images = dataset.images
    assert oc.torch.share_dataset(dataset, 0).images is images


RANK = """
import multiprocessing, os, pathlib, sys
import numpy as np, torch, torch.distributed as dist
import onecopy as oc
from onecopy_monitor import assert_shared
from torch.utils.data import DataLoader, DistributedSampler

def seen(image):
    with open(sys.argv[1] + "/log", "a") as log:
        log.write("decoded\\n")
    return image

if __name__ == "__main__":
    images = oc.images.share(sys.argv[1] + "/*.jpg", transform=seen, store=sys.argv[1] + "/store", private=True)
    dist.init_process_group("gloo")
    batches = iter(DataLoader(images, 4, sampler=DistributedSampler(images), num_workers=2, persistent_workers=True))
    total = torch.stack([batch.long().sum() for batch in batches]).sum()
    dist.all_reduce(total)
    assert total == int(images.array.astype(np.int64).sum())
    pids = [None] * 2
    dist.all_gather_object(pids, [os.getpid(), *(child.pid for child in multiprocessing.active_children())])
    if dist.get_rank() == 0:
        found = assert_shared(images, sum(pids, []))
        print(len(found.workers), "processes")
    dist.barrier()
    dist.destroy_process_group()
"""


def test_two_ranks_with_two_workers_each_decode_once_and_hold_one_copy(torch, tmp_path):
    save_photos(tmp_path, [(300, 400)] * COUNT)
    script = tmp_path / "train.py"
    script.write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", script, tmp_path]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
        assert done.returncode == 0, done.stderr
        assert "6 processes" in done.stdout
    decoded = (Path(tmp_path) / "log").read_text().split()
    assert len(decoded) == COUNT + 1  # the first one twice, for its shape
