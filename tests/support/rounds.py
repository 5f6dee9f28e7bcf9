"""What `make nightly` does more than `make test-all`: more rounds of random moments, and more rows of a table."""

import os
from collections.abc import Container, Iterable
from typing import Any

import pytest


def rounds(usual: int, nightly: int = 1000) -> int:
    return nightly if os.environ.get("ONECOPY_TORTURE") == "1" else usual


def rows(names: Iterable[str], each_time: Container[str]) -> list[Any]:
    """Return the parameters of a test; those that are not in `each_time` are marked as nightly."""
    return [name if name in each_time else pytest.param(name, marks=pytest.mark.nightly) for name in names]
