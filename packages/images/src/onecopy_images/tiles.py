"""`Tiles`: arrays, image files and functions that are used as tiles. Shapes are read without decoding files."""

from __future__ import annotations

import mmap
import os
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from onecopy.files.page_cache import expect_memory
from onecopy_images import codecs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Tile: TypeAlias = "NDArray[Any] | str | os.PathLike[str] | Callable[[], NDArray[Any]]"
"""An array (a NumPy array, or an object with shape, dtype and ``__array__``), the path of an image, or a function."""

_LARGE = 1 << 20
"""Minimum size in bytes of tiles for which the available memory is checked before decoding."""


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array whose memory returns to the kernel when freed; each thread's heap would keep up to 32 MiB."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.ndarray(shape, dtype, mmap.mmap(-1, prod(shape) * dtype.itemsize, flags=flags))


class Tiles:
    """A sequence of tiles. Decoded pixels are not kept.

    Parameters
    ----------
    tiles
        Arrays, paths and functions. The first function is called to determine the shape and dtype of all functions.

    Raises
    ------
    OSError, CodecError
        Raised by methods, not by the constructor: a file does not exist or is not an image.
    """

    def __init__(self, tiles: Sequence[Tile]) -> None:
        self._tiles = list(tiles)
        self._facts: dict[int, tuple[tuple[int, ...], Any]] = {}
        self._of_functions: tuple[tuple[int, ...], Any] | None = None

    def __len__(self) -> int:
        return len(self._tiles)

    def name(self, number: int) -> str:
        """Return a tile's name for messages."""
        tile = self._tiles[number]
        return f"tile {number} ({os.fsdecode(tile)})" if isinstance(tile, str | os.PathLike) else f"tile {number}"

    def shape_and_dtype(self, number: int) -> tuple[tuple[int, ...], Any]:
        """Return a tile's (shape, NumPy dtype). For a file, only the header is read."""
        if number not in self._facts:
            self._facts[number] = self._facts_of(self._tiles[number])
        return self._facts[number]

    def _facts_of(self, tile: Any) -> tuple[tuple[int, ...], Any]:
        if isinstance(tile, str | os.PathLike):
            facts = codecs.read_facts(tile)
            return facts.shape, np.dtype(facts.dtype)
        if hasattr(tile, "shape") and hasattr(tile, "dtype"):
            return tuple(tile.shape), np.dtype(tile.dtype)
        if not callable(tile):
            raise TypeError(f"a tile must be an array, a path or a function, not {tile!r}")
        if self._of_functions is None:
            first = np.asarray(tile())
            self._of_functions = first.shape, first.dtype
        return self._of_functions

    def is_in_memory(self, number: int) -> bool:
        """Return whether a tile is a NumPy array, so that calling `load` repeatedly is cheap."""
        return isinstance(self._tiles[number], np.ndarray)

    def loaded_bytes(self, number: int) -> int:
        """Return how many bytes `load` needs (half of them for a decoder's buffers), or 0 for an array."""
        shape, dtype = self.shape_and_dtype(number)
        return 0 if self.is_in_memory(number) else 2 * prod(shape) * int(dtype.itemsize)

    def load(self, number: int) -> NDArray[Any]:
        """Return a tile as an array, decoding files. Raise ValueError if it does not match `shape_and_dtype`."""
        tile, (shape, dtype) = self._tiles[number], self.shape_and_dtype(number)
        if isinstance(tile, str | os.PathLike):
            if (needed := self.loaded_bytes(number)) >= _LARGE:
                expect_memory(needed, "decode", os.fsdecode(tile), instead="cut the image into smaller tiles")
            pixels = _empty(shape, dtype) if needed >= _LARGE else np.empty(shape, dtype)
            codecs.decode(tile, pixels, threads=1)
            return pixels
        array = np.asarray(tile() if callable(tile) else tile)
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(
                f"{self.name(number)} must have shape {shape} and dtype {dtype}, like that of the first function, not "
                f"{array.shape} and {array.dtype}"
            )
        return array
