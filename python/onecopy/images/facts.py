"""The facts of an image header, and the errors of images that cannot be read."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from onecopy.errors import FormatError

__all__ = ["CodecError", "DamagedError", "Facts", "InPlace", "NoLevelError", "no_level"]


PALETTE = "palette indices"
"""Suffix of `Facts.codec` for pixels that are indices into a palette, which is not read."""


class CodecError(FormatError):
    """No installed library can read an image: its format is not supported, or its bytes are damaged.

    The message has the path of the file and the error of each library.
    """


class DamagedError(CodecError):
    """An image file is truncated, or its header claims an implausible size.

    No other library is tried: some fill in missing pixels, and all need the memory.
    """


class NoLevelError(ValueError):
    """The image has no such level."""


class InPlace(NamedTuple):
    """The place of uncompressed pixels in a file, which can be mapped."""

    offset: int
    """Offset of the first pixel in bytes."""
    dtype: str
    """Element type in numpy's notation, in the byte order of the file: ">u2"."""


class Facts(NamedTuple):
    """The facts that the header of an image has about one level."""

    codec: str
    """The decoding library with versions: "tifffile 2026.3.3, imagecodecs 2026.3.6"; for palette images "pillow
    12.0.0, palette indices"."""
    shape: tuple[int, ...]
    """Shape of the level, in elements."""
    dtype: str
    """Element type in numpy's notation, little-endian."""
    axes: str
    """One letter per axis: "YX", "YXS" (S: samples of a pixel), "ZYX"."""
    level: int
    """Number of the level; 0 is the largest."""
    levels: tuple[tuple[int, ...], ...]
    """Shapes of all levels; the first one is the largest."""
    in_place: InPlace | None = None
    """Place of the pixels in the file if they are uncompressed; None if they have to be decoded."""
    at_once: int = 0
    """Bytes of the largest strip or tile of a TIFF, which is decoded in memory beside the pixels."""
    decoded: int = 0
    """Bytes of all strips or tiles of a TIFF when decoded, with what lies outside the image."""

    @property
    def nbytes(self) -> int:
        """Size of the decoded level in bytes."""
        import numpy as np

        return prod(self.shape) * np.dtype(self.dtype).itemsize


def no_level(path: str, level: int, levels: int) -> NoLevelError:
    """Return the error for a missing level."""
    have = "one level, 0" if levels == 1 else f"levels 0 to {levels - 1}"
    return NoLevelError(f"{path}: no level {level}: the image has {have}")
