"""Records files that hypothesis makes to claim much and have little, of every type that rows may have."""

import json
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.support.record_files import file_of_rows, node, numbers

import onecopy as oc
import onecopy.records
from onecopy.data import types

pytestmark = pytest.mark.unsanitized  # AddressSanitizer's memory is counted too

MIB = 1 << 20
MOST_MEMORY = 64 * MIB
SECONDS = 10
NAMES = sorted({*types._FROM_PLAIN, "enum:re:RegexFlag", "namedtuple:os:stat_result", "dataclass:no:Where"})
LENGTHS = st.sampled_from([0, 1, 2, 3, 1000, 1 << 16, 1 << 28, 1 << 40, (1 << 62) - 1])
EDGES = st.sampled_from([0, 1, -1, 7, 1 << 20, 3_100_000_000, 1 << 40, (1 << 63) - 1, -(1 << 63)])

Grown = tuple[list[dict[str, Any]], dict[str, Any]]


class Grower:
    """Draws a type with what is below it. What has buffers has a few values; what has none has as many as it likes."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw

    def grow(self, path: str, length: int, depth: int) -> Grown:
        """Return a schema of so many values, and its buffers."""
        few = length <= 3
        kinds = ["null"]
        if depth:
            kinds += ["record", "fixed"]
        if few:
            kinds += ["integer", "real", "boolean", "text", "bytes", "bigint"]
            kinds += ["list", "tuple", "map", "extension", "array"] if depth else []
        kind = self.draw(st.sampled_from(kinds))
        return getattr(self, f"grow_{kind}", self.grow_leaf)(kind, path, length, depth)

    def grow_leaf(self, kind: str, path: str, length: int, depth: int) -> Grown:  # noqa: ARG002 - all have it
        if kind == "null":
            return node("null", length), {}
        if kind in ("integer", "real"):
            values = [self.draw(EDGES) for _ in range(length)]
            dtype, shape, content = numbers("q", values)
            return node(kind, length), {f"{path}data": ("F64" if kind == "real" else dtype, shape, content)}
        if kind == "boolean":
            return node(kind, length), {f"{path}data": numbers("B", [255] * ((length + 7) // 8))}
        content = self.draw(st.binary(max_size=50)) if kind != "text" else b"text"
        return node(kind, length), {
            f"{path}offsets": numbers("i", [0, *[len(content)] * length]),
            f"{path}data": ("U8", [len(content)], content),
        }

    def grow_record(self, kind: str, path: str, length: int, depth: int) -> Grown:
        fields = [f"f{i}" for i in range(self.draw(st.integers(0, 3)))]
        return self.above(node, kind, length, [(f"{path}{name}.", length) for name in fields], depth, fields=fields)

    def grow_fixed(self, kind: str, path: str, length: int, depth: int) -> Grown:
        count = self.draw(st.integers(0, 3))
        return self.above(node, kind, length, [(f"{path}{i}.", length) for i in range(count)], depth)

    def grow_list(self, kind: str, path: str, length: int, depth: int) -> Grown:
        items = self.draw(LENGTHS)
        names = ("key", "value") if kind == "map" else ("item",)
        grown, buffers = self.above(node, kind, length, [(f"{path}{name}.", items) for name in names], depth)
        return grown, buffers | {f"{path}offsets": numbers("q", [0, *[items] * length])}

    grow_tuple = grow_map = grow_list

    def grow_extension(self, kind: str, path: str, length: int, depth: int) -> Grown:
        name = self.draw(st.sampled_from(NAMES))
        return self.above(node, kind, length, [(f"{path}storage.", length)], depth, name=name)

    def grow_array(self, kind: str, path: str, length: int, depth: int) -> Grown:  # noqa: ARG002
        items = self.draw(st.sampled_from([0, 1, 8]))
        ndim = self.draw(st.integers(0, 3))
        more = {"name": "<f8", "ndim": ndim, "item_size": 8, "scalar": self.draw(st.booleans()), "items": items}
        shape = [self.draw(EDGES) % 2**64 for _ in range(length * ndim)]
        buffers = {
            f"{path}offsets": numbers("q", [0, *[items] * length]),
            f"{path}data": ("U8", [items * 8], bytes(items * 8)),
        }
        return node(kind, length, **more), buffers | ({f"{path}shape": numbers("Q", shape)} if ndim != 1 else {})

    def above(self, make: Any, kind: str, length: int, below: list[tuple[str, int]], depth: int, **more: Any) -> Grown:
        grown = [self.grow(path, count, depth - 1) for path, count in below]
        buffers = {name: one for _, found in grown for name, one in found.items()}
        return make(kind, length, *(types for types, _ in grown), **more), buffers


@st.composite
def bombs(draw: Any) -> bytes:
    schema, buffers = Grower(draw).grow("", draw(st.sampled_from([1, 1, 2, 1 << 40])), 4)
    return file_of_rows(schema, buffers)


def read_all_ways(path: Path) -> str:
    """Return how each way to read a file ended; of a way that takes too much CPU time, the signal ends the process."""
    ended = {}
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    try:
        opened = oc.open_records(path)
    except oc.FormatError:
        return json.dumps({"open": "FormatError"})
    low = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, way in {
        "[0]": lambda: opened[0],
        "repr": lambda: repr(opened),
        "repr [0]": lambda: repr(opened[0]),
        "iter": lambda: sum(1 for _ in opened),
        "in": lambda: "nothing" in opened,
        "count": lambda: opened.count("nothing"),
        "lazy": lambda: repr(opened.lazy[0]),
        "batch": lambda: opened.__getitems__([0, 0]),
        "take": lambda: opened.take([0]) if isinstance(opened, onecopy.records.Table) else None,
        "share": lambda: oc.share(opened),
        "arrow": opened.__arrow_c_array__,
    }.items():
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            way()
            ended[name] = "ok"
        except Exception as error:
            ended[name] = type(error).__name__
        signal.setitimer(signal.ITIMER_PROF, 0)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - low) << 10
        if grown > MOST_MEMORY + 64 * path.stat().st_size:
            ended[name] = f"took {grown >> 20} MiB"
    return json.dumps(ended)


def check(content: bytes, path: Path, in_child: Callable[..., Any]) -> None:
    path.write_bytes(content)
    ended = json.loads(in_child(read_all_ways, path))
    expected = {"ok", "FormatError", "ValueError", "NotShareable", "IndexError"}
    assert {way: how for way, how in ended.items() if how not in expected} == {}


@given(bombs())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_grown_bomb_costs_little(tmp_path_factory, in_child, content):
    check(content, tmp_path_factory.mktemp("bombs") / "bomb.oc", in_child)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@given(bombs())
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_grown_bombs_cost_little(tmp_path_factory, in_child, content):
    check(content, tmp_path_factory.mktemp("bombs") / "bomb.oc", in_child)
