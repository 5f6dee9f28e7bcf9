"""Attributes of lazy rows: fields of the data, and never a name that Python or a library gives a meaning of its own."""

import copy
import ctypes
import dataclasses
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import onecopy as oc

SECRET = ctypes.create_string_buffer(b"in this process")
INTERFACE = OrderedDict(
    shape=(len(SECRET),), typestr="|u1", data=(ctypes.addressof(SECRET), False), strides=None, version=3
)
RESERVED = [
    "__array__",
    "__array_interface__",
    "__array_struct__",
    "__array_ufunc__",
    "__arrow_c_array__",
    "__buffer__",
    "__class__",
    "__cuda_array_interface__",
    "__dataclass_fields__",
    "__dict__",
    "__dlpack__",
    "__getstate__",
    "__index__",
    "__reduce_ex__",
    "__torch_function__",
    "_as_parameter_",
    "_repr_html_",
    "__",
    "_",
]


def lazy_rows(name: str) -> list[Any]:
    """Return lazy dicts, at the top and nested in each kind of container, with a field that holds an address."""
    row = {name: INTERFACE, "x": 1}
    shared = oc.share([row, {"inner": row}, {"list": [row]}, {"tuple": (row, 1)}, {"either": row}, {"either": 2}])
    by_key = oc.share({"a": row, "b": row})
    lazy = shared.lazy
    return [lazy[0], lazy[1].inner, lazy[2].list[0], lazy[3].tuple[0], lazy[4].either, by_key.lazy["a"]]


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_name_is_read_by_item_and_never_as_an_attribute(name):
    for row in lazy_rows(name):
        assert row[name].copy() == INTERFACE
        assert type(getattr(row, name, None)) is type(getattr(object(), name, None))
        assert row.__class__ is type(row)


@pytest.mark.parametrize("name", RESERVED)
def test_no_library_reads_memory_at_an_address_that_a_row_has(name):
    for row in lazy_rows(name):
        assert np.asarray(row).dtype == object
        assert np.asarray([row]).dtype == object
        assert np.int64(1) != row
        with pytest.raises(TypeError):
            np.frombuffer(row, np.uint8)
        with pytest.raises(TypeError):
            memoryview(row)
        with pytest.raises((TypeError, pickle.PicklingError)):
            pickle.dumps(row)
        with pytest.raises(TypeError):
            copy.deepcopy(row)
        with pytest.raises((TypeError, ctypes.ArgumentError)):
            ctypes.pythonapi.PyLong_FromVoidPtr(row)
        assert not dataclasses.is_dataclass(row)
    assert SECRET.value == b"in this process"


@pytest.mark.parametrize("name", RESERVED)
def test_pandas_and_torch_read_no_memory_either(name):
    pandas = pytest.importorskip("pandas")
    torch = pytest.importorskip("torch")
    for row in lazy_rows(name):
        assert pandas.Series([row]).dtype == object
        for make in (torch.as_tensor, torch.tensor, torch.from_numpy, torch.from_dlpack):
            with pytest.raises((TypeError, ValueError, RuntimeError, AttributeError)):
                make(row)


def test_methods_come_before_fields_of_the_same_name():
    row = oc.share([{"copy": 1, "keys": 2, "x": 3}]).lazy[0]
    assert row.copy() == {"copy": 1, "keys": 2, "x": 3}
    assert row.keys() == ["copy", "keys", "x"]
    assert (row["copy"], row["keys"], row.x) == (1, 2, 3)


def test_a_lazy_list_of_dicts_is_a_sequence_and_a_lazy_dict_is_none():
    torch = pytest.importorskip("torch")
    rows = oc.share([{"points": [{"x": 1}, {"x": 2}], "either": (1, "a")}])
    points, either = rows.lazy[0].points, rows.lazy[0].either
    assert [point.x for point in np.asarray(points)] == [1, 2]
    assert np.asarray(either).tolist() == ["1", "a"]
    for value in (points, points[0], either):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            torch.as_tensor(value)
    with pytest.raises(KeyError):
        points[0][0]
