"""Makes `onnxruntime.InferenceSession` map weights that are prepacked once per machine.

Session options cannot be inspected, but they may contain weights, custom operators, or entries that determine how a
model is optimized. Therefore, calls of their methods are recorded. Prepacked weights are used only if all settings are
known, which requires that the options were created after the methods had been replaced.

**Not shared:** sessions whose options (see `_why_read`) or model (see `sessions`) do not allow it.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from onecopy.run.call_log import name_of, note, note_read
from onecopy.run.hooks import guarded, replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from onecopy_onnxruntime.sessions import Opening

SESSION = "onnxruntime.InferenceSession"
_READERS = ("get_session_config_entry", "has_providers")
"""Methods that do not change session options."""
_settings: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""For options whose settings are all known: names of the entries that were set and the methods that were called."""


def apply(onnxruntime: ModuleType) -> None:
    """Replace the initialization of `InferenceSession`, and record settings of `SessionOptions`."""
    kind = onnxruntime.SessionOptions
    for name, method in list(vars(kind).items()):
        if name == "__init__" or (callable(method) and not name.startswith("_") and name not in _READERS):
            replace(kind, name, partial(_recorded, kind, name))
    replace(onnxruntime.InferenceSession, "__init__", _init)


def _recorded(kind: type[Any], name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def record(self: Any, args: Any) -> None:
        if type(self) is kind and self in _settings:
            _settings[self].add(str(args[0]) if name == "add_session_config_entry" and args else name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        guarded(f"onnxruntime.SessionOptions.{name}", record, self, args)
        done = original(self, *args, **kwargs)
        if type(self) is kind and name == "__init__":
            _settings.setdefault(self, set())
        return done

    return method


def _init(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(  # noqa: N807
        self: Any, path_or_bytes: Any, sess_options: Any = None, providers: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        opening = None
        if isinstance(path_or_bytes, (str, os.PathLike)) and not type(self).__module__.startswith(
            "onecopy_onnxruntime."
        ):
            opening = _prepacked_opening(path_or_bytes, sess_options, providers, kwargs)
        given = self, path_or_bytes, sess_options, providers, *args
        if opening is None or not _open_prepacked(opening, original, given, kwargs):
            original(*given, **kwargs)

    return __init__


def _open_prepacked(opening: Opening, original: Callable[..., None], given: Any, kwargs: dict[str, Any]) -> bool:
    """Initialize a session on prepacked weights. If that fails, report the reason and return False."""
    from onecopy.store.fork import trim_heap
    from onecopy_onnxruntime import options as session_options, sessions

    session, path, options, providers, *args = given
    try:
        ours = session_options.copied(options, opening.entries)
        original(session, opening.model, ours, providers, *args, **{**kwargs, "enable_fallback": 0})
        session._sess_options = session_options.copied(options, {})
        session._enable_fallback = int(kwargs.get("enable_fallback", 1)) == 1
        # `set_providers` creates the session again: from the file, as without this module.
        session._model_path, session._model_bytes, session._sess_options_initial = os.fspath(path), None, options
        session._opened_by_onecopy = opening  # its mappings live as long as the session
        shared = sum(file.bytes for file in sessions.mapped_files(opening.files))
    except Exception as error:  # any: the session is created as without this module
        opening.close()
        note_read(SESSION, path, f"cannot create a session on prepacked weights: {error}")
        return False
    trim_heap()
    note(SESSION, name_of(path), shared=shared)
    return True


def _prepacked_opening(path: Any, options: Any, providers: Any, given: dict[str, Any]) -> Opening | None:
    """Return how to open prepacked weights, creating them if necessary, or None if the session should read the file."""
    from onecopy_onnxruntime import sessions

    try:
        reason = _why_read(options, given)
        if not reason:
            optimizers = tuple(sorted(given.get("disabled_optimizers") or ()))
            opening = sessions.auto(sessions.Request(os.fsdecode(path), options, providers, optimizers, True, None))
            if opening.mode != "read":
                return opening
            opening.close()
            reason = opening.reason.removeprefix("auto: ")
    except Exception as error:  # any: ONNX Runtime reads the file, or raises its own error
        reason = str(error)
    note_read(SESSION, path, reason)
    return None


def _why_read(options: Any, given: dict[str, Any]) -> str:
    """Return why a session with these arguments must read its model, or "" if it does not have to."""
    from onecopy_onnxruntime import options as session_options

    if given.get("read_config_from_model", os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL")):
        return "the session options may be part of the model"
    if options is None:
        return ""
    if options not in _settings:
        return "the session options are a copy, or were created before onecopy.auto was imported"
    if options.optimized_model_filepath or options.enable_profiling:
        return "the session writes its optimized model or a profile"
    others = sorted(_settings[options].difference(session_options.DECIDING, session_options.OTHER_THAN_RESULTS))
    return f"the session options contain {', '.join(others)}" if others else ""
