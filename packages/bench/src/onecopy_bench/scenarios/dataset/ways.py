"""Ways to give the images of a dataset to the workers of several ranks; one entry each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
Pictures = Sequence[Picture]


@dataclass(frozen=True, slots=True)
class Work:
    """What a sample is about.

    Attributes
    ----------
    images
        Folder of the image files.
    folder
        For whatever a way writes.
    """

    images: str
    folder: str

    def paths(self) -> list[str]:
        """Return the image files in their order."""
        return sorted(entry.path for entry in os.scandir(self.images))


@dataclass(frozen=True, slots=True)
class Way:
    """One way.

    Attributes
    ----------
    name, detail
        The row's name, and what it does in a few more words.
    needs
        Modules that must be installed; imported before the clock starts.
    open
        Called in each rank, before its workers are forked; returns a sequence of arrays.
    ours
        Whether it is onecopy's.
    private
        Private memory that a rank needs, as a share of all decoded images.
    """

    name: str
    detail: str
    needs: tuple[str, ...]
    open: Callable[[Work], Any]
    ours: bool = False
    private: float = 0.0


def decoded(path: str) -> Picture:
    """Decode an image with Pillow."""
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


class Decoded:
    """Images that are decoded whenever one is taken."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> Picture:
        return decoded(self._paths[number])


class Files:
    """Images in a file of numpy each, which is read whenever one is taken; the first that needs a file writes it."""

    def __init__(self, paths: list[str], folder: Path) -> None:
        self._files = [folder / f"{Path(path).stem}.npy" for path in paths]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self._write, paths, self._files))

    @staticmethod
    def _write(path: str, file: Path) -> None:
        if not file.exists():
            beside = file.with_suffix(f".{os.getpid()}")
            with beside.open("wb") as out:
                np.save(out, decoded(path))
            beside.replace(file)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> Picture:
        array: Picture = np.load(self._files[number])
        return array


def _every_time(work: Work) -> Decoded:
    return Decoded(work.paths())


def _in_memory(work: Work) -> list[Picture]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(decoded, work.paths()))


def _in_files(work: Work) -> Files:
    return Files(work.paths(), Path(work.folder))


def _shared(work: Work) -> Any:
    import onecopy as oc

    return oc.images.share(work.paths(), store=Path(work.folder, "store"))


_PILLOW = ("numpy", "PIL.Image")

WAYS: tuple[Way, ...] = (
    Way("Pillow", "each image is decoded in every epoch", _PILLOW, _every_time),
    Way("list of arrays", "decoded by each rank into its memory: Ultralytics' cache='ram'", _PILLOW, _in_memory,
        private=1.3),
    Way(".npy files", "decoded once into a file each, then numpy.load: Ultralytics' cache='disk'", _PILLOW, _in_files),
    Way("onecopy", "oc.images.share", (*_PILLOW, "onecopy.images"), _shared, ours=True),
)  # fmt: skip
"""In the order of the tables."""

NAMES = tuple(way.name for way in WAYS)
