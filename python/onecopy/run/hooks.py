"""Replace functions of frameworks right after the program imports them.

Every process under `onecopy run` loads this module at its start, so it imports only modules already loaded by Python.
"""

from __future__ import annotations

import io
import os
import sys

from onecopy import run
from onecopy.base import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

FRAMEWORKS = {
    "faiss": "onecopy.frameworks.hooks.faiss",
    "hnswlib": "onecopy.frameworks.hooks.hnswlib",
    "joblib": "onecopy.frameworks.hooks.joblib",
    "numpy": "onecopy.frameworks.hooks.numpy",
    "onnxruntime": "onecopy_onnxruntime.hook",
    "safetensors.numpy": "onecopy.frameworks.hooks.safetensors",
    "safetensors.torch": "onecopy.frameworks.hooks.safetensors",
    "torch": "onecopy.frameworks.hooks.torch",
    "torch._dynamo.trace_rules": "onecopy.frameworks.hooks.torch",
    "transformers.modeling_utils": "onecopy.frameworks.hooks.transformers",
    "usearch.index": "onecopy.frameworks.hooks.usearch",
}
"""Modules whose functions are replaced, and the modules whose `apply` replaces them, some in other distributions."""

SWITCH = "ONECOPY_AUTO"
"""Environment variable. If its value is "0", nothing is replaced."""


def install() -> None:
    """Replace functions of frameworks, now or when they are imported. Repeated calls have no effect."""
    if os.environ.get(SWITCH) == "0" or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in FRAMEWORKS:
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            _apply(module)


def _apply(module: ModuleType) -> None:
    """Replace the functions of a framework, or log why that failed."""
    call = f"import {module.__name__}"
    try:
        lazy.load(FRAMEWORKS[module.__name__]).apply(module)
    except ModuleNotFoundError as error:
        run.note(call, "", reason=f"its models are not shared, because {error}")
    except Exception as error:  # the program must run as it would without onecopy
        run.note_failure(call, error)


class _Finder:
    """Finds frameworks with the other entries of ``sys.meta_path``, and adds a step to their import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a framework with a loader that calls `_apply`, or None for other modules."""
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
    """Make a loader call `_apply` once, after it has imported a framework."""
    if (names := getattr(loader, "frameworks_of_onecopy", None)) is not None:  # a zip file has one loader
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
    """Replace a function of a module or class with ``make(function)``, keeping its name, docstring and signature."""
    from functools import update_wrapper

    original = getattr(owner, name)
    if not hasattr(original, "replaced_by_onecopy"):
        made: Any = make(original)
        if type(original) is type(len):  # functions in C do not become methods of a class
            methods = {"__reduce__": lambda self: self.__name__, "__repr__": lambda _: repr(original)}
            made = type("function", (), {"__call__": staticmethod(made), **methods})()
        function = getattr(made, "__func__", made)  # of a class method
        update_wrapper(function, original)
        if not hasattr(original, "__module__"):  # a method in C: pickles name the class
            function.__module__, function.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
        function.replaced_by_onecopy = True
        setattr(owner, name, made)


def replace_where_shared(owner: Any, name: str, shared: Callable[..., Any]) -> None:
    """Replace a function with ``shared``. If ``shared`` returns None or fails, the original is called.

    A failure is logged if the original succeeds. The original runs outside of any exception handler, so that
    onecopy's errors do not become the context of the original's errors.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            value, failure = None, None
            try:
                value = shared(*args, **kwargs)
            except Exception as error:  # the framework reads the file, or raises its own error
                failure = error.with_traceback(None)
            if value is None:
                value = original(*args, **kwargs)
                if failure is not None:
                    run.note_failure(f"{owner.__name__}.{name}", failure)
            return value

        return function

    replace(owner, name, make)


def call_before(owner: Any, name: str, step: Callable[..., None]) -> None:
    """Make a function call ``step`` with its arguments first. If ``step`` fails, the function still runs."""

    def shared(*args: Any, **kwargs: Any) -> None:
        step(*args, **kwargs)

    replace_where_shared(owner, name, shared)


def guarded(name: str, step: Callable[..., Any], *args: Any) -> Any:
    """Return the result of ``step``, a part of a call to ``name``. If it fails, log the error and return None."""
    try:
        return step(*args)
    except Exception as error:  # the program must run as it would without onecopy
        run.note_failure(name, error)
        return None


def descriptor_of(file: Any) -> int | None:
    """Return the descriptor of a file that `open` has opened for reading in binary mode, or None for other objects.

    Subclasses and wrappers may decode the file, so only the exact types count.
    """
    raw = file.raw if type(file) is io.BufferedReader else file
    return raw.fileno() if type(raw) is io.FileIO and not raw.closed and raw.readable() else None
