"""The file of a dataset of images: which arrays it has, where they are, and its header.

Arrays: ``offsets`` and ``shapes`` (only if shapes differ), ``paths``, ``pixels``, and ``errors`` if images could not be
decoded. The header takes 4096 bytes and is written last, because the length of ``errors`` is known last. No checksums:
the pieces of the file are written in any order.
"""

from __future__ import annotations

import json
import os
import struct
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from onecopy.arrays.dtypes import of_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

HEAD = 4096
"""Bytes of the header; pixels begin at a multiple of it."""


class Layout:
    """Where the arrays of a dataset are in its file.

    Parameters
    ----------
    paths
        Paths of the images.
    shapes
        Shapes of the images, with one number of axes.
    dtype
        Element type of the pixels.
    """

    def __init__(self, paths: Sequence[str], shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any]) -> None:
        sizes = np.array([prod(shape) for shape in shapes], np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.small: dict[str, NDArray[Any]] = {}
        """The arrays that are known before an image is decoded."""
        shape: tuple[int, ...] = (len(shapes), *shapes[0])
        if len(set(shapes)) > 1:
            self.small = {"offsets": offsets.astype("<i8"), "shapes": np.array(shapes, "<i8")}
            shape = (int(offsets[-1]),)
        names = np.frombuffer(b"\0".join(os.fsencode(os.path.abspath(path)) for path in paths), np.uint8)  # noqa: PTH100
        begin = HEAD + sum(array.nbytes for array in self.small.values())
        self.small["paths"] = np.pad(names, (0, -(begin + len(names)) % HEAD))
        self._pixels = of_numpy(dtype), shape, int(offsets[-1]) * dtype.itemsize
        self._begin = begin + self.small["paths"].nbytes
        self._offsets = offsets * dtype.itemsize

    @property
    def size(self) -> int:
        """Size of the file in bytes, without ``errors``."""
        return self._begin + self._pixels[2]

    def place(self, number: int) -> tuple[int, int]:
        """Return the first byte of an image in the file, and the byte after its last one."""
        return self._begin + int(self._offsets[number]), self._begin + int(self._offsets[number + 1])

    def places(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the arrays of `small`, each with its first byte in the file."""
        begin = HEAD
        for array in self.small.values():
            yield begin, array
            begin += array.nbytes

    def header(self, errors: int) -> bytes:
        """Return the header of the file, with `errors` bytes of ``errors``."""
        arrays = [(name, of_numpy(array.dtype), array.shape, array.nbytes) for name, array in self.small.items()]
        arrays += [("pixels", *self._pixels)] + ([("errors", "U8", (errors,), errors)] if errors else [])
        own = json.dumps({"version": 1, "kind": "arrays", "schema": {}})
        entries: dict[str, Any] = {"__metadata__": {"format": "pt", "onecopy": own}}
        begin = 0
        for name, dtype, shape, nbytes in arrays:
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": (begin, begin + nbytes)}
            begin += nbytes
        return struct.pack("<Q", HEAD - 8) + json.dumps(entries).encode().ljust(HEAD - 8)
