"""Names that are loaded on first use, and the former names of modules."""

import sys
from importlib import import_module

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType

OTHER_NAMES = {
    "onecopy.data.row_files": "onecopy_records.row_files",
    "onecopy.data.rows": "onecopy_records.rows",
    "onecopy.data.schema": "onecopy_records.schema",
    "onecopy.data.sharing": "onecopy_records.sharing",
    "onecopy.data.shuffle": "onecopy_records.shuffle",
    "onecopy.data.torch_datasets": "onecopy_records.torch_datasets",
    "onecopy.data.types": "onecopy_records.types",
    "onecopy.frameworks.onnxruntime": "onecopy_onnxruntime",
    "onecopy.frameworks.onnxruntime._prepacking": "onecopy_onnxruntime.prepacking",
    "onecopy.frameworks.onnxruntime._sessions": "onecopy_onnxruntime.sessions",
    "onecopy.frameworks.ray": "onecopy_remote.ray",
    "onecopy.holding": "onecopy.run.holder",
    "onecopy.objects": "onecopy.data",
    "onecopy.objects.made": "onecopy.data.unpickle",
    "onecopy.page_cache": "onecopy.files.page_cache",
    "onecopy.remote.location": "onecopy.store.location",
    "onecopy.remote.pieces": "onecopy.store.pieces",
    "onecopy.reports": "onecopy.base.load_report",
    "onecopy.scratch_arrays": "onecopy.arrays.scratch",
    "onecopy.shuffle": "onecopy_records.shuffle",
    "onecopy.sources": "onecopy.arrays.open_mode",
}
"""Current names of modules, by their names in earlier versions, which pickles and programs may still use."""
DISTRIBUTIONS = {
    "onecopy.frameworks.onnxruntime": "onecopy_onnxruntime",
    "onecopy.images": "onecopy_images",
    "onecopy.records": "onecopy_records",
    "onecopy.remote": "onecopy_remote",
}
"""Packages of other distributions, by the names that programs import and that pickles contain."""


def load(name: str) -> "ModuleType":
    """Import a module. If its distribution is missing, raise ModuleNotFoundError with the command that installs it."""
    package = name.partition(".")[0]
    try:
        import_module(package)  # before its module, so that an error names the package that is missing
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        words = package.replace("_", ".", 1), package.replace("_", "-")
        message = "{} needs another package: pip install {}".format(*words)
        raise ModuleNotFoundError(message, name=package) from None
    return import_module(name)


def attributes(package: str, homes: "dict[str, tuple[str, ...]]") -> "Callable[[str], object]":
    """Return a ``__getattr__`` that imports a name's module when the name is first used.

    `homes` maps modules to the names in them. Module names are relative to `package`, or begin with "onecopy".
    """
    modules = {
        name: module if module.startswith("onecopy") else f"{package}.{module}"
        for module, names in homes.items()
        for name in names
    }

    def attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(load(modules[name]), name)
        setattr(import_module(package), name, value)  # the next access does not call this function
        return value

    return attribute


class _OtherNames:
    """Finds modules by their old names, before the file finder, which would load some of them a second time."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":  # noqa: ARG002
        if not name.startswith("onecopy.") or not _module_of(name):
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self)  # type: ignore[arg-type] # importlib.abc.Loader takes 20 ms to import

    def create_module(self, spec: "ModuleSpec") -> None:
        """Let the import system create a module, which `exec_module` replaces."""

    def exec_module(self, module: "ModuleType") -> None:
        sys.modules[module.__name__] = load(_module_of(module.__name__))


def _module_of(name: str) -> str:
    """Return the current name of a module that has been renamed, or "" for other modules."""
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    for former, package in DISTRIBUTIONS.items():
        if name.startswith(f"{former}."):
            return name.replace(former, package, 1)
    return ""


def install() -> None:
    """Allow programs and pickles to import modules by their old names."""
    if not any(isinstance(finder, _OtherNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OtherNames())
