"""`load` and `load_into`: the weights of a file as tensors on its mapping, alone or in a module."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from onecopy import arrays
from onecopy.arrays.entries import TYPES as ARRAY_TYPES
from onecopy.arrays.entries import range_of
from onecopy.arrays.saving import save
from onecopy.arrays.streaming import is_larger_than_memory
from onecopy.page_cache import register_with_cuda
from onecopy.reports import Copied, LoadReport
from onecopy.sources import resolve
from onecopy.store import Store

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from onecopy.page_cache import WarmJob


TYPES = {name: scalar or np.dtype(numpy).name for name, (numpy, scalar, _) in ARRAY_TYPES.items()}
"""Names of dtypes in torch by the dtype of a file; weights of other dtypes become bytes as uint8."""


def expect_torch() -> None:
    """Raise ModuleNotFoundError with the command that installs torch, if it is missing."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError("oc.torch needs PyTorch: pip install torch", name="torch") from None


def dtype_of(dtype: Any) -> Any:
    """Return the dtype of torch given as itself or by name, such as "bfloat16" or "torch.bfloat16"; None for None.

    TypeError if torch has no such dtype.
    """
    import torch

    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if found is None and dtype is None:
        return None
    if not isinstance(found, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype or its name, such as torch.bfloat16 or 'bfloat16', not {dtype!r}")
    return found


class _Cast(Mapping[str, Any]):
    """The cast tensors of a file for `onecopy.save`, which gets each tensor twice, first for its dtype and shape."""

    def __init__(self, path: str, dtype: Any) -> None:
        self._tensors, self._dtype = load(path, unsafe_shared=True), dtype
        self._described: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        tensor = self._tensors[name]
        if not is_cast(tensor, self._dtype):
            return tensor
        if name in self._described:
            return tensor.to(self._dtype).contiguous()
        self._described.add(name)
        return tensor.new_empty(tensor.shape, dtype=self._dtype)  # uninitialized: reserves no pages

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def is_cast(tensor: Any, dtype: Any) -> bool:
    """Return whether a tensor is floating-point with another dtype."""
    return bool(tensor.is_floating_point() and tensor.dtype != dtype)


def needs_cast(path: str | os.PathLike[str], dtype: Any) -> bool:
    """Return whether a file has floating-point weights with another dtype; reads no data."""
    return any(is_cast(tensor, dtype) for tensor in load(path, unsafe_shared=True).values())


def cast_once(path: str | os.PathLike[str], dtype: Any, store: Store | str | os.PathLike[str] | None = None) -> Path:
    """Return the path of a file with the weights of `path` cast to another dtype; made unless the store has it.

    Errors are those of `onecopy.open` and of a store; TypeError if safetensors does not have the dtype of a weight.
    """
    with arrays.open_arrays(path) as file:
        metadata = file.metadata if file.container == "safetensors" else {}
        real = file.path
        key = arrays.key_of(file, f"cast to {str(dtype).removeprefix('torch.')}, layout 1")
    here = Store.of(store).with_options(where="here")
    return here.get_or_build(key, lambda target: save(target, _Cast(real, dtype), metadata), source=path).path


def load(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    unsafe_shared: bool = False,
    device: Any = None,
) -> dict[str, Any]:
    """Return the weights of a file as tensors on its mapping without reading them, or as tensors on a device.

    Parameters
    ----------
    path
        Path of any file that `onecopy.open` reads.
    names
        Names of the weights to load; None: all.
    unsafe_shared
        False: copy-on-write pages; a write in place makes a page private. True: read-only pages; a write in place ends
        the process with SIGSEGV, because torch has no read-only tensors.
    device
        None or "cpu": tensors on the mapping. Another ``torch.device`` or its name: torch copies the weights there. A
        file in the page cache that is loaded whole is pinned meanwhile, so that a CUDA device copies at the speed of
        its link; another one is read ahead. Weights of more than half of the available memory pass through a window,
        and do not stay in the page cache.

    Returns
    -------
    dict of str to torch.Tensor
        CPU tensors with the strides of the file, or complete copies on the device. Names with the same bytes in the
        file share a storage. The mapping is kept alive by the last tensor. Weights of dtypes that torch does not have
        are bytes, as uint8.

    Raises
    ------
    OSError, FormatError
        The file cannot be opened, as for `onecopy.open`.
    KeyError
        The file does not have a name.
    ModuleNotFoundError
        torch is not installed.
    DataLost
        The file was truncated while it was read for a device.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> oc.save(path, {"weight": np.arange(4.0)})
    >>> oc.torch.load(path)["weight"].add_(1)  # doctest: +SKIP
    tensor([1., 2., 3., 4.], dtype=torch.float64)
    """
    expect_torch()
    private = is_cpu(device) and not unsafe_shared
    with arrays.open_arrays(path, private=private) as file:
        wanted = list(file) if names is None else list(names)
        return tensors_in(file, wanted, device=device, writable=private)[0]


def load_into(
    module: Any,
    path: str | os.PathLike[str],
    *,
    dtype: Any = None,
    cast: Literal["private", "store"] = "private",
    prefix: str = "",
    strict: bool = True,
    unsafe_shared: bool = False,
    warm: bool = False,
    max_bytes: int | str | None = None,
    device: Any = None,
) -> LoadReport:
    """Replace the weights of a module by those of a file on its mapping, without reading or copying them.

    The module may be on the meta device (``with torch.device("meta")``), where it consumes no memory. Parameters are
    replaced as by ``load_state_dict(assign=True)``. Tied parameters (embeddings) stay tied, also if the file has only
    one of their names. Optimizers made before keep references to the old parameters.

    Parameters
    ----------
    module
        A ``torch.nn.Module``; or a dict of modules, tensors and such dicts, whose keys begin the names in the file, as
        in a file of ``torch.save({"model": model.state_dict(), ...})``. Its tensors are replaced in the dict.
    path
        Path of any file that `onecopy.open` reads.
    dtype
        Dtype of floating-point weights, a ``torch.dtype`` or its name ("bfloat16"). Weights of another dtype in the
        file are cast, which copies them; the report lists them. None: the dtypes of the file, not of the module.
    cast
        Where cast weights are. "private": in memory of this process, cast by each process. "store": in a file of the
        default `Store`, cast once per machine and mapped by all processes.
    prefix
        How the names of the weights begin in the file, such as "model."; arrays with other names are ignored.
    strict
        Raise RuntimeError for names that the file or the module does not have, and for buffers left on the meta device.
        Names tied to a name in the file are not missing. Buffers that a module does not save (``persistent=False``) are
        never missing; those on the meta device are loaded if the file has the name with the same dtype and shape.
    unsafe_shared
        As for `load`: read-only pages instead of copy-on-write pages.
    warm, max_bytes
        Read the weights into memory in the background, in the order of the parameters and at most `max_bytes`; the
        ``warming`` of the report is the `WarmJob`.
    device
        As for `load`: the device of the weights. Weights that the file does not have stay where they are.

    Returns
    -------
    LoadReport
        Mapped bytes; copied weights with reasons; missing and unexpected names, and names on the meta device.

    Raises
    ------
    OSError, FormatError
        The file cannot be opened, as for `onecopy.open`.
    ModuleNotFoundError
        torch is not installed.
    RuntimeError
        A shape differs between file and module; with `strict`, names differ, or buffers stay on the meta device. The
        module is unchanged.
    TypeError, ValueError
        `module` is neither a module nor a dict, or a value of a dict is no module, tensor or dict. `dtype` is neither a
        dtype of torch nor the name of one; `cast` is neither "private" nor "store".

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
    given, module = module, _as_module(module)
    groups, expected = _tied(module), module.state_dict(keep_vars=True)
    unsaved = {name: one for name, one in module.named_buffers() if name not in expected}
    path = resolve(path)[0]
    if dtype is not None and cast == "store" and needs_cast(path, dtype):
        path = cast_once(path, dtype)
    private, on_cpu = is_cpu(device) and not unsafe_shared, is_cpu(device)
    with arrays.open_arrays(path, private=private) as file:
        entries = {name[len(prefix) :]: file.entry(name) for name in file if name.startswith(prefix)}
        filled = [
            name for name, one in unsaved.items() if one.is_meta and name in entries and _is_like(entries[name], one)
        ]
        present = [*(name for name in expected if name in entries), *filled]
        names = [entries[name].name for name in present]
        job = file.warm(names, wait=False, max_bytes=max_bytes) if warm and on_cpu else None
        tensors, ahead = tensors_in(file, names, device=device, writable=private, max_bytes=max_bytes)
    state = {name: tensors[entries[name].name] for name in present}
    copied = []
    for name in present if dtype is not None else ():
        if is_cast(tensor := state[name], dtype) and name in expected:
            state[name] = tensor.to(dtype)
            why = f"cast from {str(tensor.dtype)[6:]} to {str(dtype)[6:]}"
            copied.append(Copied(name, state[name].numel() * state[name].element_size(), why))
    nbytes = sum(entries[name].nbytes for name in present)
    cast_bytes = sum(entries[one.name].nbytes for one in copied)
    for group in groups:  # a name that the file does not have gets the tensor of another name
        known = next((state[name] for name in group if name in state), None)
        state |= {} if known is None else dict.fromkeys(group, known)
    missing = tuple(name for name in expected if name not in state)
    unexpected = tuple(name for name in entries if name not in expected and name not in unsaved)
    unusable = [name for name, one in unsaved.items() if one.is_meta and name not in state]
    if strict:
        _check(module, state, missing, unexpected, unusable, prefix)
    else:
        _check(module, state, (), (), [], prefix)
    buffers = {name: state.pop(name) for name in filled}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no-op.*", category=UserWarning)  # weights left on meta
        module.load_state_dict(state, strict=False, assign=True)
    for name, tensor in buffers.items():
        _set(module, name, tensor)
    for first, *others in groups:  # assigning has made separate parameters
        for name in others:
            _set(module, name, attrgetter(first)(module))
    _give_back(given, module)
    return LoadReport(
        path=str(path),
        mapped=nbytes - cast_bytes if on_cpu else 0,
        copied=tuple(copied),
        tied=tuple(map(tuple, groups)),
        missing=missing,
        unexpected=unexpected,
        on_meta=tuple(name for name, tensor in _every(module) if tensor.is_meta),
        warming=job if on_cpu else ahead,
        sent=0 if on_cpu else nbytes,
    )


def is_cpu(device: Any) -> bool:
    """Return whether a device is the CPU, whose tensors can be on a mapping; None is the CPU."""
    return device is None or str(device).partition(":")[0] == "cpu"


def tensors_in(
    file: arrays.ArrayFile, names: list[str], *, device: Any, writable: bool, max_bytes: int | str | None = None
) -> tuple[dict[str, Any], WarmJob | None]:
    """Return arrays of a file as tensors on its mapping, or as copies on a device with the job that reads ahead."""
    if is_cpu(device):
        return _tensors(file, names, writable=writable), None
    in_order = sorted(names, key=lambda name: (file.path_of(name), file.entry(name).offset))
    job, sent = None, {}
    if is_larger_than_memory(sum(file.entry(name).nbytes for name in names)):
        sent = _sent(file, in_order, device)
    elif not _pinned(file, in_order, device):
        job = file.warm(in_order, wait=False, max_bytes=max_bytes)
    state = _tensors(file, in_order, writable=False, device=device, bases=sent)
    for name in names:
        file.memory_of(name)  # raises DataLost if the file was truncated while it was read
    return {name: state[name] for name in names}, job


def _pinned(file: arrays.ArrayFile, names: list[str], device: Any) -> bool:
    """Register a file with the driver of a GPU, which copies from it several times as fast, if it is in memory.

    Only a file that is copied whole, since a copy must not begin in registered pages and end in others; and only on
    ext4 or in memory, because no caller asked for it, and a driver is said to wait without end for pages of xfs.
    """
    import torch

    device = torch.device(device)
    if device.type != "cuda" or len(names) < len(file) or (whole := file.residency()).cached != whole.bytes:
        return False
    try:
        with torch.cuda.device(device):
            torch.empty(1, device=device)  # makes the context that the pages are registered in
            register_with_cuda(file.portions(), only_tried=True)
    except OSError as error:  # an older driver, another file system: the driver copies through buffers of its own
        return error.errno == errno.EBUSY  # by an earlier call
    return True


_Place: TypeAlias = tuple[str, int, int]
"""The path of a file, and the offset and size in bytes of a part of it."""


def _place_of(file: arrays.ArrayFile, name: str) -> _Place:
    entry = file.entry(name)
    return file.path_of(name), entry.offset, entry.nbytes


def _sent(file: arrays.ArrayFile, names: Iterable[str], device: Any) -> dict[_Place, Any]:
    """Copy the bytes of arrays to a device, through a window: the file is larger than memory."""
    import torch

    places = {_place_of(file, name): name for name in names if file.entry(name).nbytes}
    sent = {place: torch.empty(place[2], dtype=torch.uint8, device=device) for place in places}
    for name, rows, _ in file.stream(places.values(), order="names"):
        place = _place_of(file, name)
        offset, length = range_of(file.entry(name), (name, rows))
        begin = offset - place[1]
        sent[place][begin : begin + length].copy_(_bytes(file.memory_of(name).view[begin : begin + length]))
    return sent


def _bytes(view: memoryview, *, writable: bool = False) -> Any:
    import torch

    with warnings.catch_warnings():
        if not writable:
            warnings.filterwarnings("ignore", message=".*not writable.*", category=UserWarning)
        return torch.frombuffer(view, dtype=torch.uint8)


def _tensors(
    file: arrays.ArrayFile,
    names: Iterable[str],
    *,
    writable: bool,
    device: Any = None,
    bases: dict[_Place, Any] | None = None,
) -> dict[str, Any]:
    """Return tensors on views of a file, or copies on a device, also those in `bases`; same bytes share one storage."""
    import torch

    bases = {} if bases is None else bases
    found = {}
    for name in names:
        entry = file.entry(name)
        view, kind, shape, strides = file.memory_of(name)
        dtype = getattr(torch, TYPES.get(kind, "uint8"), torch.uint8)
        if entry.nbytes == 0:
            found[name] = torch.empty(shape, dtype=dtype, device=device)
            continue
        place = _place_of(file, name)
        if place not in bases:
            here = _bytes(view, writable=writable)
            bases[place] = here if device is None else here.to(device)
        base = bases[place]
        if kind not in TYPES:
            found[name] = base
        elif strides:
            found[name] = base.view(dtype).as_strided(shape, strides)
        else:
            found[name] = base.view(dtype).view(shape)
    return found


def _as_module(given: Any) -> Any:
    """Return a module; for a dict, one that has its modules and tensors under its keys."""
    import torch

    if isinstance(given, torch.nn.Module):
        return given
    if not isinstance(given, dict):
        raise TypeError(f"module must be a torch.nn.Module or a dict of modules, not {type(given).__name__}")
    module = torch.nn.Module()
    for key, value in given.items():
        if isinstance(value, (dict, torch.nn.Module)):
            module._modules[str(key)] = _as_module(value)
        elif isinstance(value, torch.Tensor):
            module.register_buffer(str(key), value)
        else:
            raise TypeError(f"{key!r} must be a module, a tensor or a dict of these, not a {type(value).__name__}")
    return module


def _give_back(given: Any, module: Any) -> None:
    """Replace the tensors of a dict by those that the module of `_as_module` has now."""
    for key, value in given.items() if isinstance(given, dict) else ():
        if isinstance(value, dict):
            _give_back(value, module._modules[str(key)])
        elif str(key) in module._buffers:
            given[key] = module._buffers[str(key)]


def _is_like(entry: arrays.Entry, tensor: Any) -> bool:
    """Return whether an array of a file has the dtype and shape of a tensor."""
    return TYPES.get(entry.dtype) == str(tensor.dtype)[6:] and tuple(entry.shape) == tuple(tensor.shape)


def _every(module: Any) -> list[tuple[str, Any]]:
    """Return parameters and buffers with their names; tied ones appear under each name."""
    return [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]


def _tied(module: Any) -> list[list[str]]:
    """Return the groups of names that share one parameter or buffer."""
    names: dict[int, list[str]] = {}
    for name, tensor in _every(module):
        names.setdefault(id(tensor), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _set(module: Any, name: str, tensor: Any) -> None:
    """Replace a parameter or buffer by another tensor."""
    owner, _, last = name.rpartition(".")
    place = module.get_submodule(owner)
    if last in place._buffers:
        place._buffers[last] = tensor
    else:
        setattr(place, last, tensor)


def _prefix_of(missing: Sequence[str], unexpected: Sequence[str]) -> str:
    """Return a prefix, such as "model.", that turns missing names into unexpected ones; "" without one.

    All unexpected names with that prefix must be missing names without it.
    """
    lacking = set(missing)
    for name in unexpected:
        at = -1
        while (at := name.find(".", at + 1)) >= 0:
            begin = name[: at + 1]
            if name[at + 1 :] in lacking and all(
                one[at + 1 :] in lacking for one in unexpected if one.startswith(begin)
            ):
                return begin
    return ""


def _check(
    module: Any,
    state: Mapping[str, Any],
    missing: Sequence[str],
    unexpected: Sequence[str],
    unusable: Iterable[str],
    prefix: str,
) -> None:
    """Raise RuntimeError as ``load_state_dict`` does, but before the module is changed."""
    lines = []
    if missing:
        lines.append(f"not in the file: {', '.join(missing)}")
    if unexpected:
        lines.append(f"not in the module: {', '.join(unexpected)}")
    if missing and (begin := _prefix_of(missing, unexpected)):
        lines.append(f"in the file, the names begin with {begin!r}: pass prefix={prefix + begin!r}")
    if unusable:
        how = "make them outside of torch.device('meta'), or pass strict=False and give them values"
        lines.append(f"on the meta device and not in the file: {', '.join(unusable)} ({how})")
    for name, tensor in module.state_dict(keep_vars=True).items():
        if name in state and (ours := tuple(state[name].shape)) != tuple(tensor.shape):
            lines.append(f"{name} has shape {ours} in the file, but {tuple(tensor.shape)} in the module")
    if lines:
        raise RuntimeError(f"the file does not match {type(module).__name__}: " + "; ".join(lines))
