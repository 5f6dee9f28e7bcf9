"""Tests that import torch, in a run of their own: a process that has it cannot be forked, and behaves otherwise."""

from typing import Any

import pytest


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")
