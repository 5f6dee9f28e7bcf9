"""Decoding with libvips (pyvips) in bands from top to bottom: JPEG 2000, HEIF, JPEG XL, SVS and other slides.

The levels of slides are the same as in OpenSlide.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyvips

from onecopy.base.text import is_text
from onecopy.errors import Kind
from onecopy_images.image import CodecError, Facts, bands, expect_shape, no_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_TYPES = {
    "uchar": "|u1",
    "char": "|i1",
    "ushort": "<u2",
    "short": "<i2",
    "uint": "<u4",
    "int": "<i4",
    "float": "<f4",
    "double": "<f8",
    "complex": "<c8",
}

_NO_IMAGES = {"VipsForeignLoadCsv": "a CSV table", "VipsForeignLoadMatrix": "a text file of numbers"}
"""Formats that libvips reads although they are not images, by the prefix of the loader name."""


def facts(path: str, level: int, codec: str) -> Facts:
    """Return the facts in the header."""
    first = _opened(path, 0)
    count = int(first.get("openslide.level-count")) if "openslide.level-count" in first.get_fields() else 1
    if level >= count:
        raise no_level(path, level, count)
    levels = tuple(_shape(_opened(path, one)) for one in range(count))
    if first.format not in _TYPES:
        raise CodecError(f"{codec}: elements of type {first.format} are not supported", Kind.UNSUPPORTED, path=path)
    return Facts(codec, levels[level], _TYPES[first.format], "YXS"[: len(levels[level])], level, levels)


def fill(path: str, level: int, into: NDArray[Any], report: Callable[[int], None], threads: int) -> None:  # noqa: ARG001
    """Decode one level into an array of the same shape, and call `report` for each band with its size in bytes."""
    image = _opened(path, level)
    expect_shape(path, _shape(image), into)
    dtype = np.dtype(_TYPES[image.format])
    region = pyvips.Region.new(image)  # one pipeline for all bands: sequential access does not allow a second one
    for top, band in bands(into):
        memory = region.fetch(0, top, image.width, len(band))
        band[...] = np.frombuffer(memory, dtype).reshape(band.shape)
        report(band.nbytes)


def _opened(path: str, level: int) -> Any:
    options: dict[str, Any] = {"access": "sequential", "fail_on": "error"}
    if level:
        options["level"] = level
    name = os.fsencode(path)
    found = pyvips.vips_lib.vips_foreign_find_load(name)  # before opening: libvips keeps files open that it reads
    loader = "" if found == pyvips.ffi.NULL else pyvips.ffi.string(found).decode()
    for start, what in _NO_IMAGES.items():
        if loader.startswith(start):
            raise CodecError(f"not an image: libvips would read it as {what}", Kind.NOT_THIS_FORMAT, path=path)
    if not is_text(path):  # pyvips would decode the name
        return pyvips.Image.new_from_source(pyvips.Source.new_from_file(name), "", **options)
    return pyvips.Image.new_from_file(path, **options)


def _shape(image: Any) -> tuple[int, ...]:
    return (image.height, image.width) if image.bands == 1 else (image.height, image.width, image.bands)
