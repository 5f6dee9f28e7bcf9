"""The image libraries that are installed, and their versions, found without importing them."""

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
    """The interface of the modules `_tiff`, `_pillow` and `_vips`."""

    def facts(self, path: str, level: int, codec: str) -> Facts: ...

    def fill(self, path: str, level: int, into: NDArray[Any], report: Callable[[int], None], threads: int) -> None: ...


class Codec(NamedTuple):
    """A library that is installed, and its versions."""

    name: str
    version: str
    """Name and version of the library and of what it decodes with. Part of store keys: pixels may differ by version."""
    module: str
    """Name of the module that implements `Reader`."""

    def reader(self) -> Reader:
        """Import the library and return its reader."""
        return cast("Reader", import_module(self.module))


class Library(NamedTuple):
    """A library that may be installed."""

    name: str
    package: str
    """Name of the package that is imported."""
    also: tuple[tuple[str, str], ...]
    """(distribution, package) of the packages that it decodes with."""
    module: str
    """Name of the module that implements `Reader`."""
    only_tiff: bool
    """True if the library reads TIFF files only."""


PILLOW = Library("pillow", "PIL", (), "onecopy.images._pillow", False)
LIBRARIES = (
    Library("tifffile", "tifffile", (("imagecodecs", "imagecodecs"),), "onecopy.images._tiff", True),
    PILLOW,
    Library("pyvips", "pyvips", (("pyvips_binary", "_libvips"),), "onecopy.images._vips", False),
)
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""First bytes of TIFF files (the first pair) and of BigTIFF files (the second pair)."""


def installed(library: Library) -> Codec | None:
    """Return the codec of a library with its versions; None if it is not installed."""
    own = _version_of(library.name, library.package)
    if own is None:
        return None
    words = [f"{library.name} {own}"]
    for name, package in library.also:
        if (version := _version_of(name, package)) is not None:
            words.append(f"{name} {version}")
    return Codec(library.name, ", ".join(words), library.module)


def _version_of(name: str, package: str) -> str | None:
    """Return the version of an installed package without importing it: "?" if unknown, None if it is not installed.

    The version is in the name of the .dist-info folder: reading that takes a tenth of importing `importlib.metadata`.
    """
    try:
        spec = util.find_spec(package)
    except ValueError:  # sys.modules has None for it: imports are blocked
        return None
    if spec is None:
        return None
    return _version_beside(name, spec.origin, spec.submodule_search_locations is not None)


@cache
def _versions_in(folder: str) -> dict[str, str]:
    """Return the versions in the names of .dist-info folders, by the names of the distributions in lower case."""
    entries = (entry.partition("-") for entry in os.listdir(folder) if entry.endswith(".dist-info"))  # noqa: PTH208
    return {stem.lower(): rest.removesuffix(".dist-info") for stem, _, rest in entries}


@cache
def _version_beside(name: str, origin: str | None, is_folder: bool) -> str:
    if (
        origin is not None
        and (version := _versions_in(str(Path(origin).parents[int(is_folder)])).get(name)) is not None
    ):
        return version
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return "?"
