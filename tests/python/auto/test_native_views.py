"""Native objects that view a snapshot: readers of their library get the view, all others a private copy."""

import importlib
import sys

import pytest

from onecopy.run import call_log, native_views

LIBRARY = """
class Index:
    def search(self):
        return self.native

    def add(self):
        return self.native
"""


@pytest.fixture
def index(tmp_path, monkeypatch):
    (tmp_path / "library_of_index.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("library_of_index")
    monkeypatch.delitem(sys.modules, "library_of_index")
    native_views.defer(module.Index, "native", {"search"}, module)
    made = module.Index()
    made.native = "as loaded"
    native_views.View("view", lambda: "copy").take_from(made, "native")
    return made


def search(index):
    return index.native


def test_a_function_of_the_library_that_only_reads_gets_the_view(index):
    assert (index.search(), index.search()) == ("view", "view")


@pytest.mark.parametrize("use", [lambda index: index.add(), search], ids=["another function", "the program"])
def test_any_other_use_reads_a_copy_which_stays(index, use):
    assert use(index) == "copy"
    assert index.search() == "copy"
    assert call_log.calls() == ()


def test_other_attributes_are_missing_as_before(index):
    with pytest.raises(AttributeError, match="'Index' object has no attribute 'other'"):
        index.other  # noqa: B018
