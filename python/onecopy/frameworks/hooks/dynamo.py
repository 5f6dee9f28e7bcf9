"""Prevents `torch.compile` from tracing onecopy's functions, which run unchanged between graphs, without a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def apply(trace_rules: ModuleType) -> None:
    """Add onecopy to the list of packages that torch does not trace."""
    trace_rules.add("onecopy")
