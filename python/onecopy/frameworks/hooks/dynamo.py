"""Keeps `torch.compile` from tracing functions of onecopy: they run unchanged between two graphs, without a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def apply(trace_rules: ModuleType) -> None:
    """Add onecopy to the packages that torch does not trace."""
    trace_rules.add("onecopy")
