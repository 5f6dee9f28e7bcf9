"""Replaces functions of frameworks right after their import, and imports none itself.

This module is loaded when a process of `onecopy run` starts: it imports nothing but `io`, `sys`, `os` and
`importlib`, which the interpreter has loaded already.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module

from onecopy import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

FRAMEWORKS = {
    "faiss": "faiss",
    "hnswlib": "hnswlib",
    "joblib": "joblib",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "safetensors.numpy": "safetensors",
    "safetensors.torch": "safetensors",
    "torch": "torch",
    "torch._dynamo.trace_rules": "dynamo",
    "transformers.modeling_utils": "transformers",
    "usearch.index": "usearch",
}
"""Modules whose functions are replaced, and the module of `onecopy.frameworks.hooks` whose `apply` does that."""

SWITCH = "ONECOPY_AUTO"
"""Environment variable; "0" switches everything off."""


def install() -> None:
    """Replace functions of the frameworks that are imported, and of others when they are; repeated calls do nothing."""
    if os.environ.get(SWITCH) == "0" or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in FRAMEWORKS:
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            _apply(module)


def _apply(module: ModuleType) -> None:
    """Replace the functions of one framework; if that fails, the framework stays as it is, and the report has why."""
    try:
        import_module(f"onecopy.frameworks.hooks.{FRAMEWORKS[module.__name__]}").apply(module)
    except Exception as error:  # any: the program must run as without this module
        _note_failure(f"import {module.__name__}", error)


class _Finder:
    """The first entry of ``sys.meta_path``: finds what the other entries find, and adds a step after the import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a framework, whose loader calls `_apply`; None for any other module."""
        if name not in FRAMEWORKS:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    _apply_after_import(name, spec.loader)
                return spec
        return None


def _apply_after_import(name: str, loader: Any) -> None:
    """Let a loader call `_apply` when it has imported a framework, once; it stays the same object."""
    if (names := getattr(loader, "frameworks_of_onecopy", None)) is not None:  # of a zip file: one for all its modules
        names.add(name)
        return
    names = loader.frameworks_of_onecopy = {name}
    exec_module = loader.exec_module

    def import_and_apply(module: ModuleType) -> None:
        is_framework = module.__name__ in names
        names.discard(module.__name__)
        if not names:
            del loader.exec_module, loader.frameworks_of_onecopy
        exec_module(module)
        if is_framework:
            _apply(module)

    loader.exec_module = import_and_apply


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function of a module or class by ``make(function)``, which keeps its name, docstring and signature."""
    from functools import update_wrapper

    original = getattr(owner, name)
    if not hasattr(original, "replaced_by_onecopy"):
        made: Any = make(original)
        if type(original) is type(len):  # a function in C binds to no object, also if a class has it as an attribute
            methods = {"__reduce__": lambda self: self.__name__, "__repr__": lambda _: repr(original)}
            made = type("function", (), {"__call__": staticmethod(made), **methods})()
        function = getattr(made, "__func__", made)  # of a class method
        update_wrapper(function, original)
        if not hasattr(original, "__module__"):  # a method in C: pickles have the name of the class that has it here
            function.__module__, function.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
        function.replaced_by_onecopy = True
        setattr(owner, name, made)


def replace_where_shared(owner: Any, name: str, shared: Callable[..., Any]) -> None:
    """Replace a function by one that returns what ``shared(...)`` returns; if that is None or fails, by itself.

    A failure of `shared` is reported if the function itself succeeds. Its errors are raised outside of any handler, so
    that they have the context that they have without onecopy.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            value, failure = None, None
            try:
                value = shared(*args, **kwargs)
            except Exception as error:  # any: the framework reads the file, or raises its own error
                failure = error.with_traceback(None)
            if value is None:
                value = original(*args, **kwargs)
                if failure is not None:
                    _note_failure(f"{owner.__name__}.{name}", failure)
            return value

        return function

    replace(owner, name, make)


def call_before(owner: Any, name: str, step: Callable[..., None]) -> None:
    """Replace a function by one that calls ``step`` with its arguments first, whether that fails or not."""

    def shared(*args: Any, **kwargs: Any) -> None:
        step(*args, **kwargs)

    replace_where_shared(owner, name, shared)


def guarded(name: str, step: Callable[..., Any], *args: Any) -> Any:
    """Return what a step around a call of the function `name` returns; None if it fails, which is reported."""
    try:
        return step(*args)
    except Exception as error:  # any: the program must run as without this module
        _note_failure(name, error)
        return None


def _note_failure(name: str, error: Exception) -> None:
    run.note_failure(name, error)


def descriptor_of(file: Any) -> int | None:
    """Return the descriptor of a file that Python's own `open` opened for reading bytes; None for any other object.

    Only these exact types read from their descriptor what is in the file: a subclass or a wrapper may decode it.
    """
    raw = file.raw if type(file) is io.BufferedReader else file
    return raw.fileno() if type(raw) is io.FileIO and not raw.closed and raw.readable() else None
