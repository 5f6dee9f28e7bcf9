"""What a RecordBuilder is given is what its file holds, types and order too; what it refuses leaves nothing behind."""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.support.record_files import file_of_builder
from tests.support.rows import INTEGERS, same

from onecopy import _core, records
from onecopy.errors import NotShareable


def registry(value: Any) -> tuple[str, Any] | None:
    """Sets and complex numbers only."""
    if type(value) is set:
        return "set", sorted(value, key=repr)
    return ("complex", (value.real, value.imag)) if type(value) is complex else None


MAKE = {
    "set": set,
    "complex": lambda plain: complex(*plain),
    "str": lambda utf8: utf8.decode("utf-8", "surrogatepass"),
    "list of": list,
}


def opened(builder: _core.RecordBuilder) -> _core.Rows:
    file = file_of_builder(builder)
    return _core.Rows(_core.open_records(file.compiled, lambda name, _: MAKE[name]))


def new() -> _core.RecordBuilder:
    return _core.RecordBuilder("/nowhere", "list", {})  # few rows need no folder


def kept(rows: Any, registry: Any = registry) -> list[Any]:
    builder = new()
    assert builder.extend(rows, registry) == builder.length
    back = opened(builder)
    return [back[i] for i in range(len(back))]


@given(
    st.lists(st.none() | st.sampled_from(INTEGERS) | st.sampled_from([0.0, -0.0, 0.5, 2.0**53, math.inf]), max_size=12)
)
def test_numbers_of_every_width_and_sort_in_any_order(rows):
    assert same(kept(rows), rows)
    assert same(kept([rows, rows[::-1]]), [rows, rows[::-1]])
    assert same(kept([{"x": x} for x in rows]), [{"x": x} for x in rows])


def test_many_rows_come_back_through_the_spool(tmp_path):
    rows = [
        {
            "id": (i % 97) << (i // 8192 * 8 % 56),
            "name": f"näme {i}" * (i % 5),
            "box": [i / 7] * (i % 4),
            "more": {"a": i} if i % 9 else None,
            **extra,
        }
        for i in range(60_000)
        for extra in ([{"rare": 2**40 + i}] if i % 1000 == 0 else [{}])
    ]
    builder = _core.RecordBuilder(str(tmp_path), "list", {})
    told: list[int] = []
    assert builder.extend(iter(rows), registry, progress=told.append) == len(rows)
    assert told == list(range(1000, 60_001, 1000))
    assert builder.bytes > 2**20
    assert not list(tmp_path.iterdir())
    back = opened(builder)
    assert all(same(back[i], row) for i, row in enumerate(rows))


def test_a_text_does_not_keep_its_utf8():
    text = "é" * 1000
    before = sys.getsizeof(text)
    assert kept([text, [text], {"k": text}]) == [text, [text], {"k": text}]
    assert sys.getsizeof(text) == before


class Sub(dict[str, int]):
    pass


class Odd(np.ndarray):
    pass


REFUSED = [
    (object(), ": an object of type object cannot be shared"),
    ([1, [2, {3}, {open}]], "[1][2][0]: an object of type builtin_function_or_method cannot be shared"),
    (
        {"bbox": {"x y": [0, 1, 2, Sub()]}},
        '.bbox["x y"][3]: an object of type test_record_builder.Sub cannot be shared',
    ),
    ({'a"\\': object()}, r'["a\"\\"]: an object of type object cannot be shared'),
    ({"\udc80": object()}, r'["\udc80"]: an object of type object cannot be shared'),
    ({b"k": object()}, "[b'k']: an object of type object cannot be shared"),
    ({(1, 2): {None: object()}}, "[(1, 2)][None]: an object of type object cannot be shared"),
    ({1: 2, (3, frozenset()): 4}, ".keys()[1][1]: an object of type frozenset cannot be shared"),
    ([np.array([None])], "[0]: an array of dtype object cannot be shared"),
    (np.zeros(2, [("x", "i4")]), ": an array of dtype [('x', '<i4')] cannot be shared"),
    (np.zeros(2, ml_dtypes.bfloat16), ": an array of dtype bfloat16 cannot be shared"),
    (np.zeros(2, "V4"), ": an array of dtype |V4 cannot be shared"),
    (np.zeros(2).view(Odd), ": an object of type test_record_builder.Odd cannot be shared"),
    (np.str_("x"), ": an object of type numpy.str_ cannot be shared"),
    (np.longlong(1), ": an object of type numpy.longlong cannot be shared"),
    (bytearray(), ": an object of type bytearray cannot be shared"),
]


HINT = "; use share_object or cached(codec='object') for any object that can be pickled"


@pytest.mark.parametrize(("value", "what"), REFUSED)
def test_what_is_refused_is_named_by_its_path_and_leaves_nothing_behind(value, what):
    builder = new()
    builder.append({"a": 1}, registry)
    for _ in range(3):
        with pytest.raises(NotShareable) as raised:
            builder.append({"a": 2, "b": ["x", value], "c": value}, registry)
        assert str(raised.value) == f"[1].b[1]{what}{HINT}"
    with pytest.raises(NotShareable) as raised:
        builder.extend([{"a": 3}, {"a": 4}, value], registry)
    assert str(raised.value) == f"[3]{what}{HINT}"
    back = opened(builder)
    assert [back[i] for i in range(len(back))] == [{"a": 1}, {"a": 3}, {"a": 4}]
    assert "type" not in str(back._rows_fields)
    assert back._rows_fields == ["a"]


def nested(levels: int, container: Any, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = container(inner)
    return inner


@pytest.mark.parametrize(
    "container",
    [
        lambda inner: [inner, "a", 1],
        lambda inner: (inner,),
        lambda inner: ("a",) * 9 + (inner,),
        lambda inner: {"a": inner},
        lambda inner: {1: inner, "x": None},
    ],
)
def test_sixty_levels_are_kept_and_one_more_is_refused(container):
    assert same(kept([nested(60, container)]), [nested(60, container)])
    with pytest.raises(NotShareable, match="nested more than 60 levels deep"):
        kept([nested(61, container)])


def test_objects_in_objects_count_as_levels():
    class Wrapped:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

    def unwrap(value: Any) -> tuple[str, Any]:
        return "list of", [value.inner]

    assert kept([nested(30, Wrapped)], unwrap) == [nested(30, lambda inner: [inner])]
    with pytest.raises(NotShareable, match="nested more than 60 levels deep"):
        kept([nested(31, Wrapped)], unwrap)


@pytest.mark.parametrize("kind", [list, dict])
def test_what_contains_itself_is_refused(kind):
    value: Any = kind()
    outer = [1, {"k": value}]
    value.append(outer) if kind is list else value.update(z=outer)
    with pytest.raises(NotShareable, match=r"^\[0\].k(\[0\]|.z)\[1\].k.*: a value that contains itself$"):
        kept([value[0][1] if kind is list else value["z"][1]])


def test_what_the_registry_raises_comes_through_with_the_path():
    def fails(value: Any) -> None:
        raise LookupError("no such class")

    with pytest.raises(LookupError, match="no such class") as raised:
        kept([1, {"a": [0, {1}]}], fails)
    assert raised.value.__notes__ == ["in the value at [1].a[1]"]

    def refuses(value: Any) -> None:
        raise NotShareable("it has no name")

    with pytest.raises(NotShareable, match=r"^\[1\].a\[1\]: it has no name$"):
        kept([1, {"a": [0, {1}]}], refuses)


def test_what_is_refused_in_a_dict_is_named_by_its_key(tmp_path):
    for data, start in (
        ({"a": 1, "frame": print}, "['frame']: an object"),
        ({(1, "x"): {"y": [print]}}, "[(1, 'x')].y[0]: an object"),
        ({"a": 1, frozenset(): 2}, ".keys()[1]: a dict key must not be of type frozenset"),
    ):
        with pytest.raises(NotShareable) as raised:
            records.save(tmp_path / "data.oc", data)
        assert str(raised.value).startswith(start)


@pytest.mark.parametrize("answer", ["name", ("name",), ("a", 1, 2), (1, "a"), ["a", 1], 0])
def test_an_answer_of_the_registry_that_is_none_of_its_forms(answer):
    with pytest.raises(TypeError, match="must return"):
        kept([{1}], lambda _: answer)


def test_a_plain_value_that_is_none_either_is_refused():
    with pytest.raises(NotShareable, match=r"^\[0\]\[1\]: an object of type object cannot be shared"):
        kept([{1}], lambda value: ("set", [1, object()]) if type(value) is set else None)


def test_a_registry_that_changes_the_row_breaks_nothing():
    row: dict[str, Any] = {"list": [1, {2}, 3], "set": {1}, "tail": [0] * 10}

    def grows(value: set[int]) -> tuple[str, Any]:
        row[f"key {len(row)}"] = 1
        return "set", []

    builder = new()
    with pytest.raises(NotShareable, match="a dict that was changed while it was being read"):
        builder.append(row, grows)
    looped: list[Any] = [[], {1}]

    def loops(value: set[int]) -> tuple[str, Any]:
        looped[0].append(looped)
        return "set", []

    with pytest.raises(RuntimeError, match="a row was changed while it was being read"):
        builder.append(looped, loops)
    with pytest.raises(ValueError, match="create a new builder"):
        builder.append(1, registry)
    with pytest.raises(ValueError, match="create a new builder"):
        builder.save_to_memory("rows")
    shrinks = new()
    items: list[Any] = [[object() for _ in range(5)], {1}, 3, 4]
    shrinks.append(items, lambda _: (items.clear(), ("set", []))[1])
    assert len(opened(shrinks)[0]) == 0


def test_a_row_cannot_be_added_while_one_is_added():
    builder = new()

    def comes_back(value: Any) -> tuple[str, Any]:
        with pytest.raises(ValueError, match="another call is using the builder"):
            builder.append(1, registry)
        return "set", []

    builder.append({1}, comes_back)
    builder.append(None, registry)
    assert builder.length == 2


def test_nothing_is_added_after_saving_but_it_can_be_saved_again(tmp_path):
    builder = new()
    builder.append("x", registry)
    builder.save(tmp_path / "a")
    with pytest.raises(ValueError, match="the rows were saved"):
        builder.append("y", registry)
    builder.save(tmp_path / "b")
    descriptor = builder.save_nameless(str(tmp_path))
    with os.fdopen(descriptor, "rb") as nameless:
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == nameless.read()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_what_an_iterator_raises_comes_through_and_its_rows_are_there():
    def rows():
        yield from range(5)
        raise LookupError("the source broke")

    builder = new()
    with pytest.raises(LookupError, match="the source broke"):
        builder.extend(rows(), registry)
    builder.append(5, registry)
    back = opened(builder)
    assert [back[i] for i in range(len(back))] == list(range(6))


def test_what_is_no_iterable_is_a_type_error():
    with pytest.raises(TypeError, match="not iterable"):
        new().extend(5, registry)
    with pytest.raises(ValueError, match="must be 'list' or 'dict'"):
        _core.RecordBuilder("/tmp", "set", {})


def test_signals_and_progress_stop_an_endless_list(tmp_path):
    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    builder = _core.RecordBuilder(str(tmp_path), "list", {})
    with pytest.raises(Stopped):
        builder.extend(itertools.repeat(0), registry, progress=lambda done: stop() if done == 3000 else None)
    assert builder.length == 3000
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Stopped):
            builder.extend(itertools.repeat(0), registry)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert opened(builder)[builder.length - 1] == 0


def test_a_121st_type_is_an_error_that_names_the_column():
    builder = new()
    rows = [{"x": [np.zeros((1,) * axes, dtype) for dtype in ("i4", "f4", "i8", "f8") for axes in range(30)]}]
    assert same(kept(rows), rows)
    rows[0]["x"].append(1)
    with pytest.raises(ValueError, match=r"rows\.x\.item: the values have more than 120 types"):
        builder.extend(rows, registry)
    with pytest.raises(ValueError, match="create a new builder"):
        builder.append({}, registry)


def test_dicts_whose_keys_are_data_come_back():
    rows = [{f"key {i} {k}": k for k in range(100)} for i in range(200)]
    rows += [{f"{k:0{i}}": i for k in range(3)} for i in range(1, 80)]
    assert same(kept(rows), rows)
    wide = [{str(k): k for k in range(5000)}]
    assert same(kept(wide), wide)
