"""Every example in a docstring of this package runs and shows what it says."""

import doctest
import importlib
import tempfile
from pathlib import Path

import pytest

import onecopy_bench

HERE = Path(onecopy_bench.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(HERE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in HERE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_are_true(module, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
