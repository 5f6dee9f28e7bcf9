"""Decoding with Pillow: JPEG, PNG, WebP, GIF, BMP, ... Pillow decodes the whole image in the heap.

The pixels equal ``numpy.asarray(PIL.Image.open(path))``: palette images give palette indices, and EXIF orientation is
applied where a `Form` says so alone. Pillow's own limit, ``PIL.Image.MAX_IMAGE_PIXELS``, stays in force.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from onecopy.errors import Kind
from onecopy.images.image import PALETTE, CodecError, Facts, bands, expect_shape, no_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from onecopy.images.sharing import Form

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
"""Element type and number of samples by Pillow's mode."""


def facts(path: str, level: int, codec: str) -> Facts:
    """Return the facts of the header; with Pillow an image has one level."""
    if level:
        raise no_level(path, level, 1)
    with _opened(path) as image:
        if image.mode not in _MODES:
            raise CodecError(f"{codec}: images of mode {image.mode!r} are not supported", Kind.UNSUPPORTED, path=path)
        dtype, samples = _MODES[image.mode]
        shape = (image.height, image.width) if samples == 1 else (image.height, image.width, samples)
        name = f"{codec}, {PALETTE}" if image.mode in ("P", "PA") else codec
        return Facts(name, shape, dtype, "YXS"[: len(shape)], 0, (shape,))


def fill(path: str, level: int, into: NDArray[Any], report: Callable[[int], None], threads: int) -> None:  # noqa: ARG001
    """Decode the image into an array of its shape; `report` is called with the bytes of each band."""
    with _opened(path) as image:
        expect_shape(path, (image.height, image.width, *into.shape[2:]), into)
        image.load()
        for top, band in bands(into):
            band[...] = np.asarray(image.crop((0, top, image.width, top + len(band))))
            report(band.nbytes)


def decoded(path: str, form: Form) -> NDArray[Any]:
    """Return the pixels of an image in a colour mode and size, as a read-only array.

    An image is decoded, converted to the mode, and resized with Pillow's bilinear filter, which averages all pixels
    when it reduces. A JPEG that is to be reduced to a quarter or less is decoded at 1/2, 1/4 or 1/8 of its size, by its
    decoder, to at least twice the final size.
    """
    with _opened(path) as opened:
        image: Image.Image = opened
        is_turned = form.upright and _is_turned(image)
        height, width = form.sides(*(image.size if is_turned else image.size[::-1]))
        if form.size is not None:
            image.draft(None, (2 * height, 2 * width) if is_turned else (2 * width, 2 * height))
        if form.upright:
            image = ImageOps.exif_transpose(image)
        if form.color not in (None, image.mode):
            image = image.convert(form.color)
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(image)


def upright_shape(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an image after it is turned as its EXIF orientation says."""
    with _opened(path) as image:
        return (shape[1], shape[0], *shape[2:]) if _is_turned(image) else shape


def _is_turned(image: Image.Image) -> bool:
    """Return whether the EXIF orientation exchanges height and width."""
    return image.getexif().get(0x0112) in (5, 6, 7, 8)


def _opened(path: str) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `max_bytes` limits the size
        return Image.open(path)
