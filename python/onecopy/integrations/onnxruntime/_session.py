"""`session`: an `onnxruntime.InferenceSession` on a rung of the ladder, with a report of how it was made."""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import onnxruntime

from onecopy import page_cache
from onecopy.arguments import path_text
from onecopy.errors import FormatError
from onecopy.integrations.onnxruntime import _ladder, _options
from onecopy.integrations.onnxruntime._report import Report, anonymous_memory, mapped_files, private_of
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
    """An `onnxruntime.InferenceSession` that says how it was made, and can be closed. Made by `session`.

    Threads: as ONNX Runtime has it, any may call `run`. `close` is for when none does.
    """

    onecopy: Report
    """How it was made."""
    warming: WarmJob | None = None
    """What brings its file into memory, where that was asked for."""

    def __init__(self, opening: _ladder.Opening, sess_options: onnxruntime.SessionOptions | None, **given: Any) -> None:
        self._opening = opening
        options = sess_options
        if opening.mode != "read":
            options = _options.copied(sess_options, opening.entries)
            if opening.buffers:
                views = [view for _, view in opening.buffers]
                names = [name for name, _ in opening.buffers]
                options.add_external_initializers_from_files_in_memory(names, views, [len(view) for view in views])
            given.setdefault("enable_fallback", 0)  # it would print, and try what cannot work
        super().__init__(opening.model, options, **given)
        if opening.owned and not opening.keeps:
            # A later `set_providers` makes the session again: of the file, as the mapping is gone by then.
            self._model_path, self._model_bytes = opening.files[0], None
            self._sess_options = self._sess_options_initial = sess_options
            opening.close()

    def close(self) -> None:
        """End the engine's session and let go of the mapping; closing twice is fine. Whoever calls `run` then is told.

        Outputs stay as they are: they are no views of weights.
        """
        # What describes inputs and outputs keeps the engine's session alive, and with it what that has mapped.
        for name in self.__dict__.keys() - {"_opening", "onecopy", "warming"}:
            del self.__dict__[name]
        self._opening.close()

    def __getattr__(self, name: str) -> NoReturn:
        if "_opening" in self.__dict__ and "_sess" not in self.__dict__ and name.startswith("_"):
            raise ValueError("the session was closed")
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
    """Make an ONNX Runtime session whose weights are one copy for all processes of the machine.

    Parameters
    ----------
    path
        A model: ``.onnx``, with its weights inside or in files of external data, or ``.ort``.
    mode
        "read", and so None: ONNX Runtime, untouched; of None the report says what "auto" would do. "map": read through
        a mapping that is gone afterwards. "direct": weights are used where they lie, not prepacked. "prepacked": with
        weights that were prepacked once on this host. "auto": "prepacked" if they have been; else "read", and a child
        prepacks them, unless they are less than 16 MiB. What cannot be had becomes "read", and the report says why.
    sess_options
        Yours, and used as they are; they are not changed. Custom operators in them cannot be copied: then it is "read".
    providers, provider_options
        As of `onnxruntime.InferenceSession`. Prepacked weights are those of the CPU provider.
    wait
        For "prepacked" and "auto", and for "direct" of files whose weights are not aligned: prepack now, in a child, or
        wait for the process that does. False: this session begins on a lower rung, while a child prepacks in the
        background.
    warm
        Bring the file into memory meanwhile: `Session.warming` is the `WarmJob`.
    max_bytes
        Bytes to bring in at most; None: what memory is available.
    store
        Where prepacked weights are kept: a `onecopy.Store` or a folder; None: the default folder on disk.
    **given
        What else `onnxruntime.InferenceSession` takes.

    Returns
    -------
    Session
        Its attribute ``onecopy`` is a `Report`: the rung and the reason, bytes mapped (of ``/proc/self/maps``), bytes
        of private memory (None where that is not known), what was copied and why, what not prepacking costs on this
        host.

    Raises
    ------
    onnxruntime's own errors
        The model is missing, damaged, or not one that it can run; nothing stays mapped.
    ModuleNotFoundError
        ONNX Runtime is not installed: raised by ``oc.onnxruntime`` itself.
    ValueError
        There is no such mode.

    Examples
    --------
    >>> import onecopy as oc
    >>> with oc.onnxruntime.session("model.onnx", "auto") as session:  # doctest: +SKIP
    ...     print(session.onecopy)
    model.onnx: read (auto: 2.33 MB of weights are not worth more: below 16.8 MB it takes what was prepacked, ...)
      made in 38 ms; the process grew by 9.1 MB of private memory
      nothing of it is mapped
    """
    if mode is not None and mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    start, before = monotonic(), anonymous_memory()
    request = _ladder.Request(
        path_text(path),
        sess_options,
        providers,
        tuple(sorted(given.get("disabled_optimizers") or ())),
        wait,
        store,
    )
    given = given | {"providers": providers, "provider_options": provider_options}
    if warm and mode in (None, "read"):
        with suppress(OSError, FormatError), _ladder.looked_at(request):  # for its external data
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
    """Return how the session is to be made: on the rung that was asked for, or, with the reason, as "read"."""
    rungs = {"map": _ladder.mapped, "direct": _ladder.direct, "prepacked": _ladder.prepacked, "auto": _ladder.auto}
    if mode is None or mode == "read":
        return _ladder.read(request, _ladder.AS_ASKED if mode else _ladder.BY_DEFAULT)
    try:
        return rungs[mode](request)
    except (_ladder.Unfit, OSError, FormatError) as error:
        return _ladder.read(request, f"{mode!r} cannot be had: {error}")


def _made(request: _ladder.Request, opening: _ladder.Opening, given: dict[str, Any]) -> Session:
    """Make the session; what a rung cannot do, ONNX Runtime does untouched."""
    try:
        return Session(opening, request.sess_options, **given)
    except Exception as error:
        opening.close()
        if opening.mode == "read":
            if opening.reason not in (_ladder.AS_ASKED, _ladder.BY_DEFAULT):
                error.add_note(f"onecopy: {opening.reason}")
            raise
        why = str(error).strip().splitlines() or [repr(error)]
        return Session(_ladder.read(request, f"{opening.mode!r} failed: {why[0]}"), request.sess_options, **given)


def _warming(opening: _ladder.Opening, max_bytes: int | str | None) -> WarmJob | None:
    """Begin to bring in the file that most of the session is made from."""
    try:
        if opening.mode == "prepacked":
            return page_cache.warm(opening.files[0], max_bytes=max_bytes, wait=False)
        largest = max(opening.owned or opening.files, key=_size_of)
        return page_cache.warm(largest, max_bytes=max_bytes, wait=False)
    except OSError:  # the session itself will say so
        return None


def _size_of(file: str | FileMapping) -> int:
    path = file if isinstance(file, str) else file.path
    return os.stat(path).st_size  # noqa: PTH116


def _report(
    request: _ladder.Request, asked: Mode, opening: _ladder.Opening, seconds: float, before: int | None
) -> Report:
    after, mapped = anonymous_memory(), mapped_files(opening.files)
    weights = request.looked_at.weights if request.looked_at else None
    certain = sum(weight.bytes for weight in opening.copied)
    if opening.mode in ("read", "map"):  # all that is not mapped is copied
        certain = (weights or 0) - sum(file.bytes for file in mapped)
    return Report(
        path=request.path,
        asked=asked,
        mode=opening.mode,
        reason=opening.reason,
        seconds=seconds,
        weights=weights,
        private=private_of(None if before is None or after is None else after - before, certain),
        mapped=mapped,
        copied=opening.copied,
        latency=opening.latency,
    )
