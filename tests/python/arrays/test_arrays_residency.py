"""Warming, evicting, pinning and asking about arrays by name and by rows; mincore is the judge."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

import onecopy as oc
from onecopy.memory import proc

PAGE = mmap.PAGESIZE
MIB = 1 << 20
ARRAY = 512 * PAGE


@pytest.fixture
def model(tmp_path) -> Path:
    """Save four arrays of 512 rows of one page each, on 2 MiB; a scalar; and one without elements."""
    path = tmp_path / "model.safetensors"
    big = {name: np.full((512, PAGE // 4), number, np.float32) for number, name in enumerate("abcd")}
    oc.save(path, {**big, "step": np.int64(7), "empty": np.zeros((0, 3))}, align=2 * MIB)
    oc.evict(path)
    return path


@pytest.fixture
def cold_model(model):
    """Open it, and take out again what the kernel read ahead behind the header."""
    with oc.open(model) as file:
        file.evict()
        yield file


def pages_of(file: oc.ArrayFile, name: str, rows: range = range(512)) -> set[int]:
    first = file.entry(name).offset // PAGE
    return {first + row for row in rows}


def locked_pages(path: Path) -> set[int]:
    regions = [region for region in proc.regions_of(os.getpid(), path) if "lo" in region.vm_flags]
    return {(region.offset + at) // PAGE for region in regions for at in range(0, region.end - region.start, PAGE)}


# "read" only: touching through the mapping lets the kernel read around the place, also before it.
READ = {"mechanism": "read", "threads": 1, "huge": False}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["c"], {"c": range(512)}),
        ([("b", slice(100, 110)), ("c", slice(-3, None))], {"b": range(100, 110), "c": range(509, 512)}),
    ],
    ids=["a name", "rows"],
)
def test_warming_brings_in_these_arrays_and_rows_and_nothing_before_them(
    cold_model, model, cached_pages, names, expected
):
    needed = set().union(*(pages_of(cold_model, name, rows) for name, rows in expected.items()))
    report = cold_model.warm(names, **READ)
    assert (report.bytes, report.complete) == (len(needed) * PAGE, True)
    assert cold_model.residency(names).share == 1.0
    assert needed <= cached_pages(model)
    assert not cached_pages(model) & set(range(min(pages_of(cold_model, "a")), min(needed)))


@pytest.mark.parametrize(
    ("rows", "count"),
    [(slice(None), 512), (slice(5), 5), (slice(500, 9999), 12), (slice(9, 3), 0), (slice(600, 700), 0)],
)
def test_rows_are_those_of_a_python_slice(model, rows, count):
    with oc.open(model) as file:
        assert file.residency([("a", rows)]).bytes == count * PAGE


def test_no_names_are_everything_and_an_empty_list_is_nothing(cold_model, model, cached):
    assert cold_model.warm([]).bytes == cold_model.evict([]).bytes == cold_model.residency([]).bytes == 0
    assert cached(model) == 0
    assert cold_model.warm().bytes >= model.stat().st_size
    assert cached(model) >= model.stat().st_size
    assert cold_model.warm(name for name in "ab").bytes == cold_model.warm({"a": 1, "d": 2}).bytes == 2 * ARRAY
    assert cold_model.residency(["step"]).bytes in (8, PAGE)  # the last of the file: cut there, or a whole page
    assert cold_model.residency(["empty", ("empty", slice(0, 9))]).bytes == 0


def test_an_evicted_array_leaves_the_others(model):
    with oc.open(model) as file:
        file.warm(huge=False)
        assert file.evict(["b"]).cached_after == 0
        assert file.residency(["a", "c", "d"]).share == 1.0
        assert file["b"].min() == file["b"].max() == 1


@pytest.mark.unsanitized  # AddressSanitizer makes mlock do nothing
def test_arrays_can_be_pinned_by_name(model):
    with oc.open(model) as file:
        report = file.pin([("a", slice(0, 4)), "step"])
        assert report.outcome == "applied"
        assert report.pinned == report.bytes > 4 * PAGE
        assert locked_pages(model) == pages_of(file, "a", range(4)) | pages_of(file, "step", range(1))
        file.evict()
        assert file.residency([("a", slice(0, 4))]).share == 1.0
        file.unpin()
        file.evict()
        assert file.residency([("a", slice(0, 4))]).cached == 0


def test_the_options_of_warm_are_passed_on(cold_model, model, cached):
    calls = []
    assert cold_model.warm(["a"], mechanism="none").mechanism == "none"
    assert cold_model.warm(["a"], max_bytes=0).filled == 0
    assert cached(model) == 0
    assert cold_model.warm(["a"], wait=False).wait().complete
    cold_model.warm(["a"], mechanism="read", threads=1, progress=lambda *numbers: calls.append(numbers))
    assert calls[-1] == (ARRAY, ARRAY)
    with pytest.raises(TypeError, match="magic"):
        cold_model.warm(magic=True)


WRONG = [("a", TypeError), (["a", "missing"], KeyError), ([("missing", slice(3))], KeyError)]
WRONG += [([("a", slice(0, 10, 2))], ValueError), ([("a", 3)], TypeError)]


@pytest.mark.parametrize("call", ["warm", "evict", "residency", "pin", "unpin"])
def test_wrong_names_are_reported(model, call):
    with oc.open(model) as file:
        for names, error in WRONG:
            with pytest.raises(error, match=r"names must be a list|missing|step 1|slice"):
                getattr(file, call)(names)


@pytest.mark.unsanitized  # AddressSanitizer makes mlock do nothing
def test_rows_of_half_bytes_are_rounded_outwards(write_tensors):
    path = write_tensors({"x": ("F4", [2 * PAGE, 3], bytes(3 * PAGE))})
    across = 2 * PAGE // 3  # the row that ends in the middle of the first byte of the second page
    with oc.open(path) as file:
        for rows, pages in ((slice(2 * PAGE - 1, 2 * PAGE), {3}), (slice(across, across + 1), {1, 2})):
            file.pin([("x", rows)])
            assert locked_pages(path) == pages
            file.unpin()
