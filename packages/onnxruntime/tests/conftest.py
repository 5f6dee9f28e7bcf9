"""A model of each kind, a place for what is prepacked, and models that seem worth it."""

from pathlib import Path

import pytest
from packages.onnxruntime.tests.sessions import KINDS, make


@pytest.fixture(params=KINDS)
def model(request, tmp_path) -> Path:
    return make(request.param, tmp_path)


@pytest.fixture
def store(tmp_path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def worth_it(monkeypatch):
    """Let `auto` take these models for large ones."""
    from onecopy_onnxruntime import sessions

    monkeypatch.setattr(sessions, "MIN_TO_PREPACK", 1)
    monkeypatch.setattr(sessions, "MIN_TO_ALIGN", 1)
