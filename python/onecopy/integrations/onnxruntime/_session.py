"""`session`: an `onnxruntime.InferenceSession` with shared weights, and a report of how it was made."""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import onnxruntime

from onecopy import page_cache
from onecopy.errors import FormatError
from onecopy.integrations.onnxruntime import _ladder, _options
from onecopy.integrations.onnxruntime._ladder import Report, anonymous_memory, mapped_files, private_of
from onecopy.remote import local
from onecopy.store.fork import trim_heap

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from onecopy.files import Mapping as FileMapping
    from onecopy.page_cache import WarmJob
    from onecopy.store import Store

Mode: TypeAlias = Literal["read", "map", "direct", "prepacked", "auto"]

_MODES = ("read", "map", "direct", "prepacked", "auto")


class Session(onnxruntime.InferenceSession):  # type: ignore[misc]  # has no types
    """An `onnxruntime.InferenceSession` with a report and `close`. `session` returns it.

    Threads: any thread may call `run`, as with ONNX Runtime. Call `close` when no thread is in `run`.
    """

    onecopy: Report
    """Report of how the session was made."""
    warming: WarmJob | None = None
    """The job that reads the model file into memory, with ``warm=True``; else None."""

    def __init__(self, opening: _ladder.Opening, sess_options: onnxruntime.SessionOptions | None, **given: Any) -> None:
        self._opening = opening
        options = sess_options
        if opening.mode != "read":
            options = _options.copied(sess_options, opening.entries)
            if opening.buffers:
                views = [view for _, view in opening.buffers]
                names = [name for name, _ in opening.buffers]
                options.add_external_initializers_from_files_in_memory(names, views, [len(view) for view in views])
            given.setdefault("enable_fallback", 0)  # the fallback prints, and retries what cannot succeed
        super().__init__(opening.model, options, **given)
        if opening.owned and not opening.keeps:
            # `set_providers` makes the session again: from the file, as the mapping is released.
            self._model_path, self._model_bytes = opening.files[0], None
            self._sess_options = self._sess_options_initial = sess_options
            opening.close()

    def close(self) -> None:
        """Release the session of ONNX Runtime and the mapping. Closing twice has no effect.

        Afterwards `run` raises ValueError. Outputs stay valid: they are no views of weights.
        """
        # Descriptions of inputs and outputs keep the engine's session and its mappings alive.
        for name in self.__dict__.keys() - {"_opening", "onecopy", "warming"}:
            del self.__dict__[name]
        self._opening.close()

    def __getattr__(self, name: str) -> NoReturn:
        if "_opening" in self.__dict__ and "_sess" not in self.__dict__ and name.startswith("_"):
            raise ValueError("the session is closed")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __del__(self) -> None:
        if "_opening" in self.__dict__:
            self.close()  # the engine's session first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        report = self.__dict__.get("onecopy")
        return f"<onecopy.onnxruntime.Session {report.path!r}, {report.mode}>" if report else object.__repr__(self)


def session(
    path: str | os.PathLike[str],
    mode: Mode | None = None,
    *,
    sess_options: onnxruntime.SessionOptions | None = None,
    providers: Sequence[Any] | None = None,
    provider_options: Sequence[dict[Any, Any]] | None = None,
    wait: bool = False,
    warm: bool = False,
    max_bytes: int | str | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    **given: Any,
) -> Session:
    """Make an ONNX Runtime session whose weights all processes of the machine share.

    Parameters
    ----------
    path
        Path of a model: ``.onnx``, with weights inside or in external data files, or ``.ort``.
    mode
        "read", and None: ONNX Runtime without changes. "map": read through a mapping that is released afterwards.
        "direct": weights are used in the mapping, not prepacked. "prepacked": weights are prepacked once per machine.
        "auto": "prepacked" if that is ready; else "read", while a child prepacks models of 16 MiB and more. An
        unavailable mode becomes "read"; the report has the reason.
    sess_options
        Session options; they are not changed. Options with custom operators, weights in memory or a path of the
        optimized model: the mode becomes "read".
    providers, provider_options
        Arguments of `onnxruntime.InferenceSession`. Prepacked weights are for the CPU execution provider.
    wait
        For "prepacked", "auto", and "direct" with misaligned weights: True prepacks now in a child, or waits for the
        process that does. False makes this session as "read" while a child prepacks in the background.
    warm
        Read the model file into memory in the background; `Session.warming` is the `WarmJob`.
    max_bytes
        Maximum bytes that `warm` reads; None: the available memory.
    store
        Where prepacked weights are kept: a `onecopy.Store` or a folder; None: the default folder on disk.
    **given
        Other arguments of `onnxruntime.InferenceSession`.

    Returns
    -------
    Session
        Its attribute ``onecopy`` is a `Report`: the mode and its reason, mapped bytes, growth of private memory (None
        if unknown), and copied weights with reasons.

    Raises
    ------
    onnxruntime's own errors
        The model is missing, damaged or not supported; nothing stays mapped.
    ModuleNotFoundError
        ONNX Runtime is not installed; raised when ``oc.onnxruntime`` is first used.
    ValueError
        The mode is unknown.

    Examples
    --------
    >>> import onecopy as oc
    >>> with oc.onnxruntime.session("model.onnx", "auto") as session:  # doctest: +SKIP
    ...     print(session.onecopy)
    model.onnx: read (auto: the model has 2.33 MB of weights, and auto prepacks from 16.8 MB on; ...)
      made in 38 ms; the process grew by 9.1 MB of private memory
      no file of the model is mapped
    """
    if mode is not None and mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    start, before = monotonic(), anonymous_memory()
    request = _ladder.Request(
        local(path),
        sess_options,
        providers,
        tuple(sorted(given.get("disabled_optimizers") or ())),
        wait,
        store,
    )
    given = given | {"providers": providers, "provider_options": provider_options}
    if warm and mode in (None, "read"):  # for the paths of its external data
        with suppress(OSError, FormatError, _ladder.Unfit), _ladder.parsed(request):
            pass
    opening = _planned(request, mode)
    warming = _warming(opening, max_bytes) if warm else None
    made = _made(request, opening, given)
    if made._opening.trims:
        trim_heap()
    made.warming = warming
    made.onecopy = _report(request, mode or "read", made._opening, monotonic() - start, before)
    return made


def _planned(request: _ladder.Request, mode: Mode | None) -> _ladder.Opening:
    """Return the opening for the requested mode; if it is unavailable, for "read" with the reason."""
    rungs = {"map": _ladder.mapped, "direct": _ladder.direct, "prepacked": _ladder.prepacked, "auto": _ladder.auto}
    if mode is None or mode == "read":
        return _ladder.read(request, _ladder.AS_REQUESTED if mode else _ladder.BY_DEFAULT)
    try:
        if request.sess_options is not None and request.sess_options.optimized_model_filepath:
            raise _ladder.Unfit("the session options write the optimized model, which would refer to other files")
        return rungs[mode](request)
    except (_ladder.Unfit, OSError, FormatError) as error:
        return _ladder.read(request, f"mode {mode!r} is unavailable: {error}")


def _made(request: _ladder.Request, opening: _ladder.Opening, given: dict[str, Any]) -> Session:
    """Make the session; if the mode fails, make it as "read"."""
    try:
        return Session(opening, request.sess_options, **given)
    except Exception as error:
        opening.close()
        if opening.mode == "read":
            if opening.reason not in (_ladder.AS_REQUESTED, _ladder.BY_DEFAULT):
                error.add_note(f"onecopy: {opening.reason}")
            raise
        why = str(error).strip().splitlines() or [repr(error)]
        return Session(_ladder.read(request, f"mode {opening.mode!r} failed: {why[0]}"), request.sess_options, **given)


def _warming(opening: _ladder.Opening, max_bytes: int | str | None) -> WarmJob | None:
    """Start to read the largest file of the session into memory; None if it cannot be opened."""
    try:
        if opening.mode == "prepacked":
            return page_cache.warm(opening.files[0], max_bytes=max_bytes, wait=False)
        largest = max(opening.owned or opening.files, key=_size_of)
        return page_cache.warm(largest, max_bytes=max_bytes, wait=False)
    except OSError:  # making the session raises the error
        return None


def _size_of(file: str | FileMapping) -> int:
    path = file if isinstance(file, str) else file.path
    return os.stat(path).st_size  # noqa: PTH116


def _report(
    request: _ladder.Request, requested: Mode, opening: _ladder.Opening, seconds: float, before: int | None
) -> Report:
    after, mapped = anonymous_memory(), mapped_files(opening.files)
    weights = request.model.weights if request.model else None
    certain = sum(weight.bytes for weight in opening.copied)
    if opening.mode in ("read", "map"):  # weights that are not mapped are copied
        certain = (weights or 0) - sum(file.bytes for file in mapped)
    return Report(
        path=request.path,
        requested=requested,
        mode=opening.mode,
        reason=opening.reason,
        seconds=seconds,
        weights=weights,
        private=private_of(None if before is None or after is None else after - before, certain),
        mapped=mapped,
        copied=opening.copied,
    )
