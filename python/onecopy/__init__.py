"""Open big read-only data in milliseconds, with one copy per machine for any number of processes.

    import onecopy as oc

    model = oc.open("model.safetensors")     # maps the file, and reads only its header
    weights = model["encoder.weight"]        # a read-only NumPy view of the page cache
    print(model.warm())                      # reads the rest at the speed of the device, and returns a report

Importing this package loads almost nothing: each name is loaded on first use, NumPy with the first array, and a
framework only when its subpackage is used. Import other names from their modules:
`onecopy.run.holder.Holder`, `onecopy_records.shuffle.Shuffle`, `onecopy.arrays.scratch.alloc`,
`onecopy.memory.container`.
"""

from importlib import import_module

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    import onecopy_onnxruntime as onnxruntime  # noqa: F401
    from onecopy import arrays as arrays, errors as errors, files as files, images as images, records as records
    from onecopy.arrays import ArrayFile, open, save  # noqa: A004
    from onecopy.arrays.scratch import scratch
    from onecopy.data.caching import cached
    from onecopy.data.objects import load_object, save_object, share_object
    from onecopy.errors import ChecksumError, DataLost, Error, FormatError
    from onecopy.files.mapping import Mapping
    from onecopy.files.page_cache import evict, residency, warm
    from onecopy.frameworks import torch as torch, transformers as transformers
    from onecopy.memory import explain
    from onecopy.store import Store, file_key
    from onecopy_records import open_records, share
    from onecopy_remote import ray as ray

    __version__: str

_SUBPACKAGES = ("arrays", "errors", "files", "images", "memory", "records", "remote", "store")
"""Subpackages that are imported on first use; `images`, `records` and `remote` are in other distributions."""
_INTEGRATIONS = ("onnxruntime", "ray", "torch", "transformers")
"""Subpackages that `__all__` omits, because ``from onecopy import *`` would shadow the frameworks themselves."""
_PACKAGED = {"images": "onecopy_images", "onnxruntime": "onecopy_onnxruntime", "ray": "onecopy_remote"}
"""Subpackage names, and the packages in other distributions to which they refer."""
_HOMES = {
    "arrays.file": ("ArrayFile",),
    "arrays.opening": ("open",),
    "arrays.saving": ("save",),
    "errors": ("ChecksumError", "DataLost", "Error", "FormatError"),
    "files.mapping": ("Mapping",),
    "data.caching": ("cached",),
    "memory.explaining": ("explain",),
    "onecopy_records.rows": ("open_records",),
    "onecopy_records.sharing": ("share",),
    "data.objects": ("load_object", "save_object", "share_object"),
    "files.page_cache": ("evict", "residency", "warm"),
    "arrays.scratch": ("scratch",),
    "store.store": ("Store",),
    "store.keys": ("file_key",),
}
"""Public names, grouped by the modules that define them."""

__all__ = [
    "ArrayFile",
    "ChecksumError",
    "DataLost",
    "Error",
    "FormatError",
    "Mapping",
    "Store",
    "__version__",
    "cached",
    "evict",
    "explain",
    "file_key",
    "load_object",
    "open",
    "open_records",
    "residency",
    "save",
    "save_object",
    "scratch",
    "share",
    "share_object",
    "warm",
]


_load = lazy.attributes(__name__, _HOMES)
lazy.install()

if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept every name

    def __getattr__(name: str) -> object:
        if name == "__version__":  # of the compiled module, which is older if an installation was interrupted
            from onecopy._core import version

            globals()[name] = version()
            return globals()[name]
        if name in _SUBPACKAGES:
            return import_module(f"onecopy.{name}")
        return import_module(f"onecopy.frameworks.{name}") if name in _INTEGRATIONS else _load(name)


def __dir__() -> list[str]:
    from importlib.util import find_spec

    missing = {name for name, package in _PACKAGED.items() if find_spec(package) is None}
    return sorted({*__all__, *_INTEGRATIONS, "images"} - missing)
