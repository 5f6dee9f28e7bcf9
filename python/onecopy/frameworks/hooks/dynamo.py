"""Prevents `torch.compile` from tracing onecopy's functions, which run unchanged between graphs, without a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from types import ModuleType


def apply(trace_rules: ModuleType) -> None:
    """Add onecopy to the list of packages that torch does not trace. Packages that are not installed are ignored."""
    for package in ("onecopy", *lazy.DISTRIBUTIONS.values()):
        trace_rules.add(package)
