"""The structs of Arrow's C data interface, walked by hand: what they promise is there."""

import ctypes
import gc

import numpy as np
import pytest

import onecopy as oc
import onecopy.records


class Schema(ctypes.Structure):
    pass


class Array(ctypes.Structure):
    pass


class Stream(ctypes.Structure):
    pass


RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
Stream._fields_ = [
    ("get_schema", ctypes.c_void_p),
    ("get_next", ctypes.c_void_p),
    ("get_last_error", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype = ctypes.c_void_p
pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def inside(capsule, name, kind):
    return ctypes.cast(pointer_of(capsule, name), ctypes.POINTER(kind)).contents


def release(struct):
    RELEASE(struct.release)(ctypes.addressof(struct))
    assert struct.release is None


def numbers(array, buffer, dtype, count):
    """Look at a buffer of numbers, from the array's offset."""
    width = np.dtype(dtype).itemsize
    memory = (ctypes.c_char * (count * width)).from_address(array.buffers[buffer] + array.offset * width)
    return np.frombuffer(memory, dtype, count)


@pytest.fixture
def table():
    rows = [{"n": i * 100, "t": "é" * i, "b": [i / 2] * i, "m": None if i == 2 else i} for i in range(5)]
    return oc.share(rows)


def test_the_schema_names_every_column_and_its_format(table):
    capsule = table.__arrow_c_schema__()
    schema = inside(capsule, b"arrow_schema", Schema)
    columns = [schema.children[i].contents for i in range(schema.n_children)]
    assert schema.format == b"+s"
    assert [(one.name, one.format, one.flags) for one in columns] == [
        (b"n", b"s", 0),
        (b"t", b"u", 0),
        (b"b", b"+l", 0),
        (b"m", b"c", 2),
    ]
    assert columns[2].children[0].contents.format == b"g"


def test_buffers_are_those_of_the_file(table):
    _, capsule = table[1:4].__arrow_c_array__()
    array = inside(capsule, b"arrow_array", Array)
    assert (array.length, array.offset, array.null_count, array.n_buffers, array.n_children) == (3, 0, 0, 1, 4)
    n, text, lists, maybe = (array.children[i].contents for i in range(4))
    assert numbers(n, 1, "i2", 3).tolist() == [100, 200, 300]
    assert n.buffers[1] == table.column("n").numpy().ctypes.data
    begin, *_, end = numbers(text, 1, "i4", 4).tolist()
    assert ctypes.string_at(text.buffers[2] + begin, end - begin).decode() == "é" * 6
    assert numbers(lists, 1, "i4", 4).tolist() == [0, 1, 3, 6]
    assert numbers(lists.children[0].contents, 1, "f8", 6).tolist() == [0.5, 1, 1, 1.5, 1.5, 1.5]
    assert maybe.null_count in (1, -1)
    assert ctypes.string_at(maybe.buffers[0], 1)[0] & 0b11111 == 0b11011


def test_a_child_lives_after_its_parent(table):
    _, capsule = table.__arrow_c_array__()
    array = inside(capsule, b"arrow_array", Array)
    taken = Array()
    child = array.children[0].contents
    ctypes.memmove(ctypes.addressof(taken), ctypes.addressof(child), ctypes.sizeof(Array))
    child.release = None  # moved: as the specification has it
    table.close()
    del capsule, array, table
    gc.collect()
    assert numbers(taken, 1, "i2", 5).tolist() == [0, 100, 200, 300, 400]
    release(taken)


def test_a_stream_is_one_batch_and_an_end(table):
    capsule = table.__arrow_c_stream__()
    stream = inside(capsule, b"arrow_array_stream", Stream)
    schema, array = Schema(), Array()
    assert NEXT(stream.get_schema)(ctypes.addressof(stream), ctypes.addressof(schema)) == 0
    assert NEXT(stream.get_next)(ctypes.addressof(stream), ctypes.addressof(array)) == 0
    assert (schema.n_children, array.n_children, array.length) == (4, 4, 5)
    end = Array(release=1)
    assert NEXT(stream.get_next)(ctypes.addressof(stream), ctypes.addressof(end)) == 0
    assert end.release is None
    release(stream)
    assert numbers(array.children[0].contents, 1, "i2", 5).tolist() == [0, 100, 200, 300, 400]
    release(array)
    release(schema)


def test_a_damaged_file_is_not_handed_over(tmp_path):
    path = tmp_path / "rows.oc"
    onecopy.records.save(path, [{"t": "abc"}, {"t": "de"}])
    entry = oc.open_records(path).file.entry("records.0.t.offsets")
    with path.open("r+b") as file:
        file.seek(entry.offset + 4)
        file.write((99).to_bytes(4, "little"))
    damaged = oc.open_records(path)
    for export in (damaged.__arrow_c_array__, damaged.__arrow_c_stream__, damaged[::-1].__arrow_c_stream__):
        with pytest.raises(oc.FormatError, match=r"records\.0\.t"):
            export()
    assert damaged.__arrow_c_schema__()
