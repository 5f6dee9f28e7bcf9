"""Images decoded once per machine and mapped by every process.

    import onecopy as oc

    image = oc.images.open("slide.ndpi", level=1)    # decoded by the first process that opens it
    image.array[2000:2512, 1000:1512]                # pages that all processes share

* `open` returns an `Image`: its pixels are mapped from an artefact of the store, or from the image file itself if that
  holds them uncompressed and contiguous (an uncompressed TIFF).
* `share` decodes all images of a dataset into one file, and returns `Images`, a sequence of arrays.
* `decode` writes the pixels into an unnamed scratch file of this process; `codecs.decode` writes them into any array.

The distribution onecopy-mosaic registers tiles, stitches them, and makes small pictures.

Reading needs tifffile with imagecodecs, Pillow or pyvips: ``pip install 'onecopy[images]'``. Each is imported
when it decodes an image; opening an image that is decoded already imports none of them.

**When not to use it.** For images that are read once: the library's own call is as good. For parts of slides that do
not fit on the disk when decoded: `tifffile` and OpenSlide decode only the parts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from onecopy import _loader

if TYPE_CHECKING:
    from onecopy.images import codecs
    from onecopy.images.image import CodecError, DamagedError, Image, Images
    from onecopy.images.opening import decode, open  # noqa: A004 - oc.images.open, as in gzip.open
    from onecopy.images.sharing import share

_HOMES = {
    "image": ("CodecError", "DamagedError", "Image", "Images"),
    "opening": ("decode", "open"),
    "sharing": ("share",),
}

__all__ = [
    "CodecError",
    "DamagedError",
    "Image",
    "Images",
    "codecs",
    "decode",
    "open",
    "share",
]


if not TYPE_CHECKING:  # a type checker would accept every attribute name
    _load = _loader(__name__, _HOMES)

    def __getattr__(name: str) -> object:
        return import_module("onecopy.images.codecs") if name == "codecs" else _load(name)


def __dir__() -> list[str]:
    return sorted(__all__)
