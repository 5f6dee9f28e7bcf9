"""Saving arrays: read back by onecopy and by the safetensors package, both judged by numpy."""

import array
import ctypes
import mmap
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as npst
from tests.support.rows import same

import onecopy as oc

KINDS = ["?", "u1", "i1", "i2", "u2", "f2", "i4", "u4", "f4", "c8", "f8", "i8", "u8"]
MIB = 1 << 20


def little(value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value, value.dtype.newbyteorder("<")).reshape(value.shape)


def there_and_back(path: Path, value: object) -> np.ndarray:
    oc.save(path, {"x": value})
    again = oc.open(path)["x"]
    assert same(safetensors.numpy.load_file(path)["x"], again)
    return again


# --- any arrays, any names --------------------------------------------------------------------------------------------

LAYOUTS = [lambda a: a, lambda a: a.T, lambda a: a[::-1] if a.ndim else a, lambda a: a[..., ::2] if a.ndim else a]


@st.composite
def arrays(draw) -> np.ndarray:
    dtype = np.dtype(draw(st.sampled_from(KINDS))).newbyteorder(draw(st.sampled_from("<>")))
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    value = draw(npst.arrays(dtype, shape))
    return draw(st.sampled_from(LAYOUTS))(value)


texts = st.text(max_size=20).filter(
    lambda name: name != "__metadata__" and not name.startswith("#")
)  # the format's own
names = texts | st.sampled_from(["", "'", '"', "\\", "\\u0041", "\n\0\x7f", "é\U0001f600", "\u2028"])


@given(tensors=st.dictionaries(names, arrays(), max_size=5), align=st.sampled_from([None, 64, 128, 4096, 2 * MIB]))
def test_every_layout_comes_back_and_starts_on_the_boundary_and_fillers_are_hidden(path, tensors, align):
    oc.save(path, tensors, align=align)
    file, theirs = oc.open(path), safetensors.numpy.load_file(path)
    assert list(file) == list(tensors)
    assert all(entry.offset % (align or 1) == 0 for entry in file.entries)
    assert all(same(file[name], little(value)) for name, value in tensors.items())
    assert all(same(theirs[name], little(value)) for name, value in tensors.items())
    fillers = set(theirs) - set(tensors)
    assert all(name.startswith("#") and not theirs[name].any() and name not in file for name in fillers)


# --- what programs pass -----------------------------------------------------------------------------------------------


class Tensor:
    """A tensor of some framework: DLPack is all it has."""

    def __init__(self, value: np.ndarray) -> None:
        self._value = value

    def __dlpack__(self, **options: object) -> object:
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()


NUMBERS = np.arange(3_000_000, dtype=np.float64).reshape(1000, 3000)  # 24 MB: more than is copied at a time
LARGE = {
    "in C order": NUMBERS,
    "in Fortran order": np.asfortranarray(NUMBERS),
    "transposed": NUMBERS.T,
    "backwards": NUMBERS[::-1, ::-1],
    "every other column": np.repeat(NUMBERS, 2, axis=1)[:, ::2],
    "big-endian": NUMBERS.astype(">f8"),
    "one row": np.repeat(NUMBERS.reshape(1, -1), 2, axis=1)[:, ::2],
    "one element in a row, backwards": NUMBERS.reshape(-1, 1)[::-1],
    "transposed, by DLPack": Tensor(NUMBERS.T),
    "one number, spread out": np.broadcast_to(np.float32(7), (50, 100_000)),
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_arrays_of_any_layout_come_back(path, kind):
    oc.save(path, {"x": LARGE[kind]})
    value = np.from_dlpack(LARGE[kind]) if isinstance(LARGE[kind], Tensor) else LARGE[kind]
    again = oc.open(path)["x"]
    assert again.dtype == value.dtype.newbyteorder("<")
    assert np.array_equal(again, value)


@pytest.mark.parametrize(
    ("order", "dtype", "most"), [("C", "<f8", MIB), ("F", "<f8", 34 * MIB), ("C", ">f8", 34 * MIB)]
)
def test_an_array_that_must_be_rearranged_is_copied_in_pieces(path, order, dtype, most):
    array = np.zeros((1000, 5000), dtype, order)
    tracemalloc.start()
    oc.save(path, {"x": array})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most < array.nbytes


def test_buffers_come_back(path, tmp_path):
    (tmp_path / "bytes").write_bytes(b"mapped")
    with (tmp_path / "bytes").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    for value, expected in [
        (b"abc", np.frombuffer(b"abc", np.uint8)),
        (bytearray(b"abc"), np.frombuffer(b"abc", np.uint8)),
        (b"", np.zeros(0, np.uint8)),
        (memoryview(b"abcdef")[::2], np.frombuffer(b"ace", np.uint8)),
        (memoryview(bytes(24)).cast("i", (2, 3)), np.zeros((2, 3), np.int32)),
        (array.array("d", [1, 2]), np.array([1.0, 2.0])),
        (array.array("H", [1, 2]), np.array([1, 2], np.uint16)),
        ((ctypes.c_float * 2)(1, 2), np.array([1, 2], np.float32)),
        (mapped, np.frombuffer(b"mapped", np.uint8)),
        (oc.Mapping(tmp_path / "bytes").view(1, 3), np.frombuffer(b"app", np.uint8)),
    ]:
        assert same(there_and_back(path, value), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (6, 10)])
def test_tensors_that_only_speak_dlpack_come_back(path, kind, shape):
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    views = [value, value.T]
    if len(shape) == 2 and value.size:
        views += [value[1:5:2, ::3], np.broadcast_to(value[0], (3, 10)), value[::-1]]
    for view in views:
        assert same(there_and_back(path, Tensor(view)), np.array(view, order="C"))
    value.setflags(write=False)
    assert same(there_and_back(path, Tensor(value)), value)


def test_an_open_file_can_be_saved_elsewhere_and_over_itself(path, tmp_path):
    oc.save(path, {"a": NUMBERS[:5], "b": np.array(1.0)}, {"note": "first"})
    for target in (tmp_path / "other", path):
        with oc.open(path) as file:
            oc.save(target, file)
            assert np.array_equal(file["a"], NUMBERS[:5])  # the old file, as long as it is open
        again = oc.open(target)
        assert np.array_equal(again["a"], NUMBERS[:5])
        assert list(again) == ["a", "b"]


NOT_ARRAYS = {
    "a list": [1, 2],
    "a number": 3,
    "a text": "abc",
    "nothing": None,
    "a function": len,
    "objects": np.array([None]),
    "texts": np.array(["abc"]),
    "byte strings": np.array([b"abc"]),
    "extended floats": np.zeros(2, np.longdouble),
    "complex128": np.zeros(2, np.complex128),
    "dates": np.zeros(2, "M8[s]"),
    "records": np.zeros(2, "i4,f4"),
    "raw items": np.zeros(2, "V2"),
    "four bits": np.zeros(2, ml_dtypes.int4),
    "another float8": np.zeros(2, ml_dtypes.float8_e4m3),
    "complex128 in DLPack": Tensor(np.zeros(2, np.complex128)),
    "pointers": (ctypes.c_void_p * 2)(),
    "letters": (ctypes.c_wchar * 3)(*"abc"),  # array.array has "u" until 3.16, and "w" from 3.13
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the pointers
@pytest.mark.parametrize("kind", NOT_ARRAYS)
def test_what_the_format_does_not_have_is_a_type_error_that_names_the_array(path, kind):
    with pytest.raises(TypeError, match=r"'layer\.7'"):
        oc.save(path, {"good": np.zeros(3), "layer.7": NOT_ARRAYS[kind]})
    assert not any(path.parent.iterdir())


def test_progress_ends_at_the_whole_and_can_stop_the_work(tmp_path):
    path = tmp_path / "model.safetensors"
    arrays = {"a": np.arange(10_000_000, dtype=np.float32), "b": np.ones(3)[::2], "empty": np.zeros(0)}
    seen = []
    oc.save(path, arrays, progress=lambda done, total: seen.append((done, total)))
    assert [total for _, total in seen] == [40_000_016] * len(seen)
    steps = [done for done, _ in seen]
    assert steps == sorted(steps)
    assert steps[-1] == 40_000_016
    assert len(steps) == 4  # three pieces of 16 MiB at most, and the other array
    assert np.array_equal(oc.open(path, verify=True)["a"], arrays["a"])

    def stop(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        oc.save(path, {"a": np.zeros(3)}, progress=stop)
    assert len(oc.open(path)) == 3
    assert [one.name for one in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("name", "arrays", "error"),
    [
        *((name, {"x": np.ones(3)}, ValueError) for name in ("x.npy", "X.PT", "x.gguf")),
        *(("x.oc", arrays, TypeError) for arrays in (np.ones(3), [np.ones(3)], None)),
    ],
)
def test_a_name_of_another_format_and_what_is_no_dict_of_arrays_are_refused(tmp_path, name, arrays, error):
    with pytest.raises(error, match=r"wrong suffix|a dict from names to arrays"):
        oc.save(tmp_path / name, arrays)
    assert list(tmp_path.iterdir()) == []
