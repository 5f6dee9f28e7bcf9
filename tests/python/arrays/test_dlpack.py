"""Saving tensors that numpy cannot hold: DLPack structs made by hand, as its header file lays them out."""

import ctypes
import gc

import ml_dtypes
import numpy as np
import pytest

import onecopy as oc

CPU, GPU = 1, 2
CODES = {
    "bfloat16": (4, 16),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(DLManagedTensor))


class Tensor:
    """A tensor over the bytes of an array; counts how often its memory was lent and given back."""

    def __init__(self, values: np.ndarray, code: int, bits: int, *, device: int = CPU, lanes: int = 1, skip: int = 0):
        self.device = device
        self.lent = self.given_back = 0
        self._memory = values
        self._deleter = DELETER(self._delete)
        shape = (ctypes.c_int64 * values.ndim)(*values.shape)
        steps = (step // values.itemsize for step in values.strides)
        strides = None if values.flags.c_contiguous else (ctypes.c_int64 * values.ndim)(*steps)
        self._parts = (shape, strides)
        tensor = DLTensor(values.ctypes.data - skip, device, 0, values.ndim, code, bits, lanes, shape, strides, skip)
        self._managed = DLManagedTensor(tensor, None, ctypes.cast(self._deleter, ctypes.c_void_p))

    def _delete(self, _: object) -> None:
        self.given_back += 1

    def __dlpack__(self, **_: object) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.lent += 1
        return new(ctypes.addressof(self._managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("layout", [lambda a: a, lambda a: a.T, lambda a: a[1::2, :3], lambda a: a[:0], lambda a: a[0]])
def test_tensors_of_small_floats_come_back_and_their_memory_is_given_back(path, kind, layout):
    values = layout(np.arange(40).reshape(5, 8).astype(getattr(ml_dtypes, kind)))
    tensor = Tensor(values, *CODES[kind])
    oc.save(path, {"x": tensor})
    again = oc.open(path)["x"]
    assert (again.dtype, again.shape) == (values.dtype, values.shape)
    assert again.tobytes() == values.tobytes()
    assert tensor.lent == tensor.given_back > 0


def test_an_offset_into_the_memory_is_minded(path):
    oc.save(path, {"x": Tensor(np.arange(10, dtype=np.int16)[4:], 0, 16, skip=8)})
    assert oc.open(path)["x"].tolist() == [4, 5, 6, 7, 8, 9]


REFUSED = {
    "only CPU tensors": {"device": GPU},
    "vector elements": {"lanes": 2},
    "type code 4 with 32 bits": {"code": 4},
    "type code 17 with 4 bits": {"code": 17, "bits": 4},
    "128 bits": {"code": 2, "bits": 128},
    "type code 3": {"code": 3, "bits": 64},
}


@pytest.mark.parametrize("word", REFUSED)
def test_tensors_that_cannot_be_saved_are_type_errors_that_say_why(path, word):
    tensor = Tensor(np.zeros(4, np.int32), **({"code": 0, "bits": 32} | REFUSED[word]))
    with pytest.raises(TypeError, match=rf"'layer\.7'.*{word}"):
        oc.save(path, {"layer.7": tensor})
    assert not path.exists()
    gc.collect()  # frames of the error hold the memory
    assert tensor.device == GPU or tensor.lent == tensor.given_back > 0
