"""A small model."""

import os
from pathlib import Path

import pytest
from tests.support.safetensors_files import write_safetensors


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tensors = {"layer.0.weight": os.urandom(5000), "layer.1.weight": os.urandom(70_000), "bias": b"12345678"}
    return write_safetensors(tmp_path / "model.safetensors", tensors)
