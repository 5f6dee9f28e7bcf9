"""Weights of a file as tensors on its mapping, and a module that is given them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from onecopy import arrays
from onecopy.integrations.torch._cast import cast_once, dtype_of, expect_torch, is_cast, needs_cast
from onecopy.integrations.torch._upload import Upload, Uploading
from onecopy.text import size

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from onecopy.page_cache import WarmJob

TYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
"""What torch calls the types of a file; of others, the bytes are given, as uint8."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Copied:
    """A weight that is not in place."""

    name: str
    bytes: int
    """Of the copy."""
    reason: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What `load_into` did."""

    path: str
    """Of the file that is mapped: where casts are kept in the store, the one with them."""
    mapped: int
    """Bytes of weights that are used where they lie in the file; 0 where all went to a device."""
    copied: tuple[Copied, ...]
    """What is private memory of this process."""
    tied: tuple[tuple[str, ...], ...]
    """Names that are one weight: as the module had them, or as the file has."""
    missing: tuple[str, ...]
    """Names of the module that the file lacks; they are as they were."""
    unexpected: tuple[str, ...]
    """Names of the file that the module lacks; they were never touched."""
    on_meta: tuple[str, ...]
    """What is on the meta device still, and cannot be used: of the missing, and buffers that no file holds."""
    warming: WarmJob | None
    """What brings the weights into memory, where that was asked for or they go to a device."""
    uploaded: Upload | None = None
    """How they went to a device, where that was asked for."""

    def __str__(self) -> str:
        first = f"{size(self.mapped)} mapped" if self.uploaded is None else str(self.uploaded)
        lines = [f"{self.path}: {first}, {size(sum(one.bytes for one in self.copied))} copied"]
        lines += [f"  {one.name}, {size(one.bytes)}: {one.reason}" for one in self.copied[:_SHOWN]]
        if len(self.copied) > _SHOWN:
            lines.append(f"  and {len(self.copied) - _SHOWN} more")
        for words, names in (
            ("one weight", [" = ".join(group) for group in self.tied]),
            ("not in the file", self.missing),
            ("not in the module", self.unexpected),
            ("on the meta device still", self.on_meta),
        ):
            if names:
                more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                lines.append(f"  {words}: {', '.join(names[:_SHOWN])}{more}")
        return "\n".join(lines)


def load(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    unsafe_shared: bool = False,
    device: Any = None,
) -> dict[str, Any]:
    """Return the weights of a file as tensors on its mapping, without reading them; or on a device.

    Parameters
    ----------
    path
        Any file that `onecopy.open` reads.
    names
        These only; None: all.
    unsafe_shared
        False: copy-on-write pages; a write in place makes a page private. True: read-only pages; a write in place ends
        the process with SIGSEGV, because torch has no read-only tensors.
    device
        None or "cpu": on the mapping. Another ``torch.device`` or its name: read, and copied there. To "cuda" through
        two pinned buffers of 32 MiB, one filled from the mapping while the other is on its way, and while the file is
        read ahead of both; to others by torch.

    Returns
    -------
    dict of str to torch.Tensor
        CPU tensors, contiguous or strided as the file has them. Names that are one weight in the file share their
        storage. The memory lives as long as the last tensor. Types that torch lacks are bytes, as uint8.
        On a device the same, in its memory; all has arrived.

    Raises
    ------
    OSError, FormatError
        As `onecopy.open`; KeyError for a name that is not there.
    ModuleNotFoundError
        torch is not installed.
    DataLost
        The file lost bytes while they were read for a device.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> oc.save(path, {"weight": np.arange(4.0)})
    >>> oc.torch.load(path)["weight"].add_(1)  # doctest: +SKIP
    tensor([1., 2., 3., 4.], dtype=torch.float64)
    """
    expect_torch()
    private = is_host(device) and not unsafe_shared
    with arrays.open_arrays(path, private=private) as file:
        wanted = list(file) if names is None else list(names)
        return _tensors(file, wanted, writable=private) if is_host(device) else _on_device(file, wanted, device)[0]


def load_into(
    module: Any,
    path: str | os.PathLike[str],
    *,
    dtype: Any = None,
    cast: Literal["private", "store"] = "private",
    strict: bool = True,
    unsafe_shared: bool = False,
    warm: bool = False,
    max_bytes: int | str | None = None,
    device: Any = None,
) -> LoadReport:
    """Return a module the weights of a file, in place of its own; nothing is read or copied.

    The module may have been made on the meta device (``with torch.device("meta")``), which takes no memory at all.
    Parameters are replaced, as by ``load_state_dict(assign=True)``; those that were one stay one (tied embeddings),
    also where the file has but one of their names. Optimisers that were made before hold the old parameters.

    Parameters
    ----------
    module
        A ``torch.nn.Module``.
    path
        Any file that `onecopy.open` reads.
    dtype
        Of floating-point weights, a ``torch.dtype`` or its name ("bfloat16"); what the file has in another is cast,
        which is a copy, and reported. None: as the file has it, whatever the module had.
    cast
        Where such copies are. "private": in the memory of this process, made anew by each. "store": in a file of the
        usual `Store`, made once per host and mapped by all.
    strict
        Names that are missing, or that the module does not have, are an error, and so are buffers that would be left
        on the meta device. What is tied to a name that is there is not missing. Buffers that a module does not save
        (``persistent=False``) are never missing; the file's are taken for those on the meta device that have the same
        type and shape.
    unsafe_shared
        As of `load`.
    warm, max_bytes
        Bring the weights into memory in the order of the module's parameters, meanwhile: the report's ``warming`` is
        the `WarmJob`; at most so many bytes.
    device
        Where the weights go, as of `load`; what the file does not have stays where it is.

    Returns
    -------
    LoadReport
        Bytes mapped, what was copied and why, what is missing, unexpected or on the meta device.

    Raises
    ------
    OSError, FormatError
        As `onecopy.open`.
    ModuleNotFoundError
        torch is not installed.
    RuntimeError
        A shape that does not fit; with `strict`, names that do not agree, or buffers on the meta device that the file
        does not have. The module is as it was.
    TypeError
        `dtype` is none of torch's, nor the name of one.

    Examples
    --------
    >>> with torch.device("meta"):  # doctest: +SKIP
    ...     model = Model()
    >>> print(oc.torch.load_into(model, "model.safetensors"))  # doctest: +SKIP
    model.safetensors: 4.00 GB mapped, 0 B copied
    """
    expect_torch()

    dtype = dtype_of(dtype)
    if cast not in ("private", "store"):
        raise ValueError(f"cast must be 'private' or 'store', not {cast!r}")
    groups = _tied(module)
    if dtype is not None and cast == "store" and needs_cast(path, dtype):
        path = cast_once(path, dtype)
    private = is_host(device) and not unsafe_shared
    with arrays.open_arrays(path, private=private) as file:
        expected = module.state_dict(keep_vars=True)
        unsaved = {name: one for name, one in module.named_buffers() if name not in expected}
        unexpected = tuple(name for name in file if name not in expected and name not in unsaved)
        filled = [name for name, one in unsaved.items() if one.is_meta and name in file and _is_like(file, name, one)]
        present = [*(name for name in expected if name in file), *filled]
        job = uploaded = None
        if is_host(device):
            job = file.warm(present, wait=False, max_bytes=max_bytes) if warm else None
            state = _tensors(file, present, writable=private)
        else:
            state, uploaded, job = _on_device(file, present, device, max_bytes)
        given = {name: file.entry(name).nbytes for name in present}
    copied = []
    if dtype is not None:
        for name, tensor in state.items():
            if is_cast(tensor, dtype) and name in expected:
                state[name] = tensor.to(dtype)
                why = f"cast from {str(tensor.dtype)[6:]} to {str(dtype)[6:]}"
                copied.append(Copied(name, state[name].numel() * state[name].element_size(), why))
    for group in groups:
        _complete(state, group)
    missing = tuple(name for name in expected if name not in state)
    unusable = [name for name, one in unsaved.items() if one.is_meta and name not in state]
    _check(module, state, missing, unexpected, unusable, strict=strict)
    buffers = {name: state.pop(name) for name in filled}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no-op.*", category=UserWarning)  # for what stays on meta
        module.load_state_dict(state, strict=False, assign=True)
    for name, tensor in buffers.items():
        _set(module, name, tensor)
    _tie(module, groups)
    gone = {one.name for one in copied}
    return LoadReport(
        path=str(path),
        mapped=0 if uploaded else sum(nbytes for name, nbytes in given.items() if name not in gone),
        copied=tuple(copied),
        tied=tuple(tuple(group) for group in groups),
        missing=missing,
        unexpected=unexpected,
        on_meta=tuple(name for name, tensor in _every(module) if tensor.is_meta),
        warming=job,
        uploaded=uploaded,
    )


def is_host(device: Any) -> bool:
    """Return whether tensors of a device are memory that this process can map."""
    return device is None or str(device).partition(":")[0] == "cpu"


def _on_device(
    file: arrays.ArrayFile, names: list[str], device: Any, max_bytes: int | str | None = None
) -> tuple[dict[str, Any], Upload, WarmJob]:
    """Make tensors in the memory of a device."""
    uploading = Uploading(device)
    in_order = sorted(names, key=lambda name: (file.path_of(name), file.entry(name).offset))
    job = file.warm(in_order, wait=False, max_bytes=max_bytes)
    state = _tensors(file, in_order, writable=False, uploading=uploading)
    done = uploading.run()
    for name in names:
        file.memory_of(name)  # raises where what was just read was lost
    return {name: state[name] for name in names}, done, job


def _tensors(
    file: arrays.ArrayFile, names: Iterable[str], *, writable: bool, uploading: Uploading | None = None
) -> dict[str, Any]:
    """Make tensors on a file's views, or where they are uploaded to: one storage for each part of the file."""
    import torch

    bases: dict[tuple[str, int, int], Any] = {}
    device = None if uploading is None else uploading.device
    found = {}
    for name in names:
        entry = file.entry(name)
        view, kind, shape, strides = file.memory_of(name)
        dtype = getattr(torch, TYPES.get(kind, "uint8"), torch.uint8)
        if entry.nbytes == 0:
            found[name] = torch.empty(shape, dtype=dtype, device=device)
            continue
        part = (file.path_of(name), entry.offset, entry.nbytes)
        if part not in bases:
            with warnings.catch_warnings():
                if not writable:
                    warnings.filterwarnings("ignore", message=".*not writable.*", category=UserWarning)
                here = torch.frombuffer(view, dtype=torch.uint8)
            bases[part] = here if uploading is None else uploading.place(here)
        base = bases[part]
        if kind not in TYPES:
            found[name] = base
        elif strides:
            found[name] = base.view(dtype).as_strided(shape, strides)
        else:
            found[name] = base.view(dtype).view(shape)
    return found


def _is_like(file: arrays.ArrayFile, name: str, tensor: Any) -> bool:
    """Return whether an array of a file has a tensor's type and shape."""
    entry = file.entry(name)
    return TYPES.get(entry.dtype) == str(tensor.dtype)[6:] and tuple(entry.shape) == tuple(tensor.shape)


def _every(module: Any) -> list[tuple[str, Any]]:
    """List parameters and buffers, each name of what has several."""
    return [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]


def _tied(module: Any) -> list[list[str]]:
    """Return the names that are one parameter, or one buffer."""
    names: dict[int, list[str]] = {}
    for name, tensor in _every(module):
        names.setdefault(id(tensor), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _complete(state: dict[str, Any], group: list[str]) -> None:
    """Let all names of a group have what one of them has."""
    known = next((state[name] for name in group if name in state), None)
    if known is not None:
        state.update(dict.fromkeys(group, known))


def _tie(module: Any, groups: list[list[str]]) -> None:
    """Make names one parameter again, which assigning has made several of."""
    for group in groups:
        first = _get(module, group[0])
        for name in group[1:]:
            _set(module, name, first)


def _get(module: Any, name: str) -> Any:
    owner, _, last = name.rpartition(".")
    return getattr(module.get_submodule(owner), last)


def _set(module: Any, name: str, tensor: Any) -> None:
    """Return a parameter or buffer another tensor."""
    owner, _, last = name.rpartition(".")
    place = module.get_submodule(owner)
    if last in place._buffers:
        place._buffers[last] = tensor
    else:
        setattr(place, last, tensor)


def _check(
    module: Any,
    state: Mapping[str, Any],
    missing: tuple[str, ...],
    unexpected: tuple[str, ...],
    unusable: list[str],
    *,
    strict: bool,
) -> None:
    """Raise what torch would, before anything is changed."""
    kind, lines = type(module).__name__, []
    if strict and missing:
        lines.append(f"not in the file: {', '.join(missing)}")
    if strict and unexpected:
        lines.append(f"not in the module: {', '.join(unexpected)}")
    if strict and unusable:
        how = "make the module on the CPU, or pass strict=False and give them values"
        lines.append(f"on the meta device, and not in the file: {', '.join(unusable)} ({how})")
    for name, tensor in module.state_dict(keep_vars=True).items():
        if name in state and tuple(state[name].shape) != tuple(tensor.shape):
            lines.append(f"{name} is {tuple(state[name].shape)} in the file, and {tuple(tensor.shape)} in the module")
    if lines:
        raise RuntimeError(f"the file does not fit {kind}: " + "; ".join(lines))
