"""Fixtures of the tests of images."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """Keep what is decoded out of the usual folder."""
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
