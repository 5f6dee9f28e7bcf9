"""The child of a sample of `bench mosaic`: it makes a canvas of tiles, larger than what it may hold of it.

Tiles are seeded replicas, each other than its neighbours: the same bytes shifted by one line and a number. To make one
costs every way the same. The floor writes the same bytes, a line of tiles after the other, through one buffer.
"""

from __future__ import annotations

import importlib
import os
import resource
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.images.canvases import checksum, sync


@dataclass(frozen=True, slots=True)
class Errand:
    """What a worker has to do: `rows` x `columns` tiles of `size` x `size` pixels of 16 bits, `cap` bytes in memory."""

    way: str
    folder: str
    rows: int
    columns: int
    size: int
    cap: int

    @property
    def shape(self) -> tuple[int, int]:
        """Of the canvas."""
        return self.rows * self.size, self.columns * self.size

    @property
    def path(self) -> str:
        """Of the canvas, for ways that have one."""
        return os.path.join(self.folder, "canvas")  # noqa: PTH118 - text

    def seed(self) -> NDArray[np.uint16]:
        """Return what every tile is a replica of."""
        lines = np.random.default_rng(1).integers(0, 1 << 16, (self.size + self.rows * self.columns, 1), np.uint16)
        return lines + np.arange(self.size, dtype=np.uint16)

    def tile(self, seed: NDArray[np.uint16], number: int) -> NDArray[np.uint16]:
        """Return a tile."""
        return seed[number : number + self.size] ^ np.uint16(number)

    def lines(self, seed: NDArray[np.uint16]) -> Iterator[NDArray[np.uint16]]:
        """Yield the lines of tiles, from top to bottom, each in the same memory."""
        line = np.empty((self.size, self.shape[1]), np.uint16)
        for row in range(self.rows):
            for column in range(self.columns):
                at = column * self.size
                line[:, at : at + self.size] = self.tile(seed, row * self.columns + column)
            yield line


def _written(errand: Errand, seed: NDArray[np.uint16]) -> Any:
    """Write a line of tiles after the other, and flush: the floor."""
    with Path(errand.path).open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 2 * errand.shape[0] * errand.shape[1])
        for line in errand.lines(seed):
            left = line.data.cast("B")
            while left:
                left = left[file.write(left) :]
        os.fdatasync(file.fileno())
    return np.memmap(errand.path, np.uint16, "r", shape=errand.shape)


def _pasted(errand: Errand, seed: NDArray[np.uint16], canvas: Any) -> Any:
    for number in range(errand.rows * errand.columns):
        row, column = (errand.size * at for at in divmod(number, errand.columns))
        canvas[row : row + errand.size, column : column + errand.size] = errand.tile(seed, number)
    return canvas


def _memmap(errand: Errand, seed: NDArray[np.uint16]) -> Any:
    canvas = _pasted(errand, seed, np.memmap(errand.path, np.uint16, "w+", shape=errand.shape))
    canvas.flush()
    return canvas


def _zarr(errand: Errand, seed: NDArray[np.uint16]) -> Any:
    import zarr

    chunks = errand.size, errand.size
    canvas = zarr.create_array(errand.path, shape=errand.shape, chunks=chunks, dtype="u2", compressors=None)
    _pasted(errand, seed, canvas)
    sync(errand.path)
    return canvas


def _heap(errand: Errand, seed: NDArray[np.uint16]) -> Any:
    return _pasted(errand, seed, np.zeros(errand.shape, np.uint16))


def _ours(errand: Errand, seed: NDArray[np.uint16], cap: int | None) -> Any:
    import onecopy as oc

    count = errand.rows * errand.columns
    places = np.array([divmod(number, errand.columns) for number in range(count)]) * errand.size
    tiles = [(lambda number=number: errand.tile(seed, number)) for number in range(count)]
    whole = oc.images.mosaic(tiles, places, max_resident=cap, folder=errand.folder)
    assert whole.scratch is not None
    whole.scratch.flush()
    return whole


@dataclass(frozen=True, slots=True)
class Way:
    """One way: what it needs, what it does, and how its canvas is read."""

    name: str
    detail: str
    needs: tuple[str, ...]
    run: Callable[[Errand, NDArray[np.uint16]], Any]
    look: Callable[[Any], Any] = lambda canvas: canvas
    ours: bool = False
    private: bool = False


WAYS: tuple[Way, ...] = (
    Way("write, fdatasync", "the same bytes, a line of tiles at once: the floor", ("numpy",), _written),
    Way("numpy", "numpy.zeros: the heap, and nothing on the disk", ("numpy",), _heap, private=True),
    Way("numpy.memmap", "tile by tile, flush", ("numpy",), _memmap),
    Way("zarr", "a chunk for each tile, not compressed, fdatasync of each", ("numpy", "zarr"), _zarr),
    Way(
        "onecopy", "oc.images.mosaic, flush", ("numpy", "onecopy.images"),
        lambda errand, seed: _ours(errand, seed, None), lambda whole: whole.array, ours=True,
    ),
    Way(
        "onecopy, capped", "the same with max_resident", ("numpy", "onecopy.images"),
        lambda errand, seed: _ours(errand, seed, errand.cap), lambda whole: whole.array, ours=True,
    ),
)  # fmt: skip
"""In the order of the tables."""

NAMES = tuple(way.name for way in WAYS)


def expected(errand: Errand) -> int:
    """Return the checksum of the canvas, from the tiles alone."""
    found = 0
    for line in errand.lines(errand.seed()):
        found = zlib.crc32(line.data, found)
    return found


def play(errand: Errand) -> Steps:
    """Make the canvas, and bring it down to the disk."""
    way = named(WAYS, errand.way)
    for module in way.needs:
        importlib.import_module(module)
    seed = errand.seed()
    yield "ready", {}
    before, start = resource.getrusage(resource.RUSAGE_SELF), perf_counter_ns()
    canvas = way.run(errand, seed)
    end, after = perf_counter_ns(), resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    yield "started", {"total_ns": end - start, "cpu_ns": round(cpu * 1e9)}
    yield "checked", {"checksum": checksum(way.look(canvas), errand.shape[0])}
