"""Arrays one after another through a window of memory."""

import numpy as np
import pytest
from tests.support.children import call_in_child
from tests.support.memory_group import NoMemoryGroupError, memory_group

import onecopy as oc

MIB = 1 << 20
WINDOW = 8 * MIB
SLACK = 64 * MIB
"""What the kernel reads ahead of what it is asked for."""


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    small = {f"small {i}": rng.integers(0, 255, 100 * i, np.uint8) for i in range(50)}
    large = {f"large {i}": rng.integers(0, 255, (37, 1 << 18), np.uint8) for i in range(10)}
    return {"scalar": np.array(7.0), **small, **large, "end": np.arange(10)}


@pytest.fixture
def file(arrays, tmp_path):
    oc.save(tmp_path / "arrays.safetensors", arrays)
    with oc.open(tmp_path / "arrays.safetensors") as opened:
        opened.evict()
        yield opened


def whole(parts):
    """Put the parts of each array together, in the order in which they came."""
    found, ends = {}, {}
    for name, rows, array in parts:
        assert not array.flags.writeable
        assert array.ndim == 0 or len(array) == rows.stop - rows.start
        assert ends.get(name, rows.start) == rows.start
        ends[name] = rows.stop
        found.setdefault(name, []).append(array)
    return {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in found.items()}


@pytest.mark.parametrize("window", [WINDOW, "20 MiB", "1 GiB"])
def test_every_byte_comes_once_in_the_order_of_the_file(file, arrays, window):
    found = whole(file.stream(window=window))
    assert list(found) == sorted(arrays, key=lambda name: file.entry(name).offset)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_names_come_in_their_order_and_rows_as_they_were_asked_for(file, arrays):
    asked = ["end", ("large 3", slice(5, 30)), "scalar", ("large 0", slice(36, None))]
    found = whole(file.stream(asked, order="names", window=WINDOW))
    assert list(found) == ["end", "large 3", "scalar", "large 0"]
    np.testing.assert_array_equal(found["large 3"], arrays["large 3"][5:30], strict=True)
    np.testing.assert_array_equal(found["large 0"], arrays["large 0"][36:], strict=True)


def test_the_page_cache_has_no_more_than_the_window_and_nothing_afterwards(file):
    peak = max(file.residency().cached for _ in file.stream(window=WINDOW))
    assert 0 < peak <= WINDOW + SLACK < file.nbytes
    assert file.residency().cached <= 4 * MIB


def test_what_was_in_memory_stays_there(file):
    file.warm()
    before = file.residency().cached
    for _, _, array in file.stream(window=WINDOW):
        array.sum()  # the kernel may drop what is not used
    assert file.residency().cached >= before - 4 * MIB


def test_a_stream_that_is_not_read_to_its_end_releases_what_it_has_read(file):
    stream = file.stream(window=WINDOW)
    name, _, array = next(stream)
    stream.close()
    assert file.residency().cached <= SLACK
    np.testing.assert_array_equal(array, file[name])


def test_an_array_stays_valid_after_the_next_one_was_taken(file, arrays):
    kept = [(name, rows, array) for name, rows, array in file.stream(window=WINDOW)]
    np.testing.assert_array_equal(whole(kept)["large 0"], arrays["large 0"])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"names": ["missing"]}, KeyError),
        ({"order": "size"}, ValueError),
        ({"window": 1000}, ValueError),
        ({"names": [("large 0", slice(0, 8, 2))]}, ValueError),
    ],
)
def test_what_cannot_be_streamed_is_an_error_when_the_first_part_is_asked_for(file, options, error):
    with pytest.raises(error):
        next(iter(file.stream(**options)))


def test_a_row_that_does_not_fit_names_the_window_that_is_needed(tmp_path):
    oc.save(tmp_path / "x", {"wide": np.zeros((2, 3 * MIB), np.uint8)})
    with oc.open(tmp_path / "x") as file, pytest.raises(ValueError, match=f"at least {12 * MIB} bytes"):
        list(file.stream(window=WINDOW))


@pytest.mark.processes
def test_a_file_of_twice_the_memory_is_streamed_in_it(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {f"a{i}": rng.integers(0, 255, 8 * MIB, np.uint8) for i in range(48)}
    path = tmp_path / "large"
    oc.save(path, arrays)
    sums = {name: int(array.sum(dtype=np.int64)) for name, array in arrays.items()}
    oc.evict(path)

    def work(enter):
        enter()
        with oc.open(path) as file:
            return {name: int(array.sum(dtype=np.int64)) for name, _, array in file.stream(window="64 MiB")}

    try:
        with memory_group(192 * MIB) as enter:
            assert call_in_child(lambda: work(enter)) == sums
    except NoMemoryGroupError as error:
        pytest.skip(str(error))
