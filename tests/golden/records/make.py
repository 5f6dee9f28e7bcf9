"""Write the golden files of records with onecopy, and what is in them: python -m tests.golden.records.make [folder].

Run with the version of onecopy that README.md names. The expectations (*.json) are `described` from the values below:
onecopy is not asked what it wrote. No test runs this module as a program.
"""

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import json
import math
import pathlib
import struct
import sys
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.golden.records.classes import Box, Colour, Flags, Node, Point

HERE = pathlib.Path(__file__).parent
NAN_WITH_PAYLOAD = struct.unpack("d", struct.pack("Q", 0xFFF8_0000_0000_1234))[0]
INTEGERS = [
    number for bits in (7, 8, 15, 16, 31, 32, 53, 63, 64) for end in (2**bits, -(2**bits)) for number in (end - 1, end)
]
FLOATS = [
    0.0,
    -0.0,
    0.1,
    -1.5,
    math.inf,
    -math.inf,
    math.nan,
    NAN_WITH_PAYLOAD,
    5e-324,
    1.7976931348623157e308,
    2.0**53,
]

VALUES: list[Any] = [
    None,
    *(False, True, 0, 1, -1, *INTEGERS, 2**1000, -(2**1000)),
    *FLOATS,
    *("", "a", "käse", "重み", "\U0001f600", "e\u0301", "nul\0tab\t", "x" * 300, "lone \udc80 surrogate"),
    *(b"", b"\0\xff", bytes(range(256))),
    *([], [1, 2, 3], [None], [1, 2.5, None], ["a", b"a", 1, True, None], [[], [[]], [[1]]]),
    *((), (1,), (1, "a", None), ((1, 2), (3.0,)), tuple(range(20))),
    *({}, {"a": 1}, {"b": None, "a": [1, {"c": -0.0}]}),
    *({1: "int", "1": "str", (1, 2): "tuple", None: "none"}, {(): []}),
]
"""One of everything that records know, in rows of one list: a choice of kinds."""

ARRAYS: list[Any] = [
    np.arange(6.0).reshape(2, 3),
    np.arange(4, dtype=">i2"),
    np.zeros((0, 5), "u1"),
    np.array(2.5),
    np.array([True, False]),
    np.array([1 + 2j, -0.0j]),
    np.array(["a", "bcd"]),
    np.array([b"a", b"bcd"]),
    np.array(["2026-11-20", "NaT"], "M8[ns]"),
    np.array([1, 2], "m8[25s]"),
    *(
        np.float32(1.5),
        np.float64(-0.0),
        np.int64(-3),
        np.uint8(255),
        np.bool_(True),
        np.datetime64("2026-01-01", "ns"),
    ),
]

OBJECTS: list[Any] = [
    dt.datetime(2026, 3, 29, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone(dt.timedelta(minutes=-7), "x")),
    dt.datetime(1969, 12, 31, 23, 59, 59, 1),
    *(dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.time(), dt.time(23, 59, 59, 999999, fold=1)),
    *(dt.time(1, 2, tzinfo=dt.UTC), dt.timedelta(-999999, 5, 7), dt.timezone(dt.timedelta(hours=5, minutes=45))),
    zoneinfo.ZoneInfo("UTC"),
    *(decimal.Decimal("-0.10"), decimal.Decimal("NaN"), fractions.Fraction(-3, 7), complex(-0.0, math.inf)),
    *(uuid.UUID(int=7), pathlib.Path("/a/ä"), pathlib.PurePosixPath("c"), pathlib.PureWindowsPath("c:\\d")),
    *(bytearray(b"x"), range(3, -9, -2), {1}, set(), frozenset({b"z"}), array.array("h", [1, -2])),
    *(collections.OrderedDict(b=1, a=2), collections.Counter("aab"), collections.deque([1, 2], maxlen=5)),
    *(Colour.RED, Colour.GREEN, Flags.A, Flags.A | Flags.B, Point(0.5, 1)),
    *(Box(Point(-0.0, 1), None, [1, 2]), Box(Point(0.5, 2**70), "l", []), Node(Colour.RED, Node(Colour.GREEN))),
]

TABLE: list[Any] = [
    {
        "id": number * 100,
        "wide": INTEGERS[number],
        "real": FLOATS[number % len(FLOATS)],
        "both": number if number % 3 else number / 2,
        "maybe": None if number % 5 == 0 else bool(number % 2),
        "none": None,
        "name": f"row {number} ä",
        "raw": bytes([number]),
        "box": [number * 0.5] * (number % 4),
        "two": (number, str(number)),
        "in": {"x": number, "y": {"z": [number, None]}},
        "a.b%#\n": number,
    }
    for number in range(20)
]
"""Rows of the same keys: columns."""

SHAPES: list[Any] = [
    {key: number % 7 for bit, key in enumerate("abcdefghi") if number >> bit & 1} for number in range(260)
]
"""Rows with one of 260 sets of keys, more than a byte can number."""

KEYS: dict[Any, Any] = {f"key {number}": number for number in range(30)}
KEYS |= {number: [number] for number in (0, -1, 127, 2**63 - 1, -(2**63), 2**64, -(2**200))}
KEYS |= {1.5: "float", -math.inf: "inf", math.nan: "nan", None: "none"}
KEYS |= {"": "empty", "ä\0": "text", b"": "", b"\xff": "bytes"}
KEYS |= {(): "empty", (1, "a"): {"a": 1}, (1, (2.5, b"x", None)): (1, 2)}
"""The keys of a dict of every kind."""

GOLDEN: dict[str, Any] = {
    "values.oc": VALUES,
    "arrays.oc": ARRAYS,
    "objects.oc": OBJECTS,
    "table.oc": TABLE,
    "shapes.oc": SHAPES,
    "dict.oc": KEYS,
    "empty_dict.oc": {},
}
"""The files by their names."""


def described(value: Any) -> Any:
    """Return a value as JSON can have it; values of other types, or with other bits, have other descriptions."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value if kind is not str or value.isascii() else {"str": value.encode("utf-8", "surrogatepass").hex()}
    name = "numpy scalar" if isinstance(value, np.generic) else f"{kind.__module__}.{kind.__qualname__}"
    return {name.removeprefix("builtins.").replace("pathlib._local.", "pathlib."): _content(value)}


def _zoned(value: dt.datetime | dt.time) -> list[Any]:
    return [value.replace(tzinfo=None).isoformat(), value.fold, described(value.tzinfo)]


def _fields(value: Any) -> list[Any]:
    return [[field.name, described(getattr(value, field.name))] for field in dataclasses.fields(value)]


CONTENTS: list[tuple[Any, Callable[[Any], Any]]] = [
    ((np.ndarray, np.generic), lambda value: [value.dtype.str, list(value.shape), value.tobytes().hex()]),
    (float, lambda value: struct.pack(">d", value).hex()),
    (enum.Enum, lambda value: value.name),
    ((bytes, bytearray), lambda value: value.hex()),
    (array.array, lambda value: [value.typecode, value.tobytes().hex()]),
    (collections.deque, lambda value: [value.maxlen, *map(described, value)]),
    (dict, lambda value: [[described(key), described(item)] for key, item in value.items()]),
    ((list, tuple, set, frozenset), lambda value: [described(item) for item in value]),
    (complex, lambda value: [described(value.real), described(value.imag)]),
    ((dt.datetime, dt.time), _zoned),
    (dt.timezone, lambda value: [str(value), str(value.utcoffset(None))]),
    ((Box, Node), _fields),
    (object, str),
]
"""How the content of a value is written down, by its type; the first that fits."""


def _content(value: Any) -> Any:
    return next(write(value) for types, write in CONTENTS if isinstance(value, types))


def expectation(data: Any) -> list[Any]:
    """Return what `described` says of each row, or of each pair of a dict."""
    return [described(row) for row in (data.items() if isinstance(data, dict) else data)]


def main(folder: pathlib.Path) -> None:
    """Write everything."""
    import onecopy.records

    for name, data in GOLDEN.items():
        onecopy.records.save(folder / name, data)
        kind = "dict" if isinstance(data, dict) else "list"
        lines = ",\n".join(json.dumps(row) for row in expectation(data))
        (folder / f"{name}.json").write_text(f'{{"container": "{kind}", "rows": [\n{lines}\n]}}\n')
        print(name, (folder / name).stat().st_size, "bytes")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
