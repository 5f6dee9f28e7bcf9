"""`load` and `load_into`: load a file's weights as tensors in its mapping, into a new dict or into a module."""

from __future__ import annotations

import errno
import warnings
from collections import UserDict
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from onecopy import arrays
from onecopy.arrays.entries import TYPES as ARRAY_TYPES, range_of
from onecopy.arrays.saving import save
from onecopy.arrays.streaming import is_larger_than_memory
from onecopy.base.load_report import Copied, LoadReport
from onecopy.errors import FileChanged
from onecopy.files.page_cache import register_with_cuda
from onecopy.store import Store
from onecopy.store.location import resolve

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from onecopy.files.page_cache import WarmJob


TYPES = {name: scalar or np.dtype(numpy).name for name, (numpy, scalar, _) in ARRAY_TYPES.items()}
"""Names of torch dtypes by their names in safetensors files."""
_OTHER_TYPES = dict.fromkeys(("<c16", "COMPLEX128", "COMPLEXDOUBLE"), "complex128") | {"COMPLEXHALF": "complex32"}
"""Names of torch dtypes by their names in npz, ONNX and ExecuTorch files. torch checkpoints use torch's names."""


def expect_torch() -> None:
    """Raise ModuleNotFoundError, with the command that installs torch, if torch is missing."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError("oc.torch requires PyTorch: pip install torch", name="torch") from None


def dtype_of(dtype: Any) -> Any:
    """Return the torch dtype that a dtype or its name denotes, or None for None. Raise TypeError for other values."""
    import torch

    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if found is None and dtype is None:
        return None
    if not isinstance(found, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype or its name, such as torch.bfloat16 or 'bfloat16', not {dtype!r}")
    return found


class _Cast(UserDict[str, Any]):
    """The cast tensors of a file, for `onecopy.save`, which reads each item twice: first for its dtype and shape."""

    def __init__(self, path: str, dtype: Any) -> None:
        super().__init__(load(path, unsafe_shared=True))
        self._dtype, self._described = dtype, set[str]()

    def __getitem__(self, name: str) -> Any:
        tensor = self.data[name]
        if not needs_cast(tensor, self._dtype) or name.endswith("_extra_state"):  # an extra state is not a weight
            return tensor
        if name in self._described:
            return tensor.to(self._dtype).contiguous()
        self._described.add(name)
        return tensor.new_empty(tensor.shape, dtype=self._dtype)  # uninitialized: touches no pages


def needs_cast(tensor: Any, dtype: Any) -> bool:
    """Return whether a tensor is floating-point and not of `dtype`, except for pairs of F4, which torch cannot cast."""
    return bool(tensor.is_floating_point() and tensor.dtype != dtype and not str(tensor.dtype).endswith("_x2"))


def file_needs_cast(path: str | os.PathLike[str], dtype: Any) -> bool:
    """Return whether a file contains floating-point weights that are not of `dtype`, without reading data."""
    return any(needs_cast(tensor, dtype) for tensor in load(path, unsafe_shared=True).values())


def cast_once(path: str | os.PathLike[str], dtype: Any, store: Store | str | os.PathLike[str] | None = None) -> Path:
    """Cast a file's weights once per machine, and return the path of the cast file in the store."""
    with arrays.open_arrays(path) as file:
        metadata = file.metadata if file.container == "safetensors" else {}
        real = file.path
        layout = 2 if any(name.endswith("_extra_state") for name in file) else 1  # layout 1 also cast it
        key = arrays.key_of(file, f"cast to {str(dtype).removeprefix('torch.')}, layout {layout}")
    here = Store.of(store).with_options(where="here")
    return here.get_or_build(key, lambda target: save(target, _Cast(real, dtype), metadata), source=path).path


def load(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    unsafe_shared: bool = False,
    device: Any = None,
) -> dict[str, Any]:
    """Return a file's weights as tensors, either in its mapping, without reading them, or on a device.

    Parameters
    ----------
    path
        Path of any file that `onecopy.open` reads.
    names
        Names of the weights to load; None: all weights.
    unsafe_shared
        False: copy-on-write pages; writing in place makes a page private. True: read-only pages; writing in place ends
        the process with SIGSEGV, because torch has no read-only tensors.
    device
        None or "cpu": tensors in the mapping. Another ``torch.device`` or its name: torch copies the weights to that
        device. During the copy, a file that is in the page cache and loaded completely is pinned, so that a CUDA device
        copies at the speed of its link; other files are prefetched. Weights larger than half of the available memory
        are copied through a window, and do not stay in the page cache.

    Returns
    -------
    dict of str to torch.Tensor
        CPU tensors with the file's strides, or complete copies on the device. Names that refer to the same bytes
        in the file share a storage. The tensors keep the mapping alive. An element of an F4 tensor is a pair of values.
        Weights with dtypes that torch lacks, such as big-endian dtypes, are returned as uint8 bytes.

    Raises
    ------
    OSError, FormatError
        The file cannot be opened, as for `onecopy.open`.
    KeyError
        The file does not contain one of the names.
    ModuleNotFoundError
        torch is not installed.
    DataLost
        The file was truncated while it was being read for a device.

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
        return tensors_in(file, wanted, device=device)[0]


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
    """Replace a module's weights with weights in a file's mapping, without reading or copying them.

    The module may be on the meta device (``with torch.device("meta")``), where it consumes no memory. Its own
    ``load_state_dict(assign=True)`` receives tensors in the mapping, so hooks, extra state, lazy modules and errors
    work as usual; only module versions, which are stored in pickles, are missing. Tied parameters (embeddings) stay
    tied; if the file has several of their names, the last one is used. Existing optimizers refer to the old parameters.

    Parameters
    ----------
    module
        A ``torch.nn.Module``, or a nested dict of modules and tensors, whose keys are the prefixes of the names in the
        file, as after ``torch.save({"model": model.state_dict(), ...})``. Tensors are replaced in the dict.
    path
        Path of any file that `onecopy.open` reads.
    dtype
        Dtype of floating-point weights, a ``torch.dtype`` or its name ("bfloat16"). Weights with another dtype in the
        file are cast, and thus copied; the report lists them. None: the dtypes in the file, not in the module.
    cast
        Where cast weights are kept. "private": each process casts them in its own memory. "store": they are cast once
        per machine into a file of the default `Store`, which all processes map.
    prefix
        A prefix of the weights' names in the file, such as "model."; arrays with other names are ignored.
    strict
        As for ``load_state_dict``, but a name does not count as missing if it is tied to a name in the file. Buffers
        that a module does not save (``persistent=False``) are loaded if they are on the meta device and the file
        contains an array with the same name, dtype and shape. Any other buffer on the meta device raises RuntimeError.
    unsafe_shared
        As for `load`: read-only pages instead of copy-on-write pages.
    warm, max_bytes
        Whether to read the weights into memory in the background, in the order of the parameters and at most
        `max_bytes`. The attribute ``warming`` of the report is the `WarmJob`.
    device
        The device of the weights, as for `load`. Weights that the file does not contain, and the extra state, are not
        moved.

    Returns
    -------
    LoadReport
        Mapped bytes, copied weights with reasons, and names that are missing, unexpected, unused or on the meta device.

    Raises
    ------
    OSError, FormatError
        The file cannot be opened, as for `onecopy.open`, or it was replaced during the call.
    ModuleNotFoundError
        torch is not installed.
    RuntimeError
        torch reports that a shape, or with `strict`, a name, differs between the file and the module; or buffers remain
        on the meta device. Parameters and buffers are unchanged.
    TypeError, ValueError
        `module`, or a value in a dict, has an unsupported type; `dtype` is neither a torch dtype nor the name of one;
        or `cast` is neither "private" nor "store".

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
    path = resolve(path)[0]
    if dtype is not None and cast == "store" and file_needs_cast(path, dtype):
        path = cast_once(path, dtype)
    target, slots, on_cpu = _as_module(module), list(_slots(module)), is_cpu(device)
    groups = _groups(slots)
    with arrays.open_arrays(path, private=on_cpu and not unsafe_shared) as file:
        entries = {name[len(prefix) :]: file.entry(name) for name in file if name.startswith(prefix)}
        taken = entries if on_cpu else entries.keys() & {slot.name for slot in slots}
        names = [one.name for name, one in entries.items() if name in taken]
        tensors, job = tensors_in(file, names, device=device, max_bytes=max_bytes)
        if others := [one.name for name, one in entries.items() if name not in taken]:  # a hook may rename them
            tensors |= load(path, names=others, unsafe_shared=unsafe_shared)
            if file.changed():
                raise FileChanged(errno.ESTALE, "the file was replaced or modified while it was loaded", file.path)
        state = {name: tensors[one.name] for name, one in entries.items()}
        sources = {_storage(tensor): entry for tensor, entry in zip(state.values(), entries.values(), strict=True)}
        missing, unexpected = _assign(target, groups, state, strict, prefix)
        used, copied, unused = _finish(groups, state, sources, dtype, device)
        if warm and on_cpu:
            job = file.warm([one.name for one in used], wait=False, max_bytes=max_bytes)
    return LoadReport(
        path=str(path),
        mapped=sum(one.nbytes for one, is_mapped in used.items() if is_mapped and on_cpu),
        copied=tuple(copied),
        tied=tuple(tuple(slot.name for slot in group) for group in groups if len(group) > 1),
        missing=tuple(missing),
        unexpected=tuple(unexpected),
        unused=tuple(unused),
        on_meta=tuple(slot.name for slot in slots if slot.now is not None and slot.now.is_meta),
        warming=job,
        sent=0 if on_cpu else sum(one.nbytes for one in used),
    )


def is_cpu(device: Any) -> bool:
    """Return whether a device is the CPU, whose tensors can be in a mapping. None means the CPU."""
    return device is None or str(device).partition(":")[0] == "cpu"


def tensors_in(
    file: arrays.ArrayFile, names: list[str], *, device: Any, max_bytes: int | str | None = None
) -> tuple[dict[str, Any], WarmJob | None]:
    """Return a file's arrays as tensors in its mapping, or as copies on a device, and any job that prefetches them."""
    import torch

    if is_cpu(device):
        return _tensors(file, names), None
    torch.empty(0, device=device)  # raises torch's own error for a device that this machine does not have
    in_order = sorted(names, key=lambda name: (file.path_of(name), file.entry(name).offset))
    job, sent = None, {}
    if is_larger_than_memory(sum(file.entry(name).nbytes for name in names)):
        sent = _sent(file, in_order, device)
    elif not _pin(file, in_order, device):
        job = file.warm(in_order, wait=False, max_bytes=max_bytes)
    state = _tensors(file, in_order, device=device, bases=sent)
    for name in names:
        file.memory_of(name)  # raises DataLost if the file was truncated while it was read
    return {name: state[name] for name in names}, job


def _pin(file: arrays.ArrayFile, names: list[str], device: Any) -> bool:
    """Register a file that is in memory with a GPU's driver, to make copying several times as fast."""
    # The file must be copied whole, because a copy must not begin in registered pages and end in others. It must be on
    # ext4 or in memory, because some drivers reportedly hang on pages of xfs and the caller did not ask for pinning.
    import torch

    device = torch.device(device)
    if device.type != "cuda" or len(names) < len(file) or (whole := file.residency()).cached != whole.bytes:
        return False
    try:
        with torch.cuda.device(device):
            torch.empty(1, device=device)  # creates the context in which the pages are registered
            register_with_cuda(file.portions(), only_tried=True)
    except OSError as error:  # an older driver or another file system: the driver copies through its own buffers
        return error.errno == errno.EBUSY  # an earlier call registered it
    return True


_Place: TypeAlias = tuple[str, int, int]
"""The path of a file, and the offset and size of a part of it in bytes."""


def _place_of(file: arrays.ArrayFile, name: str) -> _Place:
    entry = file.entry(name)
    return file.path_of(name), entry.offset, entry.nbytes


def _sent(file: arrays.ArrayFile, names: Iterable[str], device: Any) -> dict[_Place, Any]:
    """Copy the bytes of arrays to a device through a window, for files that are larger than memory."""
    import torch

    places = {_place_of(file, name): name for name in names if file.entry(name).nbytes}
    sent = {place: torch.empty(place[2], dtype=torch.uint8, device=device) for place in places}
    for name, rows, _ in file.stream(places.values(), order="names"):
        place = _place_of(file, name)
        offset, length = range_of(file.entry(name), (name, rows))
        begin = offset - place[1]
        sent[place][begin : begin + length].copy_(_bytes(file.memory_of(name).view[begin : begin + length]))
    return sent


def _bytes(view: memoryview) -> Any:
    import torch

    if not len(view):
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*", category=UserWarning)
        return torch.frombuffer(view, dtype=torch.uint8)


def _tensors(
    file: arrays.ArrayFile,
    names: Iterable[str],
    *,
    device: Any = None,
    bases: dict[_Place, Any] | None = None,
) -> dict[str, Any]:
    """Return tensors in a file's mapping or on a device, reusing copies in `bases`. Equal ranges share storage."""
    bases = {} if bases is None else bases
    found = {}
    for name in names:
        view, kind, shape, strides = file.memory_of(name)
        place = _place_of(file, name)
        if place not in bases or not len(view):  # an empty storage could be resized, so it is not shared
            base = _bytes(view)
            bases[place] = base if device is None else base.to(device)
        base, dtype = bases[place], dtype_in_torch(kind, shape)
        if dtype is None:
            found[name] = base
        elif strides:
            found[name] = base.view(dtype).as_strided(shape, strides)
        else:
            found[name] = base.view(dtype).view(shape if kind != "F4" else (*shape[:-1], shape[-1] // 2))
    return found


def dtype_in_torch(kind: str, shape: tuple[int, ...]) -> Any:
    """Return torch's dtype for elements in a file (or pairs of F4), or None if torch cannot represent them."""
    import torch

    if kind == "F4":
        return getattr(torch, "float4_e2m1fn_x2", None) if shape and shape[-1] % 2 == 0 else None
    dtype = getattr(torch, TYPES.get(kind) or _OTHER_TYPES.get(kind, kind), None)
    return dtype if isinstance(dtype, torch.dtype) else None


class _Slot(NamedTuple):
    """A parameter or buffer of a module, or a tensor in a dict."""

    name: str
    tensors: Any
    key: str
    before: Any
    """The tensor before loading."""
    is_saved: bool
    """Whether the module saves it; False for buffers with ``persistent=False``."""

    @property
    def now(self) -> Any:
        return self.tensors[self.key] if self.key in self.tensors else None  # noqa: SIM401 - TorchScript has no get


def _slots(given: Any, prefix: str = "") -> Iterator[_Slot]:
    """Yield the slots of a module or dict in the order in which torch loads them, with tied weights under each name."""
    import torch

    is_dict = isinstance(given, dict)
    unsaved = getattr(given, "_non_persistent_buffers_set", ())
    for tensors in (given,) if is_dict else (given._parameters, given._buffers):
        for key, tensor in tensors.items():
            if isinstance(tensor, torch.Tensor):
                yield _Slot(f"{prefix}{key}", tensors, key, tensor, key not in unsaved)
    for key, child in (given if is_dict else given._modules).items():
        if isinstance(child, (dict, torch.nn.Module)):
            yield from _slots(child, f"{prefix}{key}.")


def _groups(slots: list[_Slot]) -> list[list[_Slot]]:
    """Group the slots that share a tensor."""
    groups: dict[int, list[_Slot]] = {}
    for slot in slots:
        groups.setdefault(id(slot.before), []).append(slot)
    return list(groups.values())


def _as_module(given: Any, name: str = "module") -> Any:
    """Return a module. For a dict, return one whose `load_state_dict` loads the modules and tensors in the dict."""
    import torch

    if isinstance(given, torch.nn.Module):
        return given
    if not isinstance(given, dict):
        raise TypeError(f"{name} must be a torch.nn.Module or dict of modules and tensors, not {type(given).__name__}")
    module = torch.nn.Module()
    for key, value in given.items():
        if not isinstance(value, torch.Tensor):
            module._modules[str(key)] = _as_module(value, repr(key))
    module._load_from_state_dict = partial(_load_dict, given)
    return module


def _load_dict(
    given: Any, state: Any, prefix: str, _: Any, __: bool, missing: list[str], unexpected: list[str], errors: list[str]
) -> None:
    """Replace the tensors in a dict, as torch does for a module. Names in a dict can be any text."""
    import torch

    known = set()
    for key, old in given.items():
        if isinstance(old, torch.Tensor):
            known.add(name := f"{prefix}{key}")
            new = state.get(name)
            if new is None:
                missing.append(name)
            elif new.shape != old.shape:
                errors.append(f"size mismatch for {name}: {tuple(new.shape)} in the file, {tuple(old.shape)} here.")
            elif isinstance(old, torch.nn.Parameter):
                given[key] = torch.nn.Parameter(new, requires_grad=old.requires_grad)
            else:
                given[key] = new
    parts = tuple(f"{prefix}{key}." for key, value in given.items() if not isinstance(value, torch.Tensor))
    unexpected += [name for name in state if name not in known and not name.startswith(parts)]


def _assign(module: Any, groups: list[list[_Slot]], state: dict[str, Any], strict: bool, prefix: str) -> Any:
    """Let torch assign either all or none of a file's tensors. Return missing and unexpected names."""
    slots = [slot for group in groups for slot in group]
    for group in groups:  # a name that the file does not have gets the tensor of the last name that it is tied to
        found = [state[slot.name] for slot in group if slot.name in state]
        state.update({slot.name: found[-1] for slot in group if found and slot.name not in state})
    for slot in slots:  # torch does not load buffers that the module does not save
        old, new = slot.before, None if slot.is_saved else state.pop(slot.name, None)
        if new is not None and old.is_meta and (new.dtype, new.shape) == (old.dtype, old.shape):
            slot.tensors[slot.key] = new
    try:
        result = module.load_state_dict(state, strict=strict, assign=True)
        lost = [slot.name for slot in slots if not slot.is_saved and slot.now is slot.before and slot.now.is_meta]
        if lost and strict:
            advice = "create them outside torch.device('meta'), or pass strict=False and assign values"
            raise RuntimeError(f"buffers on the meta device are not in the file: {', '.join(lost)} ({advice})")
    except Exception as error:
        for slot in slots:
            slot.tensors[slot.key] = slot.before
        missing = next((slot.name for slot in slots if slot.is_saved and slot.name not in state), "")
        if found := [name for name in state if name.endswith(f".{missing}")]:
            begin = prefix + found[0].removesuffix(missing)
            error.add_note(f"The file has {prefix + found[0]!r}: pass prefix={begin!r} if this is {missing!r}")
        raise
    return result or ((), ())  # a class may override the method and return None


def _finish(
    groups: list[list[_Slot]], state: dict[str, Any], sources: dict[int, arrays.Entry], dtype: Any, device: Any
) -> tuple[dict[arrays.Entry, bool], list[Copied], list[str]]:
    """Tie and cast the assigned weights. Return the used arrays (True if mapped), copies, and unused names."""
    import torch

    used, copied, unused = dict[arrays.Entry, bool](), list[Copied](), list[str]()
    for group in groups:
        assigned = [slot.now for slot in group if slot.now is not slot.before or slot.name in state]
        if not assigned or (weight := assigned[-1]) is None:
            continue
        at, why, data = _storage(weight), "", weight.detach()
        kept = data if is_cpu(device) else data.to(device)  # a hook may have created it on another device
        if dtype is not None and group[0].is_saved and needs_cast(data, dtype):
            kept, why = kept.to(dtype), f"cast from {str(data.dtype)[6:]} to {str(dtype)[6:]}"
        elif at not in sources and is_cpu(device):
            why = "computed by the module while it was loaded"
        if why:
            copied.append(Copied(group[0].name, kept.numel() * kept.element_size(), why))
        if at in sources:
            used[sources[at]] = not why
        if kept is data:
            kept = weight
        elif isinstance(weight, torch.nn.Parameter):
            kept = torch.nn.Parameter(kept, requires_grad=weight.requires_grad)
        unused += [slot.name for slot in group if slot.name in state and _storage(state[slot.name]) != at]
        for slot in group:
            slot.tensors[slot.key] = kept
    return used, copied, unused


def _storage(tensor: Any) -> int:
    """Return an identifier of a tensor's storage, or 0 for None, and for tensors without a storage."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (AttributeError, NotImplementedError, RuntimeError, ValueError):
        return 0
