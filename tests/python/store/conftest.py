"""A store of one's own."""

import pytest

import onecopy as oc


@pytest.fixture
def store(tmp_path) -> oc.Store:
    return oc.Store(tmp_path / "store")
