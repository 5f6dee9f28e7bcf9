"""Decoding with imagecodecs: PNG and JPEG 2000 files with 9 to 16 bits per sample, which Pillow would reduce to 8.

imagecodecs decodes the whole image into the heap. JPEG 2000 values are not scaled: 10-bit samples range from 0 to 1023.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from onecopy.errors import Kind
from onecopy_images.image import CodecError, Facts, expect_shape, no_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_SAMPLES = {0: 1, 2: 3, 4: 2, 6: 4}
"""Number of samples per pixel, by the colour type of a PNG file."""


def facts(path: str, level: int, codec: str) -> Facts:
    """Return the facts in the header of a PNG or JPEG 2000 file, which has one level."""
    if level:
        raise no_level(path, level, 1)
    *shape, bits = header(path)
    if not 8 < bits <= 16:
        raise CodecError(
            f"{codec}: not a PNG or JPEG 2000 file with 9- to 16-bit unsigned samples", Kind.UNSUPPORTED, path=path
        )
    shape = shape[:2] if shape[2] == 1 else shape
    return Facts(codec, tuple(shape), "<u2", "YXS"[: len(shape)], 0, (tuple(shape),))


def fill(path: str, level: int, into: NDArray[Any], report: Callable[[int], None], threads: int) -> None:  # noqa: ARG001
    """Decode the image into an array of the same shape."""
    import imagecodecs

    with open(path, "rb") as file:  # noqa: PTH123 - text
        data = file.read()
    pixels = (imagecodecs.png_decode if data.startswith(b"\x89PNG") else imagecodecs.jpeg2k_decode)(data)
    expect_shape(path, (*pixels.shape[:2], *into.shape[2:]), into)
    samples = into.shape[2] if into.ndim == 3 else 1  # imagecodecs adds a sample for transparency
    into[...] = pixels.reshape(*pixels.shape[:2], -1)[..., :samples].reshape(into.shape)
    report(into.nbytes)


def header(path: str) -> tuple[int, int, int, int]:
    """Return the height, width, samples and bits (negative: signed) of a PNG or JPEG 2000 file; zeros for others."""
    with open(path, "rb") as file:  # noqa: PTH123 - text
        head = file.read(4096)
    try:
        if head.startswith(b"\x89PNG"):
            width, height, bits, kind = struct.unpack_from(">IIBB", head, 16)
            return height, width, _SAMPLES.get(kind, 1), bits
        if head.startswith(b"\xff\x4f\xff\x51"):  # a codestream without boxes
            right, bottom, left, top = struct.unpack_from(">4I", head, 8)
            samples, bits = struct.unpack_from(">HB", head, 40)
            return bottom - top, right - left, samples, _bits(bits)
        if head[4:8] == b"jP  " and (at := head.find(b"ihdr")) >= 0:
            height, width, samples, bits = struct.unpack_from(">IIHB", head, at + 4)
            return height, width, samples, _bits(bits)
    except struct.error:  # truncated
        pass
    return 0, 0, 0, 0


def _bits(depth: int) -> int:
    return -(depth & 0x7F) - 1 if depth & 0x80 else depth + 1
