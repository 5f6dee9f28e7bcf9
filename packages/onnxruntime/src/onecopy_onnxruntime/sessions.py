"""`session`: create an `onnxruntime.InferenceSession` with shared weights, in one of several modes, with a report."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeAlias, get_args

import onnxruntime

from onecopy import _core
from onecopy.arrays.open_mode import AS_REQUESTED
from onecopy.base.load_report import Copied, lines_of
from onecopy.base.text import size
from onecopy.errors import Error, FormatError
from onecopy.files import page_cache
from onecopy.files.companions import paths_of
from onecopy.files.mapping import Closeable, Mapping as FileMapping
from onecopy.memory import proc
from onecopy.store.fork import trim_heap
from onecopy.store.location import file_of
from onecopy.store.store import Store, default_folder, free_on
from onecopy_onnxruntime import options as session_options, prepacking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from onecopy.files.page_cache import WarmJob


MIN_TO_PREPACK = 16 << 20
"""Minimum size of the weights that `auto` prepacks. Existing prepacked weights are used whatever their size."""
MIN_TO_ALIGN = 1 << 18
"""Minimum number of misaligned bytes for which `direct` uses an aligned copy in the store."""
_DEFAULT_REASON = (
    "the default: ONNX Runtime works as usual, with a copy of the weights in each process; mode='auto' shares weights "
    "that were prepacked once per machine, if the weights have at least 16 MiB"
)
_PEAK_MEMORY = 4
"""Approximate peak memory of the child that prepacks, as a multiple of the size of the weights."""
_MAX_DISK = 2.5
"""Maximum size of the artefact, as a multiple of the size of the weights."""
_CPU_PROVIDERS = {"CPUExecutionProvider", "AzureExecutionProvider"}
_INSIDE = "model"
"""Location that represents the model file itself, in a model without its data."""
_MIN_IN_PLACE = 1024
"""Minimum size in bytes of weights that are used in place. Smaller weights stay in the model and are copied."""


class UnavailableError(Error):
    """A mode cannot be used; the message states the reason."""


class Tensor(NamedTuple):
    """A constant in an ONNX model, as returned by `onecopy._core.parse_onnx`."""

    name: str
    type: str
    dtype: str | None
    shape: Sequence[int]
    storage: str
    offset: int
    bytes: int
    location: str
    is_initializer: bool

    @property
    def why_copied(self) -> str:
        """Why ONNX Runtime copies the tensor, or "" if it is used in place."""
        if not self.is_initializer:
            return "a constant of a node, or of the body of a control-flow node"
        if self.storage == "coded":
            return "stored in an encoding that has to be decoded"
        if self.storage == "in place" and self.bytes < _MIN_IN_PLACE:
            return f"smaller than {_MIN_IN_PLACE} bytes"
        alignment = max(self.bytes // max(prod(self.shape), 1), 1)  # the size of an element
        if self.offset % alignment:
            return f"begins at byte {self.offset} of the file, which is not a multiple of {alignment}"
        return ""


@dataclass
class Request:
    """A model, and the arguments of `session` for it."""

    path: str
    sess_options: onnxruntime.SessionOptions | None
    providers: Sequence[Any] | None
    disabled_optimizers: tuple[str, ...]
    wait: bool
    store: Store | str | os.PathLike[str] | None
    tensors: tuple[Tensor, ...] | None = None
    """Constants in an ``.onnx`` model, or None until `parse` has read them. Empty for ``.ort``."""

    def parse(self) -> None:
        """Locate the weights. Raise UnavailableError if options contain any, and the same errors as `onecopy.open`."""
        if self.tensors is not None:
            return
        if self.is_ort:  # options cannot replace its weights, so they are not searched
            self.tensors = ()
            return
        with FileMapping(self.path) as mapping:
            rows = _core.parse_onnx(mapping.core)["tensors"]
        self.tensors = tuple(Tensor(*row) for row in rows)  # type: ignore[attr-defined]
        sizes = dict(zip(self.locations, map(os.path.getsize, self.files[1:]), strict=True))
        for one in self.tensors:
            end = one.offset + one.bytes
            if one.storage == "external" and end > sizes[one.location]:
                raise FormatError(
                    f"{one.name!r} needs bytes [{one.offset}, {end}) of {one.location}, which has "
                    f"{sizes[one.location]} bytes",
                    FormatError.Kind.OUT_OF_BOUNDS,
                    path=self.path,
                )
        if session_options.holds(self.sess_options, {one.name for one in self.tensors}, self.locations):
            raise UnavailableError("the session options contain weights of the model in memory, or cannot be copied")

    @cached_property
    def is_ort(self) -> bool:
        """Whether ONNX Runtime will read the model as ``.ort``, according to the options, or else the suffix."""
        given = session_options.entry(self.sess_options, "session.load_model_format")
        return (given or self.path[-4:]).lower() in ("ort", ".ort")

    @property
    def locations(self) -> tuple[str, ...]:
        """Names of the external data files in the model."""
        return tuple(dict.fromkeys(one.location for one in self.tensors or () if one.storage == "external"))

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the model and of its external data files."""
        return (self.path, *paths_of(os.path.abspath(self.path), self.locations))  # noqa: PTH100 - keeps links

    @property
    def weights(self) -> int:
        """Size of all constants in bytes, or the size of the file for ``.ort``."""
        return os.stat(self.path).st_size if self.is_ort else sum(one.bytes for one in self.tensors or ())  # noqa: PTH116

    @property
    def copied(self) -> tuple[Copied, ...]:
        """Constants that ONNX Runtime copies from mapped files, the largest first."""
        found = [Copied(one.name, one.bytes, one.why_copied) for one in self.tensors or () if one.why_copied]
        return tuple(sorted(found, key=lambda weight: -weight.bytes))

    @property
    def recipe(self) -> prepacking.Recipe:
        """The recipe of the prepacked weights."""
        options = session_options.deciding(self.sess_options)
        store = Store.of(self.store).with_options(where="here")
        return prepacking.Recipe(self.path, self.files, options, self.disabled_optimizers, store)


@dataclass
class Opening:
    """The data for creating a session in a mode."""

    mode: str
    reason: str
    model: str | bytes
    """Path of the model, or the serialized model."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Entries for the session options."""
    buffers: dict[str, memoryview] = field(default_factory=dict)
    """The bytes to pass to ONNX Runtime, by location in the model."""
    owned: list[FileMapping] = field(default_factory=list)
    """The mappings that `buffers` view."""
    files: tuple[str, ...] = ()
    """Files that the session may map."""
    copied: tuple[Copied, ...] = ()

    def close(self) -> None:
        """Release the mappings."""
        for view in self.buffers.values():
            with suppress(BufferError):  # options of ONNX Runtime still reference it
                view.release()
        self.buffers = {}
        for mapping in self.owned:
            mapping.close()


def read(request: Request, reason: str) -> Opening:
    """Have ONNX Runtime open the model as usual."""
    return Opening("read", reason, request.path, files=request.files)


def direct(request: Request) -> Opening:
    """Use the weights in the model's mapping."""
    request.parse()
    if request.is_ort:
        return Opening("direct", AS_REQUESTED, request.path, session_options.ORT_IN_PLACE, files=request.files)
    reason = AS_REQUESTED
    misaligned = sum(weight.bytes for weight in request.copied if weight.reason.startswith("begins"))
    if misaligned >= MIN_TO_ALIGN:
        try:
            reason = f"{AS_REQUESTED}; from an aligned copy in the store"
            return _of_artefact(_prepacked_weights(request), request, "direct", reason)
        except UnavailableError as error:
            reason = f"{AS_REQUESTED}; {size(misaligned)} of weights are misaligned in the file: {error}"
    opening = Opening("direct", reason, "", session_options.IN_PLACE, files=request.files, copied=request.copied)
    _map_files(opening, request)
    return opening


def prepacked(request: Request, reason: str = AS_REQUESTED) -> Opening:
    """Use the prepacked weights in the store."""
    request.parse()
    providers = request.providers or onnxruntime.get_available_providers()
    if not {one if isinstance(one, str) else one[0] for one in providers} <= _CPU_PROVIDERS:
        raise UnavailableError("prepacked weights require the CPU execution provider, but others were requested")
    if session_options.entry(request.sess_options, session_options.PREPACKING_OFF) == "1":
        raise UnavailableError("the session options disable prepacking")
    found = _prepacked_weights(request)
    if found.prepacked == 0:
        return _of_artefact(found, request, "direct", f"{reason}; no kernel of this model uses prepacked weights")
    return _of_artefact(found, request, "prepacked", reason)


def auto(request: Request) -> Opening:
    """Use the mode that saves the most memory without being slower than "read"."""
    request.parse()
    if request.weights < MIN_TO_PREPACK and not _is_prepacked(request):
        reason = f"the model has {size(request.weights)} of weights, and auto prepacks at least {size(MIN_TO_PREPACK)}"
        return read(request, f"auto: {reason}; mode='prepacked' prepacks any model")
    try:
        return prepacked(request, "auto: one copy for all processes, at full speed")
    except UnavailableError as error:
        return read(request, f"auto: {error}")


def _is_prepacked(request: Request) -> bool:
    """Return whether the store contains prepacked weights of the model for this machine and these options."""
    try:
        if not isinstance(request.store, Store) and not Path(request.store or default_folder()[0]).is_dir():
            return False  # `Store` would create the folder
        found = request.recipe.find()
    except OSError:  # the store cannot be read
        return False
    return found is not None and not found.failed


def _prepacked_weights(request: Request) -> prepacking.Prepacked:
    """Return the prepacked weights. Raise UnavailableError if they are not ready or cannot be created."""
    recipe = request.recipe
    found = recipe.find()
    if found is None:
        if obstacle := _missing_space(request.weights, recipe.store.folder):
            raise UnavailableError(obstacle)
        if not request.wait:
            if recipe.is_being_built():
                raise UnavailableError("another process is prepacking the weights")
            pid = prepacking.start_in_background(recipe)
            raise UnavailableError(f"process {pid} is prepacking the weights in the background")
        found = prepacking.prepack(recipe)
    if found.failed:
        raise UnavailableError(f"ONNX Runtime cannot save prepacked weights of this model: {found.failed}")
    return found


def _missing_space(weights: int, folder: Path) -> str:
    """Return why disk space or memory does not suffice for prepacking, or "" if both suffice."""
    needed, free = int(weights * _MAX_DISK), free_on(folder)
    if free is not None and free < needed:
        return f"prepacking needs {size(needed)} of disk space, but {folder} has {size(free)} free"
    left = _core.available_memory()
    if left is not None and left[0] < weights * _PEAK_MEMORY:
        return f"prepacking needs about {size(weights * _PEAK_MEMORY)} of memory, but {left[1]} leaves {size(left[0])}"
    return ""


def _of_artefact(found: prepacking.Prepacked, request: Request, mode: str, reason: str) -> Opening:
    """Return the `Opening` of a session on an artefact's prepacked ("prepacked") or plain ("direct") weights."""
    entries = {session_options.FOLDER: str(found.path.parent)}
    if mode == "direct":
        entries[session_options.PREPACKING_OFF] = "1"
    return Opening(mode, reason, found.model, entries, files=(str(found.path), *request.files))


def _map_files(opening: Opening, request: Request) -> None:
    """Store the model without its data in `opening`, with views of the files that contain the data."""
    try:
        for path in request.files:
            opening.owned.append(FileMapping(path))
        opening.model = _core.onnx_skeleton(opening.owned[0].core, _INSIDE, _MIN_IN_PLACE)
    except BaseException:
        opening.close()
        raise
    views = (memoryview(mapping.view()) for mapping in opening.owned)
    opening.buffers = dict(zip((_INSIDE, *request.locations), views, strict=True))


@dataclass(frozen=True, slots=True)
class Mapped:
    """One of the model's files that this process has mapped, according to ``/proc/self/maps``."""

    path: str
    bytes: int
    """Mapped bytes of address space. `onecopy.residency` reports how many of them are in memory."""


@dataclass(frozen=True, slots=True)
class Report:
    """A description of how a session was created. `str` returns a few lines of text."""

    path: str
    requested: str
    """The requested mode."""
    mode: str
    """The mode that was used: "read", "direct" or "prepacked"."""
    reason: str
    """Why this mode was used, as a sentence."""
    seconds: float
    """Time to create the session, in seconds."""
    weights: int | None
    """Size in bytes of all initializers, or None if the file was not parsed."""
    private: int | None
    """Growth of the process's anonymous memory, in bytes. None if the kernel does not report
    it, or if the heap had free memory, so that the growth is less than the copied bytes."""
    mapped: tuple[Mapped, ...]
    """The model's files that are mapped."""
    copied: tuple[Copied, ...] = ()
    """In mode "direct": weights that are not used in place, with the reasons."""

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.mode} ({self.reason})"]
        grown = "growth of private memory unknown: the heap had free memory"
        if self.private is not None:
            grown = f"the process grew by {size(self.private)} of private memory"
        lines.append(f"  created in {self.seconds * 1e3:.0f} ms; {grown}")
        lines += [f"  {size(file.bytes)} of {file.path} are mapped" for file in self.mapped]
        if not self.mapped:
            lines.append("  no file of the model is mapped")
        if self.copied:
            lines.append(f"  {size(sum(weight.bytes for weight in self.copied))} of weights are copied:")
            lines += [f"  {line}" for line in lines_of(self.copied)]
        return "\n".join(lines)


def mapped_files(paths: Iterable[str]) -> tuple[Mapped, ...]:
    """Return the files in `paths` that this process has mapped, with the number of mapped bytes."""
    files = {}
    for one in paths:
        with suppress(OSError):
            found = os.stat(one)  # noqa: PTH116 - text
            files[found.st_dev, found.st_ino] = one
    names = {os.path.realpath(path): path for path in files.values()}  # on overlayfs, maps has another device than stat
    marks = [f" {inode} " for _, inode in files] + [os.path.basename(name) for name in names]  # noqa: PTH119
    lines = proc.process_text(os.getpid(), "maps").split("\n")
    nbytes: dict[str, int] = {}
    for region in proc.parse_maps("\n".join(line for line in lines if any(mark in line for mark in marks))):
        if path := files.get((region.dev, region.inode)) or (None if region.deleted else names.get(region.path)):
            nbytes[path] = nbytes.get(path, 0) + region.end - region.start
    return tuple(Mapped(path, total) for path, total in nbytes.items())


def anonymous_memory() -> int | None:
    """Return the resident anonymous memory of this process in bytes, or None if it is unknown."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123 - 0.1 ms less than `proc.process_text`
            _, resident, of_files, *_ = file.read(128).split()
    except OSError:  # no /proc
        return None
    return (int(resident) - int(of_files)) * mmap.PAGESIZE


Mode: TypeAlias = Literal["read", "direct", "prepacked", "auto"]


class Session(onnxruntime.InferenceSession, Closeable):  # type: ignore[misc]  # has no types
    """An `onnxruntime.InferenceSession` with a report and a method `close`, returned by `session`.

    As with ONNX Runtime, any thread may call `run`. Call `close` only when no thread is in `run`.
    """

    warming: WarmJob | None = None
    """The job that reads the model file into memory; None without ``warm=True``."""

    def __init__(self, opening: Opening, sess_options: onnxruntime.SessionOptions | None, **given: Any) -> None:
        self._opening = opening
        self._report: Callable[[], Report] | None = None
        options = sess_options
        if opening.mode != "read":
            options = session_options.copied(sess_options, opening.entries)
            if opening.buffers:
                names, views = list(opening.buffers), list(opening.buffers.values())
                options.add_external_initializers_from_files_in_memory(names, views, [len(view) for view in views])
            given.setdefault("enable_fallback", 0)  # the fallback prints a message, and retries what cannot succeed
        super().__init__(opening.model, options, **given)

    @cached_property
    def onecopy(self) -> Report:
        """A report on how the session was created. Which files are mapped is read on first access."""
        if self._report is None:
            raise AttributeError("the session is being created")
        return self._report()

    def close(self) -> None:
        """Release the ONNX Runtime session and the mapping. Closing twice has no effect.

        Afterwards `run` raises ValueError. Outputs stay valid, because they do not view weights.
        """
        getattr(self, "onecopy", None)  # reads which files are mapped
        self._release()

    def _release(self) -> None:
        # Descriptions of inputs and outputs would keep the engine's session and its mappings alive.
        for name in self.__dict__.keys() - {"_opening", "_report", "onecopy", "warming"}:
            del self.__dict__[name]
        self._opening.close()

    def __getattr__(self, name: str) -> NoReturn:
        if "_opening" in self.__dict__ and "_sess" not in self.__dict__ and name.startswith("_"):
            raise ValueError("the session is closed")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __del__(self) -> None:
        if "_opening" in self.__dict__:
            self._release()  # the engine's session before the mapping

    def __repr__(self) -> str:
        report = getattr(self, "onecopy", None)
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
    """Create an ONNX Runtime session whose weights all processes on the machine share.

    Parameters
    ----------
    path
        Path of a model: ``.onnx``, with weights inside or in external data files, or ``.ort``. For a folder, its
        ``model.onnx`` or its only ``.onnx`` file is used.
    mode
        "read" or None: ONNX Runtime works as usual. "direct": use the weights in the mapping, without prepacking.
        "prepacked": prepack the weights once per machine. "auto": "prepacked" if prepacked weights exist, otherwise
        "read", while a child prepacks models with at least 16 MiB of weights. An unavailable mode becomes "read", and
        the report states the reason.
    sess_options
        Session options, which are not changed. With custom operators, weights in memory or a path for the optimized
        model, the mode becomes "read".
    providers, provider_options
        Arguments of `onnxruntime.InferenceSession`. Prepacked weights require the CPU execution provider.
    wait
        For "prepacked", "auto", and "direct" with misaligned weights. True: prepack in a child now, or wait for the
        process that is prepacking. False: create this session in mode "read" while a child prepacks in the background.
    warm
        Whether to read the model file into memory in the background; `Session.warming` is the `WarmJob`.
    max_bytes
        Maximum bytes that `warm` reads; None: the available memory.
    store
        The store for prepacked weights: a `onecopy.Store` or a folder; None: the default folder on disk.
    **given
        Other arguments of `onnxruntime.InferenceSession`.

    Returns
    -------
    Session
        Its attribute ``onecopy`` is a `Report`: the mode and why it was used, mapped bytes, growth of private memory
        (None if unknown), and copied weights with the reasons.

    Raises
    ------
    onnxruntime's own errors
        The model is missing, damaged or not supported. No mapping remains.
    ModuleNotFoundError
        ONNX Runtime is not installed; raised when ``oc.onnxruntime`` is first used.
    ValueError
        The mode is unknown.

    Examples
    --------
    >>> import onecopy as oc
    >>> with oc.onnxruntime.session("model.onnx", "auto") as session:  # doctest: +SKIP
    ...     print(session.onecopy)
    model.onnx: read (auto: the model has 2.33 MB of weights, and auto prepacks at least 16.8 MB; ...)
      created in 38 ms; the process grew by 9.1 MB of private memory
      no file of the model is mapped
    """
    if mode is not None and mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {', '.join(map(repr, get_args(Mode)))}, not {mode!r}")
    start, before = monotonic(), anonymous_memory()
    optimizers = tuple(sorted(given.get("disabled_optimizers") or ()))
    request = Request(file_of(path, ".onnx"), sess_options, providers, optimizers, wait, store)
    given = given | {"providers": providers, "provider_options": provider_options}
    if warm and mode in (None, "read"):  # finds the paths of external data
        with suppress(OSError, FormatError, UnavailableError):
            request.parse()
    opening = _planned(request, mode)
    warming = _warming(opening, max_bytes) if warm else None
    created = _created(request, opening, given)
    if created._opening.mode in ("direct", "prepacked") and not request.is_ort:  # .ort was only mapped
        trim_heap()
    created.warming = warming
    seconds, after = monotonic() - start, anonymous_memory()
    grown = None if before is None or after is None else after - before
    created._report = partial(_report_of, request, mode or "read", created._opening, seconds, grown)
    return created


def _planned(request: Request, mode: Mode | None) -> Opening:
    """Return the `Opening` for the requested mode, or for "read" if it is unavailable."""
    if mode is None or mode == "read":
        return read(request, AS_REQUESTED if mode else _DEFAULT_REASON)
    try:
        if request.sess_options is not None and request.sess_options.optimized_model_filepath:
            raise UnavailableError("the session options save the optimized model, which would refer to other files")
        return {"direct": direct, "prepacked": prepacked, "auto": auto}[mode](request)
    except (UnavailableError, OSError, FormatError) as error:
        return read(request, f"mode {mode!r} is unavailable: {error}")


def _created(request: Request, opening: Opening, given: dict[str, Any]) -> Session:
    """Create the session, or create it in mode "read" if the requested mode fails."""
    try:
        return Session(opening, request.sess_options, **given)
    except Exception as error:
        opening.close()
        if opening.mode == "read":
            if opening.reason not in (AS_REQUESTED, _DEFAULT_REASON):
                error.add_note(f"onecopy: {opening.reason}")
            raise
        why = str(error).strip().splitlines() or [repr(error)]
        return Session(read(request, f"mode {opening.mode!r} failed: {why[0]}"), request.sess_options, **given)


def _warming(opening: Opening, max_bytes: int | str | None) -> WarmJob | None:
    """Start reading the session's largest file into memory. Return None if it cannot be opened."""
    files = opening.files[:1] if opening.mode == "prepacked" else opening.files
    with suppress(OSError):  # creating the session raises the error
        return page_cache.warm(max(files, key=os.path.getsize), max_bytes=max_bytes, wait=False)
    return None


def _report_of(request: Request, requested: Mode, opening: Opening, seconds: float, grown: int | None) -> Report:
    mapped = mapped_files(opening.files)
    weights = None if request.tensors is None else request.weights
    certain = sum(weight.bytes for weight in opening.copied)
    if opening.mode == "read":  # weights that are not mapped are copied
        certain = (weights or 0) - sum(file.bytes for file in mapped)
    private = grown if grown is not None and grown >= max(certain, 1) else None  # else the heap had free memory
    return Report(
        request.path, requested, opening.mode, opening.reason, seconds, weights, private, mapped, opening.copied
    )
