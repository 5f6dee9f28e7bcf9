"""The functions of ``safetensors.torch``: tensors in copy-on-write mappings of safetensors files.

torch is imported when a function is called, not when this module is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecopy.base.tensor_values import has_memory, why_not_dense
from onecopy.safetensors.files import loaded, safe_open, serialized, write

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

__all__ = ["load", "load_file", "load_model", "save", "save_file", "save_model"]


def load_file(filename: str | os.PathLike[str], device: Any = "cpu", *, backend: str = "mmap") -> dict[str, Any]:
    """Return all tensors in a file by name, in the order in which they are stored. The data of CPU tensors is not read.

    CPU tensors are writable: a written page becomes private to the process, and the file never changes.

    Parameters
    ----------
    filename
        Path of a safetensors file.
    device
        The device of the tensors. Tensors for a device other than the CPU are read and copied there; for "cuda",
        copying is as fast as from pinned memory if the file is in the page cache (see `onecopy.torch.load`).
    backend
        "mmap": tensors in a mapping. "pread": the file is read into private memory.

    Raises
    ------
    SafetensorError
        The file is not a valid safetensors file, or contains an element type that torch lacks.
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> from onecopy.safetensors.torch import load_file
    >>> load_file("model.safetensors")["weight"].add_(1)  # doctest: +SKIP
    tensor([1., 2., 3.])
    """
    with safe_open(filename, "pt", device, backend=backend) as file:
        return file.get_tensors()


def save_file(
    tensors: dict[str, Any], filename: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file that is laid out for mapping.

    The file appears complete or not at all. Processes that have a replaced file open still see its old contents.
    Tensors that are not on the CPU are first copied to it.

    Parameters
    ----------
    tensors
        Dense, contiguous tensors by name. They must not overlap in memory.
    filename
        Path of the file; an existing file is replaced.
    metadata
        Text keys and values to store. "format" is set to "pt" if it is missing.

    Raises
    ------
    ValueError
        `tensors` is not a dict, or a value is not a tensor, or is sparse, nested, quantised or not contiguous.
    RuntimeError
        Tensors share memory (see `save_model`), or a tensor is on the meta device.
    SafetensorError
        safetensors lacks the element type, or a name is reserved.
    TypeError
        A name, or a metadata key or value, is not a str.
    OSError
        The folder does not exist, permission is denied, or the disk is full.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> from onecopy.safetensors.torch import save_file
    >>> save_file({"weight": torch.zeros(3)}, "model.safetensors")  # doctest: +SKIP
    """
    write(filename, _checked(tensors), metadata)


def load(data: bytes) -> dict[str, Any]:
    """Return all tensors in the bytes of a safetensors file, in private memory.

    The bytes pass through a temporary file. Raises the same errors as `load_file`.

    Examples
    --------
    >>> from onecopy.safetensors.torch import load, save
    >>> load(save({"weight": torch.zeros(3)}))["weight"]  # doctest: +SKIP
    tensor([0., 0., 0.])
    """
    return loaded(load_file, data)


def save(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Return tensors as the bytes of a safetensors file, identical to the result of ``safetensors.torch.save``.

    Raises the same errors as `save_file`.

    Examples
    --------
    >>> from onecopy.safetensors.torch import save
    >>> len(save({"weight": torch.zeros(3)}))  # doctest: +SKIP
    84
    """
    return serialized(_checked(tensors), metadata)


def save_model(
    model: Any,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:
    """Write a module's weights. A weight with several names is written once; the metadata contains its other names.

    Parameters
    ----------
    model
        A ``torch.nn.Module``.
    filename
        Path of the file; an existing file is replaced.
    metadata
        String keys and values to store. The dict is not changed.
    force_contiguous
        Whether to copy and write weights that are not contiguous in C order. False: such weights raise an error.

    Raises
    ------
    RuntimeError
        Weights share memory, and none of them spans all of it.
    ValueError
        With ``force_contiguous=False``: a weight is not contiguous.
    SafetensorError, OSError
        As for `save_file`.

    Examples
    --------
    >>> from onecopy.safetensors.torch import save_model
    >>> save_model(torch.nn.Linear(3, 3), "model.safetensors")  # doctest: +SKIP
    """
    state = model.state_dict()
    _expect_dense(state)
    added: dict[str, str] = {}
    for kept, others in _duplicates(state).items():
        for name in others:
            added[name] = kept
            del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    save_file(dict(state), filename, {**added, **(metadata or {})} if added or metadata is not None else None)


def load_model(
    model: Any,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
) -> tuple[set[str], list[str]]:
    """Load the weights that `save_model` wrote: copy them to a module, whose parameters stay the same objects.

    The copies are private to the process. With `onecopy.auto`, the weights are instead moved to the file's mapping, as
    is always the case with `onecopy.torch.load_into`.

    Parameters
    ----------
    model
        A ``torch.nn.Module``.
    filename
        Path of a safetensors file.
    strict
        Whether to raise RuntimeError for names that the file or the module lacks, after changing the module.
    device, backend
        As for `load_file`.

    Returns
    -------
    tuple of set of str and list of str
        The names in the module that the file lacks, and the names in the file that the module lacks.

    Raises
    ------
    RuntimeError
        A shape differs, or, with `strict`, the names differ.
    SafetensorError, OSError
        As for `load_file`.

    Examples
    --------
    >>> from onecopy.safetensors.torch import load_model
    >>> load_model(torch.nn.Linear(3, 3), "model.safetensors")  # doctest: +SKIP
    (set(), [])
    """
    state = load_file(filename, device, backend=backend)
    duplicates = _duplicates(model.state_dict(), state)
    result = model.load_state_dict(state, strict=False)
    missing, unexpected = set(result.missing_keys), list(result.unexpected_keys)
    for name in (name for others in duplicates.values() for name in others):
        if name in missing:
            missing.remove(name)  # it is the weight that the file has under another name
        else:
            unexpected.append(name)
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for kind, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                quoted = ", ".join(f'"{name}"' for name in sorted(names))
                lines.append(f"{kind} key(s) in state_dict: {quoted}")
        raise RuntimeError("\n    ".join(lines))
    return missing, unexpected


def _expect_dense(tensors: dict[str, Any]) -> None:
    import torch

    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name!r} must be a torch.Tensor, not a {type(tensor).__name__}")  # noqa: TRY004
        if reason := why_not_dense(tensor):
            raise ValueError(f"cannot save {name!r}, {reason}")


def _checked(tensors: Any) -> dict[str, Any]:
    """Move tensors to the CPU, and raise errors for tensors that safetensors does not accept."""
    if not isinstance(tensors, dict):
        raise ValueError(f"tensors must be a dict of str to torch.Tensor, not a {type(tensors).__name__}")  # noqa: TRY004 - as safetensors
    _expect_dense(tensors)
    if shared := [group for group in _overlapping(tensors) if len(group) > 1]:
        raise RuntimeError(
            f"tensors share memory, which a safetensors file cannot represent: {shared}: use save_model, or clone them"
        )
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"{name!r} is not contiguous: save a contiguous() copy, or use save_model(..., force_contiguous=True)"
            )
    return {name: tensor.to("cpu") for name, tensor in tensors.items()}


def _overlapping(tensors: dict[str, Any]) -> list[list[str]]:
    """Group names of tensors that overlap in memory. Only neighbours in a storage are compared, as in safetensors."""
    storages: dict[tuple[Any, int, int], list[str]] = {}
    for name, tensor in tensors.items():
        if has_memory(tensor) and not why_not_dense(tensor):
            storage = tensor.untyped_storage()
            storages.setdefault((tensor.device, storage.data_ptr(), storage.nbytes()), []).append(name)
    groups: list[list[str]] = []
    for names in storages.values():
        end = -1
        for begin, stop, name in sorted((*_range_of(tensors[name]), name) for name in names):
            if begin >= end:
                groups.append([])
            groups[-1].append(name)
            end = stop
    return groups


def _range_of(tensor: Any) -> tuple[int, int]:
    """Return the address of a tensor's first byte and the address after its last byte."""
    if not tensor.numel():
        return 0, 0  # as in torch
    last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    # `onecopy.auto` assumes that a caller of the tensor's own `data_ptr` keeps the address.
    begin = tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.element_size()
    return begin, begin + (last + 1) * tensor.element_size()


def _duplicates(state: dict[str, Any], preferred: Iterable[str] = ()) -> dict[str, list[str]]:
    """For each weight, map the name to keep (a preferred one, or else the alphabetically first) to its other names."""
    found = {}
    for group in _overlapping(state):
        complete = {name for name in group if state[name].nbytes == state[name].untyped_storage().nbytes()}
        if not complete:
            raise RuntimeError(
                f"{group}: none of these tensors spans the memory they share; saving them would store extra bytes "
                "or lose the sharing: clone them"
            )
        kept = min(complete.intersection(preferred) or complete)
        found[kept] = sorted(set(group) - {kept})
    return found
