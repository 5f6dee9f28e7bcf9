"""Files of objects that are damaged, foreign or wrong: an error with the path, and nothing is unpickled or lost."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.support.damage import flipped
from tests.support.objects import ABOUT, ARRAYS, RAN, Runs

import onecopy as oc


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "object.oc"


@pytest.mark.parametrize("trusted", [False, 1, "yes", None])
def test_nothing_is_opened_without_trust(path, trusted):
    RAN.clear()
    oc.save_object(path, Runs())
    for options in ({"trusted": trusted}, {}):
        with pytest.raises(ValueError, match=r"unpickles .*object\.oc, which runs code .* trusted=True"):
            oc.load_object(path, **options)
    assert RAN == []
    oc.load_object(path, trusted=True)
    assert RAN == ["ran"]


def test_a_damaged_pickle_is_a_checksum_error_and_nothing_runs(path):
    RAN.clear()
    oc.save_object(path, [Runs(), np.zeros(1 << 20), *np.zeros((6000, 100))])
    entries = [oc.open(path).entry(f"object.{name}") for name in ("pickle", "buffers", "small")]
    for at in (at for one in entries for at in range(one.offset, one.offset + one.nbytes, one.nbytes // 40)):
        with flipped(path, at, 4), pytest.raises(oc.ChecksumError, match=str(path)):
            oc.load_object(path, trusted=True)
    oc.save(path, ARRAYS, {"onecopy.object": json.dumps(ABOUT)}, 64, checksum=False)
    with pytest.raises(oc.errors.NoChecksum):
        oc.load_object(path, trusted=True)
    assert RAN == []


def test_other_files_are_refused_by_name(path, tmp_path):
    oc.save(path, {"a": np.zeros(3)})
    with pytest.raises(oc.FormatError, match=r"object\.oc: .*onecopy\.open"):
        oc.load_object(path, trusted=True)
    with pytest.raises(FileNotFoundError):
        oc.load_object(tmp_path / "none.oc", trusted=True)
    from onecopy import records

    records.save(path, ["a"])
    with pytest.raises(oc.FormatError) as raised:
        oc.load_object(path, trusted=True)
    assert raised.value.found == "file of records"


@pytest.mark.parametrize(
    ("about", "arrays", "kind"),
    [
        (ABOUT, {"object.buffers": np.zeros((1, 3), np.int64)}, "MALFORMED"),
        (ABOUT, {"object.buffers": np.zeros(4, np.int64)}, "MALFORMED"),
        (ABOUT, {"object.buffers": np.zeros((1, 4))}, "MALFORMED"),
        (ABOUT, {"object.small": None}, "INCONSISTENT"),
        (ABOUT, {"a": None}, "INCONSISTENT"),
        (ABOUT | {"version": 2}, {}, "UNSUPPORTED"),
        (ABOUT | {"arrays": [3]}, {}, "MALFORMED"),
        (ABOUT | {"arrays": "a"}, {}, "MALFORMED"),
        (ABOUT | {"packages": ["numpy"]}, {}, "MALFORMED"),
        ([1], {}, "MALFORMED"),
        ({"version": 1}, {}, "MALFORMED"),
    ],
)
def test_a_wrong_description_is_refused_before_anything_is_unpickled(path, about, arrays, kind):
    RAN.clear()
    chosen = {**ARRAYS, "object.pickle": np.frombuffer(pickle.dumps(Runs()), np.uint8), **arrays}
    given = {name: array for name, array in chosen.items() if array is not None}
    oc.save(path, given, {"onecopy.object": json.dumps(about)}, 64)
    with pytest.raises(oc.FormatError) as raised:
        oc.load_object(path, trusted=True)
    assert (raised.value.kind.name, raised.value.path, RAN) == (kind, str(path), [])


EDGES = st.sampled_from([-(2**63), -1, 0, 1, 2, 8, 24, 25, 2**62, 2**63 - 1])


WHICH = st.sampled_from([0, 1]) | EDGES
NEAR = st.integers(0, 25) | EDGES
"""Places in buffers of 16 and 24 bytes, and far outside of them."""


@given(rows=st.lists(st.tuples(WHICH, NEAR, NEAR, EDGES), max_size=2))
def test_every_table_of_buffers_is_refused_or_in_bounds(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("tables") / "object.oc"
    buffers = [pickle.PickleBuffer(bytearray(b"x")) for _ in rows]
    content = np.frombuffer(pickle.dumps(buffers, protocol=5, buffer_callback=lambda _: False), np.uint8)
    table = np.array(rows, np.int64).reshape(-1, 4)
    oc.save(
        path, ARRAYS | {"object.pickle": content, "object.buffers": table}, {"onecopy.object": json.dumps(ABOUT)}, 64
    )
    sizes = {0: 16, 1: 24}
    valid = all(
        which in sizes and 0 <= offset <= sizes[which] and 0 <= nbytes <= sizes[which] - offset
        for which, offset, nbytes, _ in rows
    )
    if valid:
        loaded = oc.load_object(path, trusted=True)
        assert [bytes(view) for view in loaded] == [bytes(nbytes) for _, _, nbytes, _ in rows]
    else:
        with pytest.raises(oc.FormatError) as raised:
            oc.load_object(path, trusted=True)
        assert raised.value.kind is raised.value.Kind.OUT_OF_BOUNDS


class Gone:
    pass


def test_a_class_that_is_missing_is_an_error_with_the_file_and_the_versions(path, monkeypatch):
    oc.save_object(path, [Gone(), np.zeros(3)])
    monkeypatch.delattr(__import__(__name__, fromlist=["Gone"]), "Gone")
    with pytest.raises(AttributeError) as raised:
        oc.load_object(path, trusted=True)
    assert f"{path}: a builtins.list, saved by Python 3" in raised.value.__notes__[0]
    assert f"numpy {np.__version__}" in raised.value.__notes__[0]


def test_what_cannot_be_pickled_leaves_the_old_file(path):
    oc.save_object(path, [1])
    for value in ([lambda: 1], [open(os.devnull)]):  # noqa: SIM115, PTH123
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            oc.save_object(path, value)
        getattr(value[0], "close", lambda: None)()
    assert oc.load_object(path, trusted=True) == [1]
    with pytest.raises(ValueError, match="wrong suffix"):
        oc.save_object(path.with_suffix(".pkl"), [1])
