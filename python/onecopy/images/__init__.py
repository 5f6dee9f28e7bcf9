"""Images decoded once per host and mapped by every process; tiles registered and pasted onto canvases of any size.

    import onecopy as oc

    image = oc.images.open("slide.ndpi", level=1)    # decoded by the first process of the machine that asks
    image.array[2000:2512, 1000:1512]                # pages that all processes share

    found = oc.images.register(tiles, grid=(5, 5), overlap=0.1)
    whole = oc.images.mosaic(tiles, found.positions, out="whole.oc", max_resident="512 MiB")

* `open` gives an `Image`: the pixels in an artefact of the store, or in the image file itself where they lie there as
  in memory (an uncompressed TIFF).
* `decode` puts the pixels into a nameless file of this process, which may be written; `codecs.decode` into any array.
* `register` finds where tiles lie to each other, `mosaic` pastes them, `thumbnail` makes a small picture.

Reading needs tifffile with imagecodecs, Pillow or pyvips: ``pip install 'onecopy[images]'``. Each is imported when
something is decoded by it; to attach to what was decoded before, none is.

**When not to use it.** For pictures that are looked at once: a library's own call is as good. For parts of slides that
are far larger than the disk: `tifffile` and OpenSlide decode just these parts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecopy.images import codecs
    from onecopy.images.facts import CodecError, DamagedError
    from onecopy.images.image import Image
    from onecopy.images.opening import decode, open  # noqa: A004 - oc.images.open, as in gzip.open
    from onecopy.images.registering import Link, Registration, register
    from onecopy.images.stitching import Mosaic, mosaic
    from onecopy.images.thumbnails import thumbnail

_HOMES = {
    "CodecError": "facts",
    "DamagedError": "facts",
    "Image": "image",
    "decode": "opening",
    "open": "opening",
    "Link": "registering",
    "Registration": "registering",
    "register": "registering",
    "Mosaic": "stitching",
    "mosaic": "stitching",
    "thumbnail": "thumbnails",
}

__all__ = [
    "CodecError",
    "DamagedError",
    "Image",
    "Link",
    "Mosaic",
    "Registration",
    "codecs",
    "decode",
    "mosaic",
    "open",
    "register",
    "thumbnail",
]


if not TYPE_CHECKING:  # to a type checker, this would have every name

    def __getattr__(name: str) -> Any:
        if name == "codecs":
            return import_module("onecopy.images.codecs")
        if name in _HOMES:
            value = getattr(import_module(f"onecopy.images.{_HOMES[name]}"), name)
            globals()[name] = value  # found at once the next time
            return value
        raise AttributeError(f"module 'onecopy.images' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
