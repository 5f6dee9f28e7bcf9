"""Every example in a docstring of a public module runs and shows what it says."""

import doctest
import importlib
import tempfile

import pytest


@pytest.mark.parametrize("room", ["files", "residency", "arrays", "proc", "cgroup"])
def test_the_examples_of_a_module_are_true(room, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = doctest.testmod(importlib.import_module(f"onecopy.{room}"))
    assert result.attempted > 0
    assert result.failed == 0
