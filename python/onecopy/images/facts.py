"""What a library says of an image before it decodes it, and the errors of images that none can read."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from onecopy.errors import FormatError

__all__ = ["CodecError", "DamagedError", "Facts", "InPlace", "NoLevelError", "no_level"]


PALETTE = "palette indices"
"""Stands behind the versions in `Facts.codec` where pixels are numbers of colours in a palette that is left behind."""


class CodecError(FormatError):
    """No installed library can read an image: none is for its format, or its bytes are not what the format asks for.

    The message names the file and what each library said.
    """


class DamagedError(CodecError):
    """The bytes of an image are not all there, or claim too much.

    No other library is asked: some make up what is missing, and all need the memory.
    """


class NoLevelError(ValueError):
    """The caller asked for a level that an image does not have."""


class InPlace(NamedTuple):
    """Pixels that lie in the file as they do in memory."""

    offset: int
    """Bytes from the start of the file."""
    dtype: str
    """numpy's spelling, with the byte order of the file: ">u2"."""


class Facts(NamedTuple):
    """What a header says of one level of an image."""

    codec: str
    """The library, and the versions of what decodes: "tifffile 2026.3.3, imagecodecs 2026.3.6"; of an image with a
    palette "pillow 12.0.0, palette indices"."""
    shape: tuple[int, ...]
    dtype: str
    """As numpy spells it, little-endian."""
    axes: str
    """A letter for each axis: "YX", "YXS" (S: samples of a pixel), "ZYX"."""
    level: int
    levels: tuple[tuple[int, ...], ...]
    """The shape of each level; the first one is the largest."""
    in_place: InPlace | None = None
    """Where the file's own bytes are the pixels; None: they have to be decoded."""
    at_once: int = 0
    """Bytes that are decoded at once, in memory beside the pixels: of a TIFF's largest strip or tile."""

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded level."""
        import numpy as np

        return prod(self.shape) * np.dtype(self.dtype).itemsize


def no_level(path: str, level: int, levels: int) -> NoLevelError:
    """Return the error for a level that an image does not have."""
    have = "one level, 0" if levels == 1 else f"the levels 0 to {levels - 1}"
    return NoLevelError(f"{path}: there is no level {level}: it has {have}")
