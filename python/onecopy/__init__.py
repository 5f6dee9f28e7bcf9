"""Big read-only data opened in milliseconds, held once per machine, its memory shown honestly.

    import onecopy as oc

    model = oc.open("model.safetensors")     # maps; touches nothing
    weights = model["encoder.weight"]        # a read-only numpy view of the page cache
    print(model.warm())                      # fills it at the device's speed and says how

Importing this package loads nothing else: numpy comes with the first array, a framework never. Every name below is
loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecopy import images, memory
    from onecopy.arrays import ArrayFile, Entry, open, save  # noqa: A004
    from onecopy.errors import ChecksumError, DataLost, FileChanged, FormatError, NoChecksum, NotShareable
    from onecopy.files import Mapping, check, guard
    from onecopy.holding import Hold
    from onecopy.integrations import onnxruntime as onnxruntime
    from onecopy.integrations import torch as torch
    from onecopy.integrations import transformers as transformers
    from onecopy.memory import explain, watch, why
    from onecopy.page_cache import WarmJob, evict, pin, residency, unpin, warm
    from onecopy.records import Dict, List, Table, open_records, share
    from onecopy.scratching import Scratch, alloc, scratch
    from onecopy.shuffle import Shuffle
    from onecopy.store import Store, file_key
    from onecopy.workers import assert_shared, preload

    __version__: str

_SUBPACKAGES = ("images", "memory")
_INTEGRATIONS = ("onnxruntime", "torch", "transformers")
"""Loaded when they are used, `torch` without its framework. Not in `__all__`: a star would put them in the place of
what they are named after."""
_HOMES = {
    "ArrayFile": "arrays",
    "Entry": "arrays",
    "open": "arrays",
    "save": "arrays",
    "ChecksumError": "errors",
    "DataLost": "errors",
    "FileChanged": "errors",
    "FormatError": "errors",
    "NoChecksum": "errors",
    "Mapping": "files",
    "check": "files",
    "guard": "files",
    "Hold": "holding",
    "watch": "memory",
    "why": "memory",
    "Dict": "records",
    "List": "records",
    "NotShareable": "errors",
    "Table": "records",
    "open_records": "records",
    "share": "records",
    "WarmJob": "page_cache",
    "evict": "page_cache",
    "explain": "memory",
    "pin": "page_cache",
    "residency": "page_cache",
    "unpin": "page_cache",
    "warm": "page_cache",
    "Shuffle": "shuffle",
    "Scratch": "scratching",
    "alloc": "scratching",
    "scratch": "scratching",
    "assert_shared": "workers",
    "preload": "workers",
    "Store": "store",
    "file_key": "store",
}

__all__ = [
    "ArrayFile",
    "ChecksumError",
    "DataLost",
    "Dict",
    "Entry",
    "FileChanged",
    "FormatError",
    "Hold",
    "List",
    "Mapping",
    "NoChecksum",
    "NotShareable",
    "Scratch",
    "Shuffle",
    "Store",
    "Table",
    "WarmJob",
    "__version__",
    "alloc",
    "assert_shared",
    "check",
    "evict",
    "explain",
    "file_key",
    "guard",
    "images",
    "memory",
    "open",
    "open_records",
    "pin",
    "preload",
    "residency",
    "save",
    "scratch",
    "share",
    "unpin",
    "warm",
    "watch",
    "why",
]


if not TYPE_CHECKING:  # to a type checker, this would have every name

    def __getattr__(name: str) -> Any:
        if name == "__version__":  # of the compiled half, which an interrupted installation could leave behind
            from onecopy._core import version

            globals()[name] = version()
            return globals()[name]
        if name in _SUBPACKAGES:
            return import_module(f"onecopy.{name}")
        if name in _INTEGRATIONS:
            return import_module(f"onecopy.integrations.{name}")
        if name in _HOMES:
            value = getattr(import_module(f"onecopy.{_HOMES[name]}"), name)
            globals()[name] = value  # found at once the next time
            return value
        raise AttributeError(f"module 'onecopy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, *_INTEGRATIONS))
