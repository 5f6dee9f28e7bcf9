"""Dtypes of torch; files with floating-point weights cast to another dtype, made once per machine in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onecopy import arrays
from onecopy.arrays.saving import save
from onecopy.store import Store

if TYPE_CHECKING:
    import os
    from pathlib import Path

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

    Raises
    ------
    TypeError
        torch has no such dtype.
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
        from onecopy.integrations.torch._load import load

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
    from onecopy.integrations.torch._load import load

    return any(is_cast(tensor, dtype) for tensor in load(path, unsafe_shared=True).values())


def cast_once(path: str | os.PathLike[str], dtype: Any, store: Store | str | os.PathLike[str] | None = None) -> Path:
    """Return the path of a file with the weights of `path` cast to another dtype; made unless the store has it.

    Raises
    ------
    OSError, FormatError
        The file cannot be opened, as for `onecopy.open`; the store cannot be written, or its disk is full.
    TypeError
        safetensors does not have the dtype of a weight.
    """
    with arrays.open_arrays(path) as file:
        metadata = file.metadata if file.container == "safetensors" else {}
        real = file.path
        key = arrays.key_of(file, f"cast to {str(dtype).removeprefix('torch.')}, layout 1")
    here = Store.of(store).with_options(where="here")
    return here.get_or_build(key, lambda target: save(target, _Cast(real, dtype), metadata), source=path).path
