"""`onnxruntime.InferenceSession` uses weights that are prepacked once per machine, and mapped."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from onecopy.auto.hooks import replace
from onecopy.runs.call_log import note

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from onecopy.integrations.onnxruntime._ladder import Opening

SESSION = "onnxruntime.InferenceSession"


def apply(onnxruntime: ModuleType) -> None:
    """Replace the initialization of `InferenceSession`; the class stays the same."""
    replace(onnxruntime.InferenceSession, "__init__", _init)


def _init(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(  # noqa: N807
        self: Any, path_or_bytes: Any, sess_options: Any = None, providers: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        opening = None
        if isinstance(path_or_bytes, (str, os.PathLike)) and not type(self).__module__.startswith("onecopy."):
            opening = _prepacked(os.fspath(path_or_bytes), sess_options, providers, kwargs)
        if opening is None:
            original(self, path_or_bytes, sess_options, providers, *args, **kwargs)
            return
        from onecopy.integrations.onnxruntime import _options
        from onecopy.store.fork import trim_heap

        try:
            options = _options.copied(sess_options, opening.entries)
            original(self, opening.model, options, providers, *args, **{**kwargs, "enable_fallback": 0})
        except Exception as error:  # any: the session is made as without this module
            opening.close()
            _note_read(str(path_or_bytes), f"the session on prepacked weights failed: {error}")
            original(self, path_or_bytes, sess_options, providers, *args, **kwargs)
            return
        self._enable_fallback = int(kwargs.get("enable_fallback", 1)) == 1
        # `set_providers` makes the session again: from the file, as without this module.
        self._model_path, self._model_bytes, self._sess_options_initial = os.fspath(path_or_bytes), None, sess_options
        self._opened_by_onecopy = opening  # its mappings live as long as the session
        trim_heap()
        _note_shared(path_or_bytes, opening)

    return __init__


def _prepacked(path: str, options: Any, providers: Any, given: dict[str, Any]) -> Opening | None:
    """Return how a session uses prepacked weights, made if the store lacks them; None if it reads the file."""
    from onecopy.errors import FormatError
    from onecopy.integrations.onnxruntime import _ladder

    optimizers = tuple(sorted(given.get("disabled_optimizers") or ()))
    request = _ladder.Request(path, options, providers, optimizers, wait=True, store=None)
    try:
        opening = _ladder.auto(request)
    except (_ladder.Unfit, OSError, FormatError) as error:  # ONNX Runtime reads the file, or raises its own error
        _note_read(path, str(error))
        return None
    if opening.mode != "read":
        return opening
    opening.close()
    _note_read(path, opening.reason.removeprefix("auto: "))
    return None


def _note_shared(path: str, opening: Opening) -> None:
    from onecopy.integrations.onnxruntime._report import mapped_files

    note(SESSION, os.path.abspath(path), shared=sum(file.bytes for file in mapped_files(opening.files)))  # noqa: PTH100


def _note_read(path: str, reason: str) -> None:
    with suppress(OSError):  # ONNX Runtime raises an error for this path
        note(SESSION, os.path.abspath(path), copied=os.stat(path).st_size, reason=reason)  # noqa: PTH100, PTH116
