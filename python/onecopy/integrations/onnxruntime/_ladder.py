"""Which rung a session is made on, and what that takes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime

from onecopy import _core
from onecopy.files import Mapping as FileMapping
from onecopy.integrations.onnxruntime import _options, _prepacking
from onecopy.integrations.onnxruntime._model import SMALLEST, Kind, Model, look_at
from onecopy.integrations.onnxruntime._report import costs
from onecopy.store import Store, default_folder
from onecopy.store.place import free_on
from onecopy.text import size

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from onecopy.integrations.onnxruntime._report import Copied, Latency

WORTH_IT = 16 << 20  # bytes of weights below which `auto` uses what was prepacked, and has nothing prepacked
WORTH_ALIGNING = 1 << 18  # bytes that are not aligned, below which `direct` lets them be copied
AS_ASKED = "as asked"
BY_DEFAULT = (
    "the default: ONNX Runtime untouched, with weights of its own in each process; mode='auto' takes those that were "
    "prepacked once per host, and prepacks from 16 MiB on"
)
_HEAPS = 4  # of the weights: what the child that prepacks needs at its peak, about
_ON_DISK = 2.5  # of the weights: what they take with their prepacked forms, at most

_HOST = {"CPUExecutionProvider", "AzureExecutionProvider"}
_INSIDE = "model"  # what the file is called in a message that speaks of itself


class Unfit(Exception):
    """A rung that cannot be taken; the message says why."""


@dataclass
class Request:
    """What the caller of `session` gave."""

    path: str
    sess_options: onnxruntime.SessionOptions | None
    providers: Sequence[Any] | None
    disabled_optimizers: tuple[str, ...]
    wait: bool
    store: Store | str | os.PathLike[str] | None
    looked_at: Model | None = None
    """Set once the file was looked into."""

    @property
    def kind(self) -> Kind:
        """The format, as ONNX Runtime tells it: by the name, if the options do not say."""
        told = _options.entry(self.sess_options, "session.load_model_format")
        return "ort" if (told or self.path[-4:]).lower() in ("ort", ".ort") else "onnx"

    @property
    def is_on_host(self) -> bool:
        """Whether all nodes run on the processor."""
        given = self.providers or onnxruntime.get_available_providers()
        return {one if isinstance(one, str) else one[0] for one in given} <= _HOST

    def recipe(self, model: Model) -> _prepacking.Recipe:
        """Return what there is to prepack, and how."""
        options = _options.deciding(self.sess_options)
        store = Store.of(self.store).with_options(where="here")
        return _prepacking.Recipe(self.path, model.files, options, self.disabled_optimizers, store)


@dataclass
class Opening:
    """How to make a session on a rung."""

    mode: str
    reason: str
    model: str | bytes
    """A path, or the message."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Of the session's options."""
    buffers: tuple[tuple[str, memoryview], ...] = ()
    """Files in memory: what the model calls them, and their bytes, which are not copied here."""
    owned: tuple[FileMapping, ...] = ()
    """Whose memory that is."""
    keeps: bool = False
    """Whether the session goes on using it."""
    trims: bool = False
    """Whether heap is to be given back that was needed while the session was made."""
    files: tuple[str, ...] = ()
    """What may be found mapped afterwards."""
    copied: tuple[Copied, ...] = ()
    latency: tuple[Latency, ...] = ()

    def close(self) -> None:
        """Release the mappings."""
        for _, view in self.buffers:
            with contextlib.suppress(BufferError):  # ONNX Runtime's options hold it a little longer
                view.release()
        self.buffers = ()
        for mapping in self.owned:
            mapping.close()


def read(request: Request, reason: str) -> Opening:
    """ONNX Runtime, untouched."""
    files = request.looked_at.files if request.looked_at else (request.path,)
    return Opening("read", reason, request.path, files=files)


def mapped(request: Request) -> Opening:
    """Read through a mapping, that is gone afterwards."""
    reason = "as asked; when the session is there, this has saved nothing: see 'direct' and 'prepacked'"
    with looked_at(request) as (model, mapping):
        if request.kind == "ort":
            return Opening("map", reason, request.path, _options.ORT_MAPPED, files=model.files)
        if model.locations:
            return Opening("map", reason + "; external data is mapped by ONNX Runtime", request.path, files=model.files)
        message, buffers, owned = in_memory(model, mapping)
        return Opening("map", reason, message, buffers=buffers, owned=owned, files=model.files)


def direct(request: Request, reason: str = AS_ASKED) -> Opening:
    """Use weights where they lie."""
    with looked_at(request) as (model, mapping):
        if request.kind == "ort":
            return Opening("direct", reason, request.path, _options.ORT_IN_PLACE, files=model.files)
        misplaced = sum(weight.bytes for weight in model.copied if weight.reason.startswith("begins"))
        if misplaced >= WORTH_ALIGNING:
            try:
                found = prepared(request, model)
            except Unfit as unfit:
                found = str(unfit)
            if isinstance(found, _prepacking.Prepacked):
                return of_artefact(found, request, "direct", f"{reason}; from an aligned copy in the store")
            reason = f"{reason}; {size(misplaced)} are not aligned in the file, {found}"
        message, buffers, owned = in_memory(model, mapping)
        return Opening(
            "direct",
            reason,
            message,
            _options.IN_PLACE,
            buffers,
            owned,
            keeps=True,
            trims=True,
            files=model.files,
            copied=model.copied,
        )


def prepacked(request: Request, reason: str = AS_ASKED) -> Opening:
    """Use weights as they were prepacked on this host."""
    with looked_at(request) as (model, _):
        expect_prepackable(request)
        found = prepared(request, model)
    if isinstance(found, str):
        return read(request, f"'prepacked' was asked for; {found}" if reason == AS_ASKED else found)
    if found.prepacked == 0:
        return of_artefact(found, request, "direct", f"{reason}; no kernel of this model prepacks its weights")
    return of_artefact(found, request, "prepacked", reason)


def auto(request: Request) -> Opening:
    """Take the best rung that is not slower than ONNX Runtime's own."""
    with looked_at(request) as (model, _):
        if model.weights < WORTH_IT and not is_prepacked(request, model):
            few = f"{size(model.weights)} of weights are not worth more: below {size(WORTH_IT)}"
            return read(request, f"auto: {few} it takes what was prepacked, and prepacks nothing; 'prepacked' does")
    try:
        opening = prepacked(request, "auto: one copy for all processes, at full speed")
    except Unfit as unfit:
        return read(request, f"auto: {unfit}")
    if opening.mode == "read":
        opening.reason = f"auto: {opening.reason}"
    elif opening.mode == "prepacked" and opening.latency:
        opening.reason += f"; 'direct' would save the prepacked weights too: {costs(opening.latency)}"
    return opening


def is_prepacked(request: Request, model: Model) -> bool:
    """Return whether weights were prepacked on this host, by whichever session asked for it."""
    try:
        if not isinstance(request.store, Store) and not Path(request.store or default_folder()[0]).is_dir():
            return False  # `Store` would make the folder
        found = request.recipe(model).find()
    except OSError:  # the store cannot be read: nothing is in it
        return False
    return found is not None and not found.failed


def expect_prepackable(request: Request) -> None:
    """Refuse what cannot gain from prepacked weights; raises Unfit."""
    if not request.is_on_host:
        raise Unfit("prepacked weights are those of the CPU provider, and others were asked for")
    if _options.prepacking_is_off(request.sess_options):
        raise Unfit("the options switch prepacking off")


def prepared(request: Request, model: Model) -> _prepacking.Prepacked | str:
    """Return what was prepacked on this host; else have it prepacked, and say what is being done."""
    recipe = request.recipe(model)
    found = recipe.find()
    if found is None:
        if obstacle := no_room(model, recipe):
            raise Unfit(obstacle)
        if not request.wait:
            if recipe.is_being_built():
                return "another process is prepacking the weights"
            return f"process {_prepacking.start_in_background(recipe)} prepacks the weights in the background"
        found = _prepacking.prepack(recipe)
    if found.failed:
        raise Unfit(f"ONNX Runtime cannot save prepacked weights of this model: {found.failed}")
    return found


def no_room(model: Model, recipe: _prepacking.Recipe) -> str:
    """Return why weights cannot be prepacked here; empty if they can."""
    needed, free = int(model.weights * _ON_DISK), free_on(recipe.store.folder)
    if free is not None and free < needed:
        return f"prepacking needs {size(needed)} of disk, but {recipe.store.folder} has {size(free)} left"
    left = _core.available_memory()
    if left is not None and left[0] < model.weights * _HEAPS:
        return f"prepacking needs about {size(model.weights * _HEAPS)} of memory, and {left[1]} leaves {size(left[0])}"
    return ""


def of_artefact(found: _prepacking.Prepacked, request: Request, mode: str, reason: str) -> Opening:
    """Make a session of what is in the store, prepacked or not."""
    entries = _options.in_folder(str(found.path.parent))
    if mode == "direct":
        entries |= _options.not_prepacked()
    return Opening(
        mode,
        reason,
        found.model,
        entries,
        trims=True,
        files=(str(found.path), *(request.looked_at.files if request.looked_at else ())),
        latency=found.latency,
    )


def in_memory(
    model: Model, mapping: FileMapping
) -> tuple[bytes, tuple[tuple[str, memoryview], ...], tuple[FileMapping, ...]]:
    """Return the message without its data, and where the data is: views of mappings, that are the caller's."""
    message = _core.onnx_skeleton(mapping.core, _INSIDE, SMALLEST)
    owned = [FileMapping(mapping.path)]
    names = [_INSIDE]
    try:
        for location, path in zip(model.locations, model.files[1:], strict=True):
            owned.append(FileMapping(path))
            names.append(location)
        return message, tuple((n, memoryview(m.view())) for n, m in zip(names, owned, strict=True)), tuple(owned)
    except BaseException:
        for one in owned:
            one.close()
        raise


@contextlib.contextmanager
def looked_at(request: Request) -> Iterator[tuple[Model, FileMapping]]:
    """Look into the file, for as long as the block lasts."""
    model, mapping = look_at(request.path, request.kind)
    request.looked_at = model
    try:
        yield model, mapping
    finally:
        mapping.close()
