"""Images that are decoded once per machine and mapped by every process, and tiles that are stitched in limited memory.

    import onecopy as oc

    image = oc.images.open("slide.ndpi", level=1)    # decoded by the first process that opens it
    image.array[2000:2512, 1000:1512]                # pages that all processes share
    found = oc.images.register(tiles, grid=(5, 5), overlap=0.1)
    whole = oc.images.mosaic(tiles, found.positions, out="whole.oc", max_resident="512 MiB")

The distribution onecopy-images installs this package as ``onecopy_images``, which is also available as ``oc.images``
and ``onecopy.images``.

* `open` returns an `Image`. Its pixels are mapped from an artefact in the store, or from the image file itself if it
  contains them uncompressed and contiguous (an uncompressed TIFF).
* `share` decodes all images of a dataset into one file, and returns `Images`, a sequence of arrays.
* `decode` writes the pixels to an unnamed scratch file of this process; `codecs.decode` writes them into any array.
* `register` determines the positions of overlapping tiles from their pixels.
* `mosaic` pastes tiles at their positions into an array, a scratch file, or an ``.oc``, TIFF or Zarr file.
* `thumbnail` creates a small 8-bit picture of an image of any size.

Tiles are arrays, paths of images, or functions that return arrays. Images are read by tifffile with imagecodecs, Pillow
or pyvips (``pip install 'onecopy-images[vips]'``). A library is imported when it decodes an image; opening an
image that is already decoded imports none of them.

**When not to use it.** For images that are read only once, call the library directly. To read parts of slides that are
too large to store in decoded form, use `tifffile` or OpenSlide, which decode only those parts. To correct illumination,
to blend seams, or for rotated or deformed tiles, use ASHLAR or BigStitcher.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_images import codecs
    from onecopy_images.image import CodecError, DamagedError, Image, Images
    from onecopy_images.opening import decode, open  # noqa: A004 - oc.images.open, as in gzip.open
    from onecopy_images.pasting import Mosaic, mosaic
    from onecopy_images.registering import Link, Registration, register
    from onecopy_images.sharing import share
    from onecopy_images.thumbnails import thumbnail

_HOMES = {
    "image": ("CodecError", "DamagedError", "Image", "Images"),
    "opening": ("decode", "open"),
    "registering": ("Link", "Registration", "register"),
    "sharing": ("share",),
    "pasting": ("Mosaic", "mosaic"),
    "thumbnails": ("thumbnail",),
}
"""Public names, by the module that defines them."""

__all__ = [
    "CodecError",
    "DamagedError",
    "Image",
    "Images",
    "Link",
    "Mosaic",
    "Registration",
    "codecs",
    "decode",
    "mosaic",
    "open",
    "register",
    "share",
    "thumbnail",
]


if not TYPE_CHECKING:  # a type checker would accept every attribute name
    _load = lazy.attributes(__name__, _HOMES)

    def __getattr__(name: str) -> object:
        return import_module("onecopy_images.codecs") if name == "codecs" else _load(name)


def __dir__() -> list[str]:
    return sorted(__all__)
