"""Datasets as people have them, for the tests of share_dataset."""

from typing import Any

import numpy as np

from onecopy.frameworks.torch import Attribute


class Pictures:
    """A dataset of the usual kind."""

    def __init__(self, n: int = 20_000) -> None:
        self.root = "images"
        self.samples = [(f"images/{i:08}.jpg", i % 10) for i in range(n)]
        self.imgs = self.samples
        self.targets = tuple(range(n))
        self.boxes = np.arange(n * 4 * 8, dtype=np.float32).reshape(n, 8, 4)
        self.classes = ["cat", "dog"]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Any:
        return self.samples[i], self.targets[i], self.boxes[i]


class Part:
    """A dataset of some items of another, as Subset is."""

    def __init__(self, dataset: Any, indices: list[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int) -> Any:
        return self.dataset[self.indices[i]]


class Bag:
    """Attributes, and nothing else."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def moved(dataset: Any) -> dict[str, Attribute]:
    return {attribute.name: attribute for attribute in dataset.onecopy_report.moved}


def stays(dataset: Any) -> dict[str, str]:
    return {a.name: a.done for a in dataset.onecopy_report.attributes if a.bytes_after is None}
