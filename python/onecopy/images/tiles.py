"""Tiles as they are handed in: arrays, files, functions; looked at without decoding, and decoded when needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

from onecopy.images import codecs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Tile: TypeAlias = "NDArray[Any] | str | os.PathLike[str] | Callable[[], NDArray[Any]]"
"""An array (numpy's, or whatever has a shape, a dtype and ``__array__``), an image file, or a function."""


class Tiles:
    """Tiles in their order; nothing is kept of what was decoded.

    Parameters
    ----------
    tiles
        Any number. Functions cannot be asked for a shape: theirs is that of the first one, which is called for it.

    Raises
    ------
    OSError, CodecError
        When asked: of a file that is not there, or is no image.
    """

    def __init__(self, tiles: Sequence[Tile]) -> None:
        self._tiles = list(tiles)
        self._looks: dict[int, tuple[tuple[int, ...], Any]] = {}
        self._of_functions: tuple[tuple[int, ...], Any] | None = None

    def __len__(self) -> int:
        return len(self._tiles)

    def name(self, number: int) -> str:
        """Return what a tile is called in messages."""
        tile = self._tiles[number]
        return f"tile {number} ({os.fsdecode(tile)})" if isinstance(tile, str | os.PathLike) else f"tile {number}"

    def look(self, number: int) -> tuple[tuple[int, ...], Any]:
        """Return (shape, numpy's dtype) of a tile; at the file's header, where it is one."""
        if number not in self._looks:
            self._looks[number] = self._look(self._tiles[number])
        return self._looks[number]

    def _look(self, tile: Any) -> tuple[tuple[int, ...], Any]:
        import numpy as np

        if isinstance(tile, str | os.PathLike):
            facts = codecs.look(tile)
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
        """Return whether `load` costs nothing, so that a tile may be asked for piece by piece."""
        import numpy as np

        return isinstance(self._tiles[number], np.ndarray)

    def load(self, number: int) -> NDArray[Any]:
        """Return a tile as an array, decoded if it is a file; ValueError where it is not what `look` said."""
        import numpy as np

        tile, (shape, dtype) = self._tiles[number], self.look(number)
        if isinstance(tile, str | os.PathLike):
            pixels = np.empty(shape, dtype)
            codecs.decode(tile, pixels, threads=1)
            return pixels
        array = np.asarray(tile() if callable(tile) else tile)
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(
                f"{self.name(number)} has shape {array.shape} and type {array.dtype}, but {shape} and {dtype} are "
                "expected: tiles that are functions must be alike"
            )
        return array
