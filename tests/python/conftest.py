"""What needs a package that `make test` does without."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def save_inline() -> Callable[..., Path]:
    """Give `onnx_models.save_inline` (path, *, aligned, rows, width); skip without onnx and ONNX Runtime."""
    pytest.importorskip("onnxruntime")
    from tests.support.onnx_models import save_inline

    return save_inline
