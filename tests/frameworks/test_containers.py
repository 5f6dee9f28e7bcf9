"""What `share`, rows and `share_object` return for each type is what the documentation says."""

import array
import collections
import dataclasses
import importlib
import re
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.places import ROOT

import onecopy as oc

PAGE = ROOT / "docs/howto/share-data.md"
GROUP = re.compile(r"^\* \*\*(List|Table|Dict|refused), (same|refused), (same|refused):\*\*([^*]+)", re.MULTILINE)
ROWS = {text: found[:3] for found in GROUP.findall(PAGE.read_text()) for text in re.findall(r"`([^`]+)`", found[3])}


class Names(list[Any]):
    pass


class Ages(dict[str, Any]):
    pass


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Box:
    width: int
    height: int


def made(text: str) -> Any:
    """Return the value of an expression on the page."""
    scope: dict[str, Any] = {"array": array, "collections": collections, "types": types}
    scope |= {"Names": Names, "Ages": Ages, "Point": Point, "Box": Box}
    if (name := text.partition(".")[0]) in ("numpy", "torch", "pandas", "pyarrow", "polars", "scipy"):
        pytest.importorskip("scipy.sparse" if name == "scipy" else name)
        scope[name] = importlib.import_module(name)
    return eval(text, scope)


def test_the_page_has_at_least_40_types():
    assert len(ROWS) >= 40


@pytest.mark.parametrize("text", ROWS)
def test_what_comes_back_is_what_the_page_says(tmp_path, monkeypatch, text):
    as_data, in_row, as_object = ROWS[text]
    monkeypatch.chdir(tmp_path)
    np.savez("arrays.npz", a=[1])
    kind, store = type(made(text)), oc.Store("store")
    for shared in (lambda: oc.share(made(text)), oc.cached(store=store)(lambda: made(text))):
        if as_data == "refused":
            with pytest.raises(oc.errors.NotShareable, match=f"not {kind.__name__}: .*share_object"):
                shared()
        else:
            with shared() as rows:
                assert type(rows).__name__ == as_data
                assert list(rows) == list(made(text))
    if in_row == "refused":
        with pytest.raises(oc.errors.NotShareable):
            oc.share([made(text)])
    else:
        with oc.share([made(text)]) as rows:
            assert (type(rows[0]), str(rows[0])) == (kind, str(made(text)))
    cached = oc.cached(codec="object", store=store)(lambda: made(text))
    if as_object == "refused":
        with pytest.raises(TypeError):
            cached()
    else:
        value: Any = cached()
        assert (
            (type(value), str(value)) == (kind, str(made(text))) or kind.__name__.endswith("_iterator") or kind is map
        )
