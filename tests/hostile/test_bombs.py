"""Small records files that say they hold more than any memory: every way to read them ends soon, and costs little."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.places import ROOT
from tests.support.record_files import file_of_rows, node, numbers

import onecopy as oc
import onecopy.records

MIB = 1 << 20
MANY = 1 << 40
MOST_MEMORY = 64 * MIB
LONG = 30
"""Seconds of CPU time after which an operation hangs."""

RANGE_STORAGE = node(
    "fixed", 1, node("integer", 1), node("integer", 1), node("integer", 1)
)  # of a range: start, stop, step


def of_range(name: str) -> bytes:
    """Return a value of a type that is made of a range of 2^40 numbers."""
    types = node("extension", 1, node("extension", 1, RANGE_STORAGE, name="range"), name=name)
    storage = {"0": [0], "1": [MANY], "2": [1]}
    return file_of_rows(types, {f"storage.storage.{i}.data": numbers("q", one) for i, one in storage.items()})


def of_fraction(nbytes: int) -> bytes:
    half = nbytes // 2
    pair = node("fixed", 1, node("bigint", 1), node("bigint", 1))
    data = b"\xf1" * (half - 1) + b"\x01"
    buffers = {}
    for i in ("0", "1"):
        buffers[f"storage.{i}.offsets"] = numbers("i", [0, half])
        buffers[f"storage.{i}.data"] = ("U8", [half], data)
    return file_of_rows(node("extension", 1, pair, name="Fraction"), buffers)


def overlapping(kind: str, depth: int, width: int) -> bytes:
    """Return lists whose items are all the same ones: each second list has all of the level below."""
    types = node("text", width)
    buffers = {
        "item." * depth + "offsets": numbers("i", [0, 1000] * (width // 2) + [0] * (1 + width % 2)),
        "item." * depth + "data": ("U8", [1000], b"x" * 1000),
    }
    for level in reversed(range(depth)):
        types = node(kind, width, types)
        buffers["item." * level + "offsets"] = numbers("i", [0, width] * (width // 2) + [0] * (1 + width % 2))
    return file_of_rows(types, buffers)


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

READ_ALL_WAYS = """
import json, os, resource, signal, sys, tempfile
import numpy, onecopy as oc
from onecopy.cli import command_line
import onecopy.data.types, onecopy.data.row_files, onecopy.cli.ls
class Hangs(BaseException): pass
def hangs(*_): raise Hangs
signal.signal(signal.SIGPROF, hangs)
path = sys.argv[1]
data = oc.open_records(path)
values = data.values() if hasattr(data, "values") and not isinstance(data, onecopy.records.List) else data
def first(lazy):
    found = lazy[0]
    return [len(found), list(found)] if hasattr(found, "__len__") else found
def some(iterable):
    for _ in iterable: pass
ways = {
    "open": lambda: oc.open_records(path),
    "[0]": lambda: values[0],
    "[-1]": lambda: values[-1],
    "repr": lambda: repr(data),
    "iter": lambda: some(values),
    "reversed": lambda: some(reversed(values)),
    "in": lambda: "nothing" in values,
    "index": lambda: values.index("nothing"),
    "count": lambda: values.count("nothing"),
    "==": lambda: values == oc.open_records(path),
    "lazy": lambda: first(values.lazy),
    "lazy repr": lambda: repr(values.lazy[0]),
    "batch": lambda: values.__getitems__([0, 0]),
    "take": lambda: values.take([0]) if isinstance(values, onecopy.records.Table) else None,
    "step": lambda: pyarrow_of(values[::2]),
    "share": lambda: oc.share(values),
    "save": lambda: onecopy.records.save(path + ".copy", values),
    "asarray": lambda: numpy.asarray(values),
    "arrow": lambda: values.__arrow_c_array__(),
    "ls": lambda: command_line.run(["ls", path]),
}
def pyarrow_of(rows): return rows.__arrow_c_array__()
low = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ended = {}
sys.stdout = open(os.devnull, "w")
for name, way in ways.items():
    signal.setitimer(signal.ITIMER_PROF, int(sys.argv[2]))
    try:
        way()
        ended[name] = "ok"
    except Hangs:
        ended[name] = "hangs"
    except Exception as error:
        ended[name] = type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended[name] += f" {(peak - low) >> 10}"
    low = max(low, peak)
print(json.dumps(ended), file=sys.__stdout__)
"""


@pytest.mark.unsanitized  # AddressSanitizer needs more addresses than the limit leaves
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_little_however_it_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.oc"
    path.write_bytes(BOMBS[name]())
    most = MOST_MEMORY + 64 * path.stat().st_size

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))  # instead of the machine's end

    done = subprocess.run(
        [sys.executable, "-c", READ_ALL_WAYS, str(path), str(LONG)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ended = {way: how.split() for way, how in json.loads(done.stdout).items()}
    assert [way for way, (how, _) in ended.items() if how == "hangs"] == []
    assert {way: how for way, (how, grown) in ended.items() if int(grown) * MIB > most} == {}
    assert {how for how, _ in ended.values()} <= {
        "ok",
        "FormatError",
        "ValueError",
        "NotShareable",
    }


def test_what_is_not_in_the_file_is_found_to_be_equal_without_a_look_at_each_row(tmp_path: Path) -> None:
    path = tmp_path / "bomb.oc"
    path.write_bytes(BOMBS["2^40 rows of None"]())
    rows = oc.open_records(path)
    assert len(rows) == MANY
    assert None in rows
    assert rows.index(None, 7) == 7
    assert rows.count(None) == MANY
    assert rows[5:9] == [None] * 4
    with pytest.raises(oc.FormatError, match="more values than a file of"):
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
