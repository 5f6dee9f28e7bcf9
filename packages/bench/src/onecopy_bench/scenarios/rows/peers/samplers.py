"""Shuffled indices: ready when the first is there."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onecopy_bench.files.configurations import module
from onecopy_bench.scenarios.rows.data import Source
from onecopy_bench.scenarios.rows.peers import Peer


class Indices:
    """An iterator whose first value is known."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = iter(values)
        self._first: Any = [next(self._values)]

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        yield from self._first
        yield from self._values


def begun(values: Callable[[int], Iterable[Any]]) -> Callable[[Source, Path], Indices]:
    """Return what makes ready: the number of indices is the count of the source."""
    return lambda source, _: Indices(values(source.count))


def torch_sampler(count: int) -> Iterable[int]:
    """Return torch's sampler, as a DataLoader makes one for shuffle=True."""
    return importlib.import_module("torch.utils.data").RandomSampler(range(count))  # type: ignore[no-any-return]


def shuffled_list(count: int) -> Iterable[int]:
    """Return a shuffled list."""
    indices = list(range(count))
    random.Random(0).shuffle(indices)  # noqa: S311 - an order, not a secret
    return indices


def our_shuffle(count: int) -> Iterable[int]:
    """Return onecopy's."""
    return module("onecopy.shuffle").Shuffle(count, seed=0)  # type: ignore[no-any-return]


def names(rows: Indices) -> dict[str, Any]:
    """Return what statements call by name."""
    return {"rows": rows, "following": iter(rows)}


PEERS = (
    Peer("onecopy Shuffle", "Shuffle(n)", begun(our_shuffle), ("onecopy.shuffle",), builds=0.0, names=names),
    Peer("torch RandomSampler", "RandomSampler(n)", begun(torch_sampler), ("torch.utils.data",), builds=6, names=names),
    Peer(
        "numpy permutation",
        "default_rng(0).permutation(n)",
        begun(lambda count: np.random.default_rng(0).permutation(count)),
        builds=1.0,
        names=names,
    ),
    Peer("random.shuffle", "a shuffled list", begun(shuffled_list), builds=5.0, names=names),
)
"""`builds` is a multiple of 8 bytes per index."""
