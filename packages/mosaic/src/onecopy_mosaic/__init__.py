"""Register overlapping tiles, and stitch them into images of any size with bounded memory.

    import onecopy_mosaic

    found = onecopy_mosaic.register(tiles, grid=(5, 5), overlap=0.1)
    whole = onecopy_mosaic.mosaic(tiles, found.positions, out="whole.oc", max_resident="512 MiB")

* `register` finds the positions of overlapping tiles by their pixels; it needs SciPy.
* `mosaic` pastes tiles at their positions into an array, a scratch file, or a file: ``.oc``, TIFF or Zarr.
* `thumbnail` makes a small 8-bit picture of an image of any size.

Tiles are arrays, paths of images, which `onecopy.images` decodes, or functions that return arrays.

**When not to use it.** To correct illumination, to blend seams, or for rotated or deformed tiles: use ASHLAR or
BigStitcher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy import _loader

if TYPE_CHECKING:
    from onecopy_mosaic.registering import Link, Registration, register
    from onecopy_mosaic.stitching import Mosaic, mosaic
    from onecopy_mosaic.thumbnails import thumbnail

_HOMES = {
    "registering": ("Link", "Registration", "register"),
    "stitching": ("Mosaic", "mosaic"),
    "thumbnails": ("thumbnail",),
}
"""Names by the module that has them."""

__all__ = ["Link", "Mosaic", "Registration", "mosaic", "register", "thumbnail"]

if not TYPE_CHECKING:  # a type checker would accept every attribute name
    __getattr__ = _loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
