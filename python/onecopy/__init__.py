"""Open big read-only data in milliseconds and hold it once per machine, however many processes use it.

    import onecopy as oc

    model = oc.open("model.safetensors")     # maps the file, reads nothing but its header
    weights = model["encoder.weight"]        # a read-only numpy view of the page cache
    print(model.warm())                      # reads the rest at the speed of the device, and reports how

Importing this package loads no other module: each name is loaded on first use, numpy with the first array, and a
framework only by the subpackage of its name. Names that are not listed here are imported from their modules:
`onecopy.holding.Hold`, `onecopy.shuffle.Shuffle`, `onecopy.workers.preload`,
`onecopy.scratch_arrays.alloc`, `onecopy.memory.container`.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy import errors
    from onecopy import images as images
    from onecopy.arrays import ArrayFile, open, save  # noqa: A004
    from onecopy.caching import cached
    from onecopy.errors import ChecksumError, DataLost, Error, FormatError
    from onecopy.files import Mapping, check, guard
    from onecopy.integrations import onnxruntime as onnxruntime
    from onecopy.integrations import ray as ray
    from onecopy.integrations import torch as torch
    from onecopy.integrations import transformers as transformers
    from onecopy.memory import explain
    from onecopy.objects import load_object, save_object, share_object
    from onecopy.page_cache import evict, pin, residency, unpin, warm
    from onecopy.records import Dict, List, Table, open_records, share
    from onecopy.scratch_arrays import Scratch, scratch
    from onecopy.store import Store, file_key

    __version__: str

_SUBPACKAGES = ("errors", "images")
"""`images` is not in `__all__`: ``from onecopy import *`` works without the distribution onecopy-images."""
_INTEGRATIONS = ("onnxruntime", "ray", "torch", "transformers")
"""Subpackages named after frameworks. Not in `__all__`: ``from onecopy import *`` would shadow the frameworks."""
_HOMES = {
    "arrays": ("ArrayFile", "open", "save"),
    "errors": ("ChecksumError", "DataLost", "Error", "FormatError"),
    "files": ("Mapping", "check", "guard"),
    "caching": ("cached",),
    "memory": ("explain",),
    "records": ("Dict", "List", "Table", "open_records", "share"),
    "objects": ("load_object", "save_object", "share_object"),
    "page_cache": ("evict", "pin", "residency", "unpin", "warm"),
    "scratch_arrays": ("Scratch", "scratch"),
    "store": ("Store", "file_key"),
}
"""Names by the module that has them."""

__all__ = [
    "ArrayFile",
    "ChecksumError",
    "DataLost",
    "Dict",
    "Error",
    "FormatError",
    "List",
    "Mapping",
    "Scratch",
    "Store",
    "Table",
    "__version__",
    "cached",
    "check",
    "errors",
    "evict",
    "explain",
    "file_key",
    "guard",
    "load_object",
    "open",
    "open_records",
    "pin",
    "residency",
    "save",
    "save_object",
    "scratch",
    "share",
    "share_object",
    "unpin",
    "warm",
]


def _loader(package: str, homes: dict[str, tuple[str, ...]]) -> "Callable[[str], object]":
    """Return a ``__getattr__`` that imports the module of a name when the name is first used."""
    modules = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(import_module(package), name, value)  # the next access does not call this function
        return value

    return load


_load = _loader(__name__, _HOMES)

if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> object:
        if name == "__version__":  # of the compiled module: an interrupted installation could leave an older one
            from onecopy._core import version

            globals()[name] = version()
            return globals()[name]
        if name in _SUBPACKAGES:
            return import_module(f"onecopy.{name}")
        return import_module(f"onecopy.integrations.{name}") if name in _INTEGRATIONS else _load(name)


def __dir__() -> list[str]:
    from importlib.util import find_spec

    installed = ("images",) if find_spec("onecopy_images") is not None else ()
    return sorted((*__all__, *_INTEGRATIONS, *installed))
