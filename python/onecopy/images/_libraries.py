"""Which libraries for images are installed, and in which versions; none of them is imported to know that."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from onecopy.images.facts import Facts


class Reader(Protocol):
    """What the module of a library has to offer."""

    def facts(self, path: str, level: int, codec: str) -> Facts: ...

    def fill(self, path: str, level: int, into: NDArray[Any], say: Callable[[int], None], threads: int) -> None: ...


class Codec(NamedTuple):
    """A library that is installed, and its versions."""

    name: str
    version: str
    """For keys and reports: another one may decode other pixels."""
    module: str
    in_child: bool
    """It holds a whole image in the heap: better in a process that ends."""

    def reader(self) -> Reader:
        """Import the library."""
        return cast("Reader", import_module(self.module))


class Library(NamedTuple):
    """A library that may be installed."""

    name: str
    package: str
    """What is imported."""
    also: tuple[tuple[str, str], ...]
    """(name, package) of what it decodes with."""
    module: str
    only_tiff: bool
    in_child: bool


LIBRARIES = (
    Library("tifffile", "tifffile", (("imagecodecs", "imagecodecs"),), "onecopy.images._tiff", True, False),
    Library("pillow", "PIL", (), "onecopy.images._pillow", False, True),
    Library("pyvips", "pyvips", (("pyvips_binary", "_libvips"),), "onecopy.images._vips", False, False),
)
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""How TIFF files begin, BigTIFF the second pair."""


def installed(library: Library) -> Codec | None:
    """Return a library with its versions, where it is installed."""
    own = _version_of(library.name, library.package)
    if own is None:
        return None
    words = [f"{library.name} {own}"]
    for name, package in library.also:
        if (version := _version_of(name, package)) is not None:
            words.append(f"{name} {version}")
    return Codec(library.name, ", ".join(words), library.module, library.in_child)


def _version_of(name: str, package: str) -> str | None:
    """Return the version of an installed package, without importing it; "?" where nothing tells; None: not there.

    What is beside the package says it, in a tenth of the time that `importlib.metadata` takes to be imported.
    """
    try:
        spec = util.find_spec(package)
    except ValueError:  # set to None in sys.modules: made missing
        return None
    if spec is None:
        return None
    return _told_beside(name, spec.origin, spec.submodule_search_locations is not None)


@cache
def _versions_in(folder: str) -> dict[str, str]:
    """Return versions by the names of packages in lower case, as the names of the folders beside them have both."""
    entries = (entry.partition("-") for entry in os.listdir(folder) if entry.endswith(".dist-info"))  # noqa: PTH208
    return {stem.lower(): rest.removesuffix(".dist-info") for stem, _, rest in entries}


@cache
def _told_beside(name: str, origin: str | None, is_folder: bool) -> str:
    if (
        origin is not None
        and (version := _versions_in(str(Path(origin).parents[int(is_folder)])).get(name)) is not None
    ):
        return version
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return "?"
