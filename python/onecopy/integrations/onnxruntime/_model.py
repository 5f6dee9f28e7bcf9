"""The weights of a model file: their places, and which of them ONNX Runtime can use in place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

from onecopy import _core
from onecopy.errors import FormatError
from onecopy.files import Mapping
from onecopy.integrations.onnxruntime._report import Copied

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALLEST = 1024  # bytes; smaller weights stay in the message and are copied by ONNX Runtime

Kind = Literal["onnx", "ort"]


class Tensor(NamedTuple):
    """A constant of an ONNX model, as `onecopy._core.parse_onnx` returns it."""

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
    def alignment(self) -> int:
        """Required alignment in bytes: the size of an element, or 1 for elements smaller than a byte."""
        return max(self.bytes // max(prod(self.shape), 1), 1)


@dataclass(frozen=True, slots=True)
class Model:
    """A model file and its external data files."""

    path: str
    kind: Kind
    tensors: tuple[Tensor, ...] = ()
    """Constants of an ``.onnx`` model; empty for ``.ort``."""

    @property
    def folder(self) -> str:
        """Folder of the model and its external data."""
        return os.path.dirname(os.path.abspath(self.path))  # noqa: PTH100, PTH120 - no links are resolved

    @property
    def locations(self) -> tuple[str, ...]:
        """Names of the external data files in the model."""
        return tuple(dict.fromkeys(tensor.location for tensor in self.tensors if tensor.storage == "external"))

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the model and of its external data files."""
        return (self.path, *(os.path.join(self.folder, location) for location in self.locations))  # noqa: PTH118

    @property
    def weights(self) -> int:
        """Bytes of all constants; for ``.ort``, the size of the file."""
        if self.kind == "ort":
            return os.stat(self.path).st_size  # noqa: PTH116
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def copied(self) -> tuple[Copied, ...]:
        """Constants that ONNX Runtime copies even with mapped files, the largest first."""
        found = [Copied(t.name, t.bytes, reason) for t in self.tensors if (reason := why_copied(t))]
        return tuple(sorted(found, key=lambda weight: -weight.bytes))


def parse(path: str, kind: Kind) -> tuple[Model, Mapping]:
    """Map a model and list its weights; the caller closes the mapping.

    Raises
    ------
    OSError, FormatError
        As `onecopy.open`.
    """
    mapping = Mapping(path)
    try:
        if kind == "ort":
            return Model(path, kind), mapping
        found = _core.parse_onnx(mapping.core)
    except BaseException:
        mapping.close()
        raise
    model = Model(path, kind, tuple(Tensor(*row) for row in found["tensors"]))  # type: ignore[attr-defined]
    try:
        _expect_whole(model)
    except BaseException:
        mapping.close()
        raise
    return model, mapping


def _expect_whole(model: Model) -> None:
    """Refuse external data that ends before its weights do."""
    sizes = {place: os.stat(path).st_size for place, path in zip(model.locations, model.files[1:], strict=True)}  # noqa: PTH116
    for tensor in model.tensors:
        if tensor.storage == "external" and tensor.offset + tensor.bytes > sizes[tensor.location]:
            raise FormatError(
                f"{model.path}: {tensor.name!r} needs bytes [{tensor.offset}, {tensor.offset + tensor.bytes}) of "
                f"{tensor.location}, which has {sizes[tensor.location]} bytes"
            )


def why_copied(tensor: Tensor) -> str:
    """Return why a constant is copied; empty if it is used in place."""
    if not tensor.is_initializer:
        return "a constant of a node, or of the body of a control-flow node"
    if tensor.storage == "coded":
        return "stored in an encoding that has to be decoded"
    if tensor.storage == "in place" and tensor.bytes < SMALLEST:
        return f"smaller than {SMALLEST} bytes"
    if tensor.offset % tensor.alignment:
        return f"begins at byte {tensor.offset} of the file, which is not a multiple of {tensor.alignment}"
    return ""
