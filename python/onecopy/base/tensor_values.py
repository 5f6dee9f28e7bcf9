"""Checks whether a torch tensor's bytes are its values.

A flag can conjugate, negate or zero a tensor without changing its bytes. Sparse, quantised and nested tensors consist
of several parts. Tensors on the meta device, and tensors that wrap other tensors, have no bytes. Modules that use a
tensor's memory first call `expect_memory` or `resolved`. None of these functions imports torch.
"""

from __future__ import annotations

import sys
from typing import Any


def is_tensor(value: Any) -> bool:
    """Return whether a value is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def why_not_dense(tensor: Any) -> str:
    """Explain why a tensor is not a single block of elements, and what to use instead. Return "" if it is."""
    if tensor.is_nested:
        return "a nested tensor: use the tensors that unbind() returns"
    if tensor.layout is not sys.modules["torch"].strided:
        return f"a sparse tensor with the layout {tensor.layout}: use the result of to_dense()"
    if tensor.is_quantized:
        return "a quantised tensor, which includes scales: use the result of dequantize(), or int_repr() and the scales"
    if tensor.numel() and not (tensor.is_meta or tensor._is_zerotensor() or has_memory(tensor)):
        return f"a {type(tensor).__name__}, which has no memory of its own: use the tensors that it wraps"
    return ""


def has_memory(tensor: Any) -> bool:
    """Return whether a tensor has a storage that contains bytes, on any device."""
    try:
        return bool(tensor.untyped_storage().data_ptr())
    except (RuntimeError, ValueError):  # a wrapper, a sparse or zero tensor, an uninitialized parameter
        return False


def is_lazy(tensor: Any) -> bool:
    """Return whether a flag conjugates, negates or zeroes a dense tensor, so that its values differ from its bytes."""
    return bool(tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor())


def expect_memory(tensor: Any) -> None:
    """Raise TypeError, with the reason, unless a tensor's values are a single block of elements on the CPU."""
    reason = why_not_dense(tensor)
    if not reason and tensor.device.type != "cpu":
        reason = "a tensor on the meta device, which has no data"
        if not tensor.is_meta:
            reason = f"a tensor on {tensor.device}: use the result of cpu()"
    if reason:
        raise TypeError(f"cannot use the memory of {reason}")


def resolved(tensor: Any) -> Any:
    """Return a detached tensor whose bytes are its values, copying a lazy one. Raise TypeError like `expect_memory`."""
    expect_memory(tensor)
    if tensor._is_zerotensor():
        return sys.modules["torch"].zeros_like(tensor)
    return tensor.detach().resolve_conj().resolve_neg()
