import mmap
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from safetensors.numpy import load_file

import onecopy as oc
from onecopy.arrays import scratch_indexing as regions
from onecopy.arrays.scratch import HeapArray, alloc

pytestmark = pytest.mark.usefixtures("reserving")

MIB = 1 << 20
TYPES = ["?", "u1", "i2", "<f4", "f8", "c8", "u8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]


@st.composite
def shapes_and_regions(draw):
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
    region = []
    for extent in shape:
        if extent and draw(st.booleans()):
            region.append(draw(st.integers(-extent, extent - 1)))
        else:
            ends = st.none() | st.integers(-8, 8)
            region.append(slice(draw(ends), draw(ends)))
    first, last = sorted(draw(st.tuples(*[st.integers(0, len(shape))] * 2)))
    if draw(st.booleans()):
        region[first:last] = [...]
    else:
        del region[first:]
    return shape, tuple(region)


@pytest.mark.parametrize("most", [1, 3, 1 << 14])
@given(drawn=shapes_and_regions())
def test_the_ranges_of_a_region_are_the_bytes_that_numpy_would_write(drawn, most):
    shape, region = drawn
    marked = np.zeros(shape, "u2")
    marked[region] = 0xFFFF
    with patch.object(regions, "MAX_RANGES", most):
        ranges = regions.ranges_of(region, shape, 2)
    ours = np.zeros(marked.nbytes, "u1")
    for offset, length in ranges:
        assert length > 0
        assert not ours[offset : offset + length].any()
        ours[offset : offset + length] = 0xFF
    theirs = marked.reshape(-1).view("u1")
    assert len(ranges) <= most
    assert (ours == theirs).all() if most == 1 << 14 else (ours >= theirs).all()  # wider, and never less


@given(shapes_and_regions(), st.sampled_from([8, 64, 16 << 20]), st.booleans())
def test_write_is_what_numpy_would_have_done(drawn, chunk, broadcast):
    shape, region = drawn
    naive = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype("f4")
    values = -np.arange(1, naive[region].size + 1.0).reshape(naive[region].shape)
    if broadcast and values.ndim:
        values = values[..., -1:]
    with patch("onecopy.arrays.scratch.CHUNK", chunk), oc.scratch(shape, "f4") as ours:
        ours.write(None, naive)
        ours.write(region, values)
        naive[region] = values
        np.testing.assert_array_equal(ours.array, naive)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_scratch_array_has_every_type_that_the_file_has(tmp_path, dtype):
    values = np.random.default_rng(1).integers(0, 2, (5, 7)).astype(dtype)
    with oc.scratch((5, 7), dtype, tmp_path) as ours:
        assert not ours.array.view("u1").any()
        ours.write(None, values)
        assert (ours.dtype, ours.shape, ours.nbytes, len(ours)) == (values.dtype, (5, 7), values.nbytes, 5)
        assert not list(tmp_path.iterdir())
        saved = ours.save(tmp_path / "x.safetensors")
        assert saved.path == str(tmp_path / "x.safetensors")
    with oc.open(tmp_path / "x.safetensors", verify=True) as file:
        assert file.entry("data").offset % 4096 == 0
        np.testing.assert_array_equal(file["data"], values)


REFUSED = [((3, dtype), TypeError, None) for dtype in ("U8", "O", "c16")]
REFUSED += [
    ((3, ">f4"), ValueError, "byte order|little-endian|big-endian"),
    (((2, -1), "u1"), ValueError, "negative"),
    (((2.5,), "u1"), TypeError, None),
    (((2**40, 2**40), "f8"), OSError, "exceed the maximum size of a file"),
    ((3, "u1", "a\0b"), ValueError, "null"),
    ((3, "u1", None, True, "a lot"), ValueError, "not a size"),
    ((3, "u1", None, True, 5), OSError, "at least 1048576 bytes"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSED)
def test_types_and_shapes_that_no_file_has_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        oc.scratch(*arguments)


WRONG = [(4, IndexError), ((0, 0, 0), IndexError), (slice(None, None, 2), ValueError)]
WRONG += [(index, TypeError) for index in (1.0, True, [1, 2], (..., ...))]


@pytest.mark.parametrize("heap", [True, False])
def test_an_index_that_is_none_is_refused(heap):
    with alloc((4, 5), "u1", heap_below="1 MiB" if heap else 0) as ours:
        for index, error in WRONG:
            with pytest.raises(error):
                ours.write(index, 1)
        with pytest.raises(ValueError, match="broadcast"):
            ours.write(0, [1, 2])
        assert not ours.array.any()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_arrays_without_axes_and_without_bytes_work(tmp_path, shape):
    with oc.scratch(shape, "f8", tmp_path) as ours:
        ours.write(None, 4.5)
        assert ours.array.shape == shape
        ours.release()
        ours.prefetch()
        ours.flush()
        assert str(ours.memory())
        sealed = pickle.loads(pickle.dumps(ours.seal()))
        np.testing.assert_array_equal(sealed.array, np.full(shape, 4.5))
        ours.save(tmp_path / "x", "one", {"story": "short"})
    with oc.open(tmp_path / "x", verify=True) as file:
        assert file.metadata["story"] == "short"
        np.testing.assert_array_equal(file["one"], np.full(shape, 4.5))


def test_it_is_an_array_to_numpy_dlpack_and_the_buffer_protocol(tmp_path):
    with oc.scratch((2, 3), "f4", tmp_path) as ours:
        seen = np.asarray(ours)
        seen[1, 2] = 5
        assert ours.array[1, 2] == 5
        assert np.from_dlpack(ours)[1, 2] == 5
        assert ours.__dlpack_device__() == (1, 0)
        assert ours.__buffer__(0)[1, 2] == 5
        assert np.asarray(ours, "f8")[1, 2] == 5
        assert np.array(ours, copy=True) is not ours.array
        if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
            with pytest.raises(ValueError, match="copy"):  # our words, or from Python 3.12 on numpy's
                np.asarray(ours, "f8", copy=False)


def test_what_is_sealed_cannot_be_written(tmp_path):
    ours = oc.scratch((2, 3), "f4", tmp_path)
    array = ours.array
    array[:] = 1
    sealed = ours.seal()
    assert (ours.seal() is sealed, ours.sealed, ours.array.flags.writeable) == (True, True, False)
    for one in (array, sealed.array):
        with pytest.raises(ValueError, match="read-only"):
            one[0] = 2
    with pytest.raises(PermissionError):
        ours.write(0, 2)
    with pytest.raises(ValueError, match="WRITEABLE"):
        sealed.array.flags.writeable = True
    assert (np.asarray(sealed) == 1).all()


def test_arrays_live_on_when_everything_is_closed(tmp_path):
    with oc.scratch((2, 3), "f4", tmp_path) as ours:
        ours.write(None, 3)
        array, sealed = ours.array, ours.seal()
    sealed_array = sealed.array
    for one in (sealed, sealed, ours):
        one.close()
        assert one.closed
        assert "closed" in repr(one)
        with pytest.raises(ValueError, match="closed"):
            _ = one.array
    assert (array == 3).all()
    assert (sealed_array == 3).all()
    for call in (ours.memory, ours.release, ours.flush, ours.seal, lambda: ours.write(0, 1)):
        with pytest.raises(ValueError, match="closed"):
            call()


@pytest.mark.parametrize("is_used_again", [False, True])
def test_a_writable_array_does_not_pickle_and_one_that_no_process_has_open_any_more_raises(tmp_path, is_used_again):
    ours = oc.scratch(3, "u1", tmp_path)
    with pytest.raises(TypeError, match="seal"):
        pickle.dumps(ours)
    with ours.seal() as sealed:
        handle, number = pickle.dumps(sealed), sealed.core.fileno()
    ours.close()
    with (tmp_path / "other").open("wb+") as other:
        os.truncate(other.fileno(), MIB)
        if is_used_again:  # the number of the descriptor, by another file
            os.dup2(other.fileno(), number)
        try:
            with pytest.raises(FileNotFoundError, match="has ended or has closed it"):
                pickle.loads(handle)
        finally:
            if is_used_again:
                os.close(number)


def test_release_and_prefetch_tell_what_they_did(tmp_path):
    with oc.scratch((16, MIB), "u1", tmp_path) as ours:
        ours.array[:] = 7
        if ours.memory().resident is None:
            pytest.skip("the kernel does not tell")
        assert ours.memory().resident >= 16 * MIB
        report = ours.release()
        assert (report.bytes, report.resident_before, report.resident_after) == (16 * MIB, 16 * MIB, 0)
        assert report.reason == "on the disk, and no longer in memory"
        assert ours.memory().resident == 0
        assert ours.prefetch(slice(4, 8)).bytes == 4 * MIB
        assert 4 * MIB <= ours.memory().resident < 16 * MIB
        assert ours.release((slice(0, 16), slice(0, 100))).bytes == 16 * mmap.PAGESIZE
        sealed = ours.seal()
        for _ in range(2):
            assert (sealed.array == 7).all()
            assert ours.release().resident_after == 0
        sealed.close()
        assert ours.release().resident_after == 0


def test_memory_reports_what_raw_writes_leave_over_the_cap(tmp_path):
    with oc.scratch((16, MIB), "u1", tmp_path, max_resident="4 MiB") as ours:
        if ours.memory().resident is None:
            pytest.skip("the kernel does not tell")
        assert (ours.memory().over, ours.memory().cap) == (0, 4 * MIB)
        ours.array[:] = 3
        assert ours.memory().over >= 12 * MIB
        assert "over" in str(ours.memory())
        for row in range(4):
            ours.write(row, 3)
        assert ours.memory().over == 0
        assert (ours.array == 3).all()


def test_places_are_chosen_and_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_SCRATCH", str(tmp_path))
    with oc.scratch(MIB, "u1") as ours:
        assert os.fstat(ours.seal().core.fileno()).st_blocks * 512 >= MIB  # reserved
        assert (ours.path, ours.reason) == (str(tmp_path), "the folder of $ONECOPY_SCRATCH")
    monkeypatch.setenv("ONECOPY_SCRATCH", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError) as told:
        oc.scratch(3, "u1")
    assert told.value.filename == str(tmp_path / "none")


def test_what_cannot_be_saved_in_place_is_copied_and_both_are_files_for_safetensors(tmp_path):
    values = np.arange(12).reshape(3, 4)
    with oc.scratch((3, 4), "i8", tmp_path) as ours:
        ours.write(None, values)
        ours.seal().close()  # it is sealed again if its bytes are needed
        saved = ours.save(tmp_path / "long", metadata={"story": "x" * 100_000})
        assert saved.copied
        assert "the header needs" in saved.reason
        if not ours.save(tmp_path / "short", checksum=False).copied:  # copied without unnamed files
            with pytest.raises(FileExistsError):
                ours.save(tmp_path / "again")
        with pytest.raises(IsADirectoryError):
            ours.save(tmp_path)
    for name in ("long", "short"):
        assert (load_file(tmp_path / name)["data"] == values).all()
    assert oc.open(tmp_path / "long", verify=True)["data"].tolist() == values.tolist()
    with pytest.raises(oc.errors.NoChecksum):
        oc.open(tmp_path / "short", verify=True)


def test_threads_write_to_different_places(tmp_path):
    with oc.scratch((64, MIB), "u1", tmp_path, max_resident="8 MiB") as ours:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda row: ours.write(row, row), range(64)))
        assert all((ours.array[row] == row).all() for row in range(64))


@pytest.mark.parametrize("heap", [True, False])
@given(
    offset=st.integers(0, 300_000), size=st.integers(0, 200_000), skip=st.integers(0, 9), kind=st.sampled_from(TYPES)
)
def test_what_is_written_directly_is_there_wherever_it_begins(heap, offset, size, skip, kind):
    count = 400_000 // np.dtype(kind).itemsize
    values = np.random.default_rng(size).integers(0, 2, (skip + size) // np.dtype(kind).itemsize + 1).astype(kind)
    values = values[skip // np.dtype(kind).itemsize :]
    with alloc(count, kind, heap_below="1 MiB" if heap else 0, max_resident=MIB) as ours:
        ours.array[:] = 1
        expected = ours.array.copy().view(np.uint8)
        at = min(offset, len(expected) - values.nbytes)
        ours.write_direct(at, values)
        expected[at : at + values.nbytes] = values.view(np.uint8)
        assert np.array_equal(ours.array.view(np.uint8), expected)
        ours.release()
        assert np.array_equal(ours.array.view(np.uint8), expected)


@pytest.mark.parametrize("heap", [True, False])
def test_writing_directly_outside_or_when_sealed_raises(heap):
    with alloc(10_000, "u2", heap_below="1 MiB" if heap else 0) as ours:
        ours.write_direct(19_996, np.ones((1, 2), "u2")[:, ::1])
        assert ours.array[-3:].tolist() == [0, 1, 1]
        with pytest.raises(OSError, match="4 bytes at offset 19997 are out of range: the array has 20000 bytes"):
            ours.write_direct(19_997, np.ones(2, "u2"))
        with pytest.raises(ValueError, match="offset"):
            ours.write_direct(-1, np.ones(2, "u2"))
        ours.seal()
        with pytest.raises(PermissionError):
            ours.write_direct(0, np.ones(2, "u2"))


def test_heap_and_scratch_arrays_have_the_same_methods(tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_SCRATCH", str(tmp_path))
    monkeypatch.setenv("ONECOPY_HEAP_BELOW", "1 KiB")
    small, large = alloc(1023, "u1"), alloc(1024, "u1")
    assert (type(small), type(large)) == (HeapArray, oc.arrays.Scratch)
    assert type(alloc(1, "u1", heap_below=0)) is oc.arrays.Scratch
    assert {name for name in dir(large) if not name.startswith("_")} <= set(dir(small))
    for number, ours in enumerate([small, large]):
        ours.write(slice(0, 2), [1, 2])
        for call in (lambda ours=ours: ours.release(slice(0, 2)), ours.prefetch, ours.flush):
            call()
        assert str(ours.memory())
        assert ours.reason
        sealed = pickle.loads(pickle.dumps(ours.seal()))
        assert sealed.array[:3].tolist() == [1, 2, 0]
        with pytest.raises(PermissionError):
            ours.write(0, 1)
        with pytest.raises(ValueError, match="read-only"):
            ours.array[0] = 1
        ours.save(tmp_path / str(number))
        assert oc.open(tmp_path / str(number), verify=True)["data"][:3].tolist() == [1, 2, 0]
    monkeypatch.setenv("ONECOPY_HEAP_BELOW", "much")
    with pytest.raises(ValueError, match="not a size"):
        alloc(3, "u1")
