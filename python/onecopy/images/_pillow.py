"""What Pillow reads: JPEG, PNG, WebP, GIF, BMP, ... It decodes a whole image in the heap; from there it goes in bands.

The pixels are those that ``numpy.asarray(PIL.Image.open(path))`` has: of an image with a palette the indices, and
nothing is turned as EXIF says. Pillow's own limit, ``PIL.Image.MAX_IMAGE_PIXELS``, stays in force.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from onecopy.images.facts import PALETTE, CodecError, Facts, no_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_BAND = 4 << 20
"""Bytes that are copied at once."""
_MODES = {
    "1": ("|b1", 1),
    "L": ("|u1", 1),
    "P": ("|u1", 1),
    "LA": ("|u1", 2),
    "PA": ("|u1", 2),
    "RGB": ("|u1", 3),
    "RGBA": ("|u1", 4),
    "RGBX": ("|u1", 4),
    "CMYK": ("|u1", 4),
    "YCbCr": ("|u1", 3),
    "LAB": ("|u1", 3),
    "HSV": ("|u1", 3),
    "I;16": ("<u2", 1),
    "I;16B": ("<u2", 1),
    "I": ("<i4", 1),
    "F": ("<f4", 1),
}
"""Element type and samples."""


def facts(path: str, level: int, codec: str) -> Facts:
    """Return what the header says; an image of Pillow has one level."""
    if level:
        raise no_level(path, level, 1)
    with _opened(path) as image:
        if image.mode not in _MODES:
            raise CodecError(f"{path}: {codec}: there is no array of its mode {image.mode!r}")
        dtype, samples = _MODES[image.mode]
        shape = (image.height, image.width) if samples == 1 else (image.height, image.width, samples)
        said = f"{codec}, {PALETTE}" if image.mode in ("P", "PA") else codec
        return Facts(said, shape, dtype, "YXS"[: len(shape)], 0, (shape,))


def fill(path: str, level: int, into: NDArray[Any], say: Callable[[int], None], threads: int) -> None:  # noqa: ARG001
    """Decode into an array of its shape."""
    with _opened(path) as image:
        if into.shape[:2] != (image.height, image.width):
            raise CodecError(f"{path}: it has {image.height} x {image.width} pixels by now")
        image.load()
        rows = max(1, _BAND * len(into) // max(1, into.nbytes))
        for top in range(0, image.height, rows):
            band = into[top : top + rows]
            band[...] = np.asarray(image.crop((0, top, image.width, top + len(band))))
            say(band.nbytes)


def _opened(path: str) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # there is `max_bytes`
        return Image.open(path)
