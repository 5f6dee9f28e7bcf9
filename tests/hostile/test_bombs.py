"""Small records files that say they hold more than any memory: every way to read them ends soon, and costs little."""

import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.support.record_files import file_of_rows, node, numbers
from tests.support.rounds import rounds

import onecopy as oc
import onecopy.records
from onecopy.cli import command_line
from onecopy_records import types

MIB = 1 << 20
MANY = 1 << 40
MOST_MEMORY = 64 * MIB
SECONDS = 30
"""CPU time after which an operation hangs."""
HARMLESS = {"ok", "FormatError", "ValueError", "NotShareable"}

RANGE_STORAGE = node(
    "fixed", 1, node("integer", 1), node("integer", 1), node("integer", 1)
)  # of a range: start, stop, step


def of_range(name: str) -> bytes:
    schema = node("extension", 1, node("extension", 1, RANGE_STORAGE, name="range"), name=name)
    storage = {"0": [0], "1": [MANY], "2": [1]}
    return file_of_rows(schema, {f"storage.storage.{i}.data": numbers("q", one) for i, one in storage.items()})


def of_fraction(nbytes: int) -> bytes:
    half = nbytes // 2
    pair = node("fixed", 1, node("bigint", 1), node("bigint", 1))
    data = b"\xf1" * (half - 1) + b"\x01"
    buffers = {}
    for i in ("0", "1"):
        buffers[f"storage.{i}.offsets"] = numbers("i", [0, half])
        buffers[f"storage.{i}.data"] = ("U8", [half], data)
    return file_of_rows(node("extension", 1, pair, name="Fraction"), buffers)


def overlapping(container: str, depth: int, width: int, **leaf: object) -> bytes:
    """Return lists whose items are all the same ones: each second list has all of the level below, the others are None.

    At the bottom are values of 10,000 bytes: text, unless `leaf` has another kind.
    """
    schema: list[Any] = [{"kind": "text", "length": width, "nullable": 1} | leaf]
    buffers: dict[str, Any] = {"item." * depth + "data": ("U8", [10_000], b"x" * 10_000)}
    for level in reversed(range(depth + 1)):
        if level < depth:
            schema = node(container, width, schema, nullable=1)
        path, size = "item." * level, width if level < depth else 10_000
        buffers[f"{path}offsets"] = numbers("i", [0, size] * (width // 2) + [0] * (1 + width % 2))
        buffers[f"{path}validity"] = numbers("B", [0x55] * -(-width // 8))
    return file_of_rows(schema, buffers)


BOMBS = {
    "a map of 2^40 null pairs": lambda: file_of_rows(
        node("map", 1, node("null", MANY), node("null", MANY)), {"offsets": numbers("q", [0, MANY])}
    ),
    "a list of 2^28 nulls": lambda: file_of_rows(
        node("list", 1, node("null", 1 << 28)), {"offsets": numbers("q", [0, 1 << 28])}
    ),
    "a tuple of 2^40 empty dicts": lambda: file_of_rows(
        node("tuple", 1, node("record", MANY, fields=[])), {"offsets": numbers("q", [0, MANY])}
    ),
    "2^40 rows of None": lambda: file_of_rows(node("null", MANY), {}),
    "2^40 rows without bytes": lambda: file_of_rows(node("record", MANY, node("null", MANY), fields=["a"]), {}),
    "a dict of 2^40 pairs": lambda: file_of_rows(
        node("fixed", MANY, node("null", MANY), node("null", MANY)), {"index.slots": numbers("Q", [0] * 8)}, "dict"
    ),
    "a bytearray of a number": lambda: file_of_rows(
        node("extension", 1, node("integer", 1), name="bytearray"), {"storage.data": numbers("q", [3_100_000_000])}
    ),
    **{f"a {name} of a range": lambda name=name: of_range(name) for name in ("set", "frozenset", "Counter", "deque")},
    "a Fraction of 964 kB": lambda: of_fraction(964_000),
    "lists that overlap": lambda: overlapping("list", 1, 60_000),
    "arrays that overlap": lambda: overlapping("list", 1, 60_000, kind="array", name="|u1", ndim=1, item_size=1),
    "rows whose lists overlap": lambda: file_of_rows(
        node("record", 60_000, node("list", 60_000, node("integer", 10_000), nullable=1), fields=["a"]),
        {
            "a.offsets": numbers("i", [0, 10_000] * 30_000 + [0]),
            "a.validity": numbers("B", [0x55] * 7_500),
            "a.item.data": numbers("b", [1] * 10_000),
        },
    ),
    "lists that overlap in lists that overlap": lambda: overlapping("list", 4, 1000),
    "a field of 1 MiB above 99,990 others": lambda: file_of_rows(
        node(
            "record",
            1,
            node("record", 1, *(node("null", 1) for _ in range(99_990)), fields=[f"{i}" for i in range(99_990)]),
            fields=["x" * MIB],
        ),
        {},
    ),
}

NAMES = sorted({*types._FROM_PLAIN, "enum:re:RegexFlag", "namedtuple:os:stat_result", "dataclass:no:Where"})
LENGTHS = st.sampled_from([0, 1, 2, 3, 1000, 1 << 16, 1 << 28, 1 << 40, (1 << 62) - 1])
EDGES = st.sampled_from([0, 1, -1, 7, 1 << 20, 3_100_000_000, 1 << 40, (1 << 63) - 1, -(1 << 63)])

Grown = tuple[list[dict[str, Any]], dict[str, Any]]


Draw = Callable[[st.SearchStrategy[Any]], Any]


def leaf(draw: Draw, kind: str, path: str, length: int) -> dict[str, Any]:
    """Return the buffers of a type that has no other below it."""
    if kind == "null":
        return {}
    if kind in ("integer", "real"):
        dtype, shape, content = numbers("q", [draw(EDGES) for _ in range(length)])
        return {f"{path}data": ("F64" if kind == "real" else dtype, shape, content)}
    if kind == "boolean":
        return {f"{path}data": numbers("B", [255] * ((length + 7) // 8))}
    content = draw(st.binary(max_size=50)) if kind != "text" else b"text"
    ends = numbers("i", [0, *[len(content)] * length])
    return {f"{path}offsets": ends, f"{path}data": ("U8", [len(content)], content)}


def grown(draw: Draw, path: str, length: int, depth: int) -> Grown:
    """Draw a type of so many values with what is below it; return its schema and its buffers.

    What has buffers has a few values; what has none has as many as it likes.
    """
    kinds = ["null", *(["record", "fixed"] if depth else [])]
    if length <= 3:
        kinds += ["integer", "real", "boolean", "text", "bytes", "bigint"]
        kinds += ["list", "tuple", "map", "extension", "array"] if depth else []
    kind = draw(st.sampled_from(kinds))
    below, own, more = dict[str, int](), dict[str, Any](), dict[str, Any]()
    if kind in ("record", "fixed"):
        names = [f"f{i}" if kind == "record" else str(i) for i in range(draw(st.integers(0, 3)))]
        below, more = dict.fromkeys(names, length), {"fields": names} if kind == "record" else {}
    elif kind == "extension":
        below, more = {"storage": length}, {"name": draw(st.sampled_from(NAMES))}
    elif kind in ("list", "tuple", "map"):
        items = draw(LENGTHS)
        own = {f"{path}offsets": numbers("q", [0, *[items] * length])}
        below = dict.fromkeys(["key", "value"] if kind == "map" else ["item"], items)
    elif kind == "array":
        items, ndim = draw(st.sampled_from([0, 1, 8])), draw(st.integers(0, 3))
        more = {"name": "<f8", "ndim": ndim, "item_size": 8, "scalar": draw(st.booleans()), "items": items}
        own = {
            f"{path}offsets": numbers("q", [0, *[items] * length]),
            f"{path}data": ("U8", [items * 8], bytes(items * 8)),
        }
        if ndim != 1:
            own[f"{path}shape"] = numbers("Q", [draw(EDGES) % 2**64 for _ in range(length * ndim)])
    else:
        own = leaf(draw, kind, path, length)
    parts = [grown(draw, f"{path}{name}.", count, depth - 1) for name, count in below.items()]
    schema = node(kind, length, *(types for types, _ in parts), **more)
    return schema, {name: one for _, found in parts for name, one in found.items()} | own


@st.composite
def bombs(draw: Any) -> bytes:
    return file_of_rows(*grown(draw, "", draw(st.sampled_from([1, 1, 2, 1 << 40])), 4))


def ways_of(path: Path) -> dict[str, Callable[[], object]]:
    opened = oc.open_records(path)
    rows: Any = opened.values() if isinstance(opened, onecopy.records.Dict) else opened

    def first_lazy() -> object:
        found = rows.lazy[0]
        return [len(found), list(found)] if hasattr(found, "__len__") else found

    return {
        "[0]": lambda: rows[0],
        "[-1]": lambda: rows[-1],
        "repr": lambda: repr(opened),
        "repr [0]": lambda: repr(rows[0]),
        "iter": lambda: sum(1 for _ in rows),
        "reversed": lambda: sum(1 for _ in reversed(rows)),
        "in": lambda: "nothing" in rows,
        "index": lambda: rows.index("nothing"),
        "count": lambda: rows.count("nothing"),
        "==": lambda: rows == oc.open_records(path),
        "lazy": first_lazy,
        "lazy repr": lambda: repr(rows.lazy[0]),
        "batch": lambda: rows.__getitems__([0, 0]),
        "take": lambda: rows.take(range(min(len(rows), 60_000))) if isinstance(rows, onecopy.records.Table) else None,
        "step": lambda: repr(rows[::2].__arrow_c_array__()),
        "share": lambda: oc.share(rows),
        "save": lambda: onecopy.records.save(path.with_suffix(".copy"), rows),
        "asarray": lambda: np.asarray(rows),
        "arrow": rows.__arrow_c_array__,
        "ls": lambda: command_line.run(["ls", str(path)]),
    }


def read_all_ways(path: Path) -> dict[str, str]:
    """Return how each way to read a file ended; of a way that takes too much CPU time, the signal ends the process."""
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))  # instead of the machine's end
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    ended = {}
    try:
        ways = ways_of(path)
    except oc.FormatError:
        return {"open": "FormatError"}
    for name, way in ways.items():
        low = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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
    return ended


@pytest.mark.unsanitized  # AddressSanitizer needs more addresses than the limit leaves
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_little_however_it_is_read(name: str, tmp_path: Path, in_child) -> None:
    path = tmp_path / "bomb.oc"
    path.write_bytes(BOMBS[name]())
    assert {way: how for way, how in in_child(read_all_ways, path).items() if how not in HARMLESS} == {}


@pytest.mark.unsanitized  # AddressSanitizer's memory is counted too
@pytest.mark.timeout(3600)
@given(bombs())
@settings(max_examples=rounds(60, 3000), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_grown_bomb_costs_little(tmp_path_factory, in_child, content):
    path = tmp_path_factory.mktemp("bombs") / "bomb.oc"
    path.write_bytes(content)
    ended = in_child(read_all_ways, path)
    assert {way: how for way, how in ended.items() if how not in {*HARMLESS, "IndexError"}} == {}


def test_what_is_not_in_the_file_is_found_to_be_equal_without_a_look_at_each_row(tmp_path: Path) -> None:
    path = tmp_path / "bomb.oc"
    path.write_bytes(BOMBS["2^40 rows of None"]())
    rows = oc.open_records(path)
    assert len(rows) == MANY
    assert None in rows
    assert rows.index(None, 7) == 7
    assert rows.count(None) == MANY
    assert rows[5:9] == [None] * 4
    with pytest.raises(oc.FormatError, match="there are more values than a file of"):
        list(iter(rows))


def test_as_many_values_without_bytes_as_a_program_has_are_read() -> None:
    """What the limits are far above: an honest file is none of them."""
    nothing = oc.share([None] * 1_000_000)
    assert sum(1 for _ in nothing) == 1_000_000
    rows = oc.share([{"a": [None] * 100_000, "b": [{}] * 10_000, "c": [True] * 500_000}])
    assert rows[0] == {"a": [None] * 100_000, "b": [{}] * 10_000, "c": [True] * 500_000}
    assert [len(row["c"]) for row in rows.select([0] * 50)] == [500_000] * 50
    repeated = rows.take([0] * 50)["c"]
    assert len(repeated.values) == 50 * 500_000
