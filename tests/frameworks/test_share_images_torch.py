"""Shared datasets of images with torch: DataLoader workers of every start method, and ranks of torchrun."""

import warnings

import numpy as np
import pytest
from tests.support.images import save_photos

import onecopy as oc
from onecopy.images import Images
from onecopy_monitor import assert_shared

pytest.importorskip("PIL.Image")


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
