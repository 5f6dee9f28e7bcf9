"""Decoding with Pillow: JPEG, PNG, WebP, GIF, BMP, ... Pillow decodes the whole image into the heap.

The pixels equal ``numpy.asarray(PIL.Image.open(path))``; for palette images, they are palette indices. Pixels are in
file order, even for TIFF files, which Pillow would rotate; only a `Form` rotates images. Files whose samples Pillow
would reduce to 8 bits raise an error. Pillow's own limit, ``PIL.Image.MAX_IMAGE_PIXELS``, applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps
from PIL.TiffImagePlugin import IMAGELENGTH, IMAGEWIDTH, TiffImageFile

from onecopy.errors import Kind
from onecopy_images import _deep
from onecopy_images.image import PALETTE, CodecError, Facts, bands, expect_shape, no_level
from onecopy_images.silenced import silenced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from onecopy_images.sharing import Form

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
"""Element type and number of samples, by Pillow mode."""
_BAND = 256 << 10
"""Maximum size in bytes of the arrays that `decoded` returns, unless a row is larger."""


def facts(path: str, level: int, codec: str) -> Facts:
    """Return the facts in the header. With Pillow, an image has one level."""
    if level:
        raise no_level(path, level, 1)
    with _opened(path) as image:
        if image.mode not in _MODES:
            raise CodecError(f"{codec}: images of mode {image.mode!r} are not supported", Kind.UNSUPPORTED, path=path)
        dtype, samples = _MODES[image.mode]
        height, width = _size(image, upright=False)
        shape = (height, width) if samples == 1 else (height, width, samples)
        name = f"{codec}, {PALETTE}" if image.mode in ("P", "PA") else codec
        return Facts(name, shape, dtype, "YXS"[: len(shape)], 0, (shape,))


def fill(path: str, level: int, into: NDArray[Any], report: Callable[[int], None], threads: int) -> None:  # noqa: ARG001
    """Decode the image into an array of the same shape, and call `report` for each band with its size in bytes."""
    with _opened(path) as opened:
        expect_shape(path, (*_size(opened, upright=False), *into.shape[2:]), into)
        image = _loaded(opened, upright=False)
        for top, band in bands(into):
            band[...] = np.asarray(image.crop((0, top, image.width, top + len(band))))
            report(band.nbytes)


def decoded(path: str, form: Form) -> tuple[tuple[int, ...], str, Iterator[NDArray[Any]]]:
    """Return an image's shape, its dtype, and its pixels in bands, converted to a colour mode and size.

    The image is decoded, converted to the mode, and resized with Pillow's bilinear filter, which averages all pixels
    when it reduces an image. If a JPEG image is reduced to a quarter or less, the decoder first reduces it to 1/2, 1/4
    or 1/8, but to at least twice the final size.
    """
    with _opened(path) as opened:
        height, width = form.sides(*_size(opened, form.upright))
        if form.size is not None:
            is_turned = form.upright and _is_turned(opened)
            opened.draft(None, (2 * height, 2 * width) if is_turned else (2 * width, 2 * height))
        image = _loaded(opened, form.upright)
        if form.color not in (None, image.mode):
            image = image.convert(form.color)
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.BILINEAR)
    dtype, samples = _MODES[image.mode]
    shape = (height, width) if samples == 1 else (height, width, samples)
    return shape, dtype, _arrays(image, max(1, _BAND // (width * samples * int(dtype[2:]))))


def _arrays(image: Image.Image, rows: int) -> Iterator[NDArray[Any]]:
    """Yield the pixels of a decoded image in read-only arrays of `rows` rows.

    Converting a large image at once would triple its memory, and glibc would return that memory after each image.
    """
    if rows >= image.height:
        yield np.asarray(image)
        return
    for top in range(0, image.height, rows):
        yield np.asarray(image.crop((0, top, image.width, min(top + rows, image.height))))


def upright_shape(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an image's shape after rotation according to its EXIF orientation."""
    with _opened(path) as image:
        return (*_size(image, upright=True), *shape[2:])


def _size(image: Image.Image, upright: bool) -> tuple[int, int]:
    """Return an image's height and width, upright or as in the file."""
    height, width = image.height, image.width
    if isinstance(image, TiffImageFile):  # some versions of Pillow have already swapped them
        height, width = image.tag_v2[IMAGELENGTH], image.tag_v2[IMAGEWIDTH]
    return (width, height) if upright and _is_turned(image) else (height, width)


def _is_turned(image: Image.Image) -> bool:
    """Return whether the EXIF orientation swaps height and width."""
    return image.getexif().get(0x0112) in (5, 6, 7, 8)


def _loaded(image: Image.Image, upright: bool) -> Image.Image:
    """Load an image, and return it upright or as in the file. Pillow itself rotates only TIFF files."""
    is_upright = isinstance(image, TiffImageFile)
    orientation = 1 if upright == is_upright else image.getexif().get(0x0112, 1)
    image.load()
    if orientation == 1:
        return image
    if not upright:
        image.getexif()[0x0112] = {6: 8, 8: 6}.get(orientation, orientation)  # Pillow's rotation is undone
    return ImageOps.exif_transpose(image)


def _loses_bits(path: str, image: Image.Image) -> bool:
    """Return whether Pillow would reduce a file's samples to 8 bits."""
    if image.mode.startswith(("I", "F")):
        return False
    if image.format == "AVIF":
        with open(path, "rb") as file:  # noqa: PTH123 - text
            head = file.read(1 << 16)
        at = head.find(b"av1C")
        return at >= 0 and at + 6 < len(head) and head[at + 6] & 0x40 != 0
    if image.format in ("PNG", "JPEG2000") and abs(_deep.header(path)[3]) > 8:
        return True
    for decoder, *_, options in image.tile:
        words = options if isinstance(options, tuple) else (options,)
        if str(words[0]).endswith((";16B", ";16L", ";16N")) or decoder == "SGI16":
            return True
        if decoder in ("ppm", "ppm_plain") and words[-1] > 255:  # the largest value of a sample
            return True
    return False


def _opened(path: str) -> Image.Image:
    with silenced:
        image = Image.open(path)
    if _loses_bits(path, image):
        image.close()
        raise CodecError(
            "Pillow would reduce the samples to 8 bits, unlike tifffile, imagecodecs (PNG, JPEG 2000) and pyvips "
            "(pip install 'onecopy[images-all]'), which images.share uses if color=None and size and upright are unset",
            Kind.UNSUPPORTED,
            path=path,
        )
    if image.format == "ICNS":  # the mode is known only after loading
        image.load()
    return image
