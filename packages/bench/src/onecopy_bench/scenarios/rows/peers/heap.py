"""Rows in the memory of the process: objects, or all of them serialised into one array of bytes.

`SerializedList` is what "Demystify RAM usage in multi-process data loaders" describes and many projects carry a copy
of: the pickles of all rows in one array, the ends of each in another, so that reading a row touches no reference count
of the others. Its tensors are handed to workers through shared memory; its arrays are copied into each by spawn.
"""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onecopy_bench.scenarios.rows.data import Source
from onecopy_bench.scenarios.rows.peers import Peer

EMPTY_ROWS = 10
"""What the empty baseline holds: enough for every worker to have a first item."""


class SerializedList:
    """Rows as pickles in one numpy array."""

    def __init__(self, rows: Iterable[Any]) -> None:
        pickles = [np.frombuffer(pickle.dumps(row, -1), np.uint8) for row in rows]
        self._ends: Any = np.cumsum([len(each) for each in pickles], dtype=np.int64)
        self._bytes: Any = np.concatenate(pickles)

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return int(self._bytes.nbytes + self._ends.nbytes)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Any:
        start = 0 if index == 0 else self._ends[index - 1].item()
        return pickle.loads(memoryview(self._bytes[start : self._ends[index].item()]))  # noqa: S301 - own bytes


class TorchSerializedList(SerializedList):
    """Rows as pickles in one tensor, which multiprocessing hands over by shared memory."""

    def __init__(self, rows: Iterable[Any]) -> None:
        super().__init__(rows)
        torch = importlib.import_module("torch")
        self._ends, self._bytes = torch.from_numpy(self._ends), torch.from_numpy(self._bytes)

    def __getitem__(self, index: int) -> Any:
        start = 0 if index == 0 else self._ends[index - 1].item()
        return pickle.loads(memoryview(self._bytes[start : self._ends[index].item()].numpy()))  # noqa: S301


class Packed:
    """Rows behind each other as an encoder writes them; what is timed slices `blob` by `at` itself."""

    def __init__(self, rows: Iterable[Any], encode: Callable[[Any], bytes], decode: Callable[[Any], Any]) -> None:
        self.at, data = array("q", [0]), bytearray()
        for row in rows:
            data += encode(row)
            self.at.append(len(data))
        self.blob, self.decode = memoryview(bytes(data)), decode
        self.nbytes = len(data) + len(self.at) * self.at.itemsize

    def __len__(self) -> int:
        return len(self.at) - 1

    def names(self) -> dict[str, Any]:
        """Return what statements call by name."""
        return {"rows": self, "blob": self.blob, "at": self.at, "decode": self.decode}


def frozen(source: Source, _: Path) -> list[Any]:
    """Load a list and tell the collector to leave it alone, as advised for forking servers."""
    rows = list(source.rows())
    gc.collect()
    gc.freeze()
    gc.disable()
    return rows


def empty(source: Source, _: Path) -> list[Any]:
    """Load a few rows only."""
    return [row for row, _ in zip(source.rows(), range(EMPTY_ROWS), strict=False)]


def with_msgspec(source: Source, _: Path) -> Packed:
    """Pack rows as msgpack."""
    msgpack = importlib.import_module("msgspec.msgpack")
    return Packed(source.rows(), msgpack.Encoder().encode, msgpack.Decoder().decode)


def with_orjson(source: Source, _: Path) -> Packed:
    """Pack rows as JSON."""
    orjson = importlib.import_module("orjson")
    return Packed(source.rows(), orjson.dumps, orjson.loads)


def string_array(source: Source, _: Path) -> Any:
    """Load strings into numpy's variable-width array."""
    strings = np.empty(source.count, np.dtypes.StringDType())
    for i, row in enumerate(source.rows()):
        strings[i] = row
    return strings


def bytes_array(source: Source, _: Path) -> Any:
    """Load strings into numpy's fixed-width array."""
    return np.fromiter((row.encode() for row in source.rows()), "S26", source.count)


LIST = Peer(
    "list",
    "a list of objects",
    lambda source, _: list(source.rows()),
    builds=5.0,
    leaks=3.6,
    copied=5.0,
    names=lambda rows: {"rows": rows, "deepcopy": copy.deepcopy},
)
NUMPY = Peer("NumpySerializedList", "pickles in one array", lambda s, _: SerializedList(list(s.rows())), copied=1.6)
TORCH = Peer(
    "TorchSerializedList",
    "pickles in one tensor",
    lambda source, _: TorchSerializedList(list(source.rows())),
    needs=("torch",),
)
FROZEN = Peer("list, gc.freeze", "a list, gc.freeze(), gc.disable()", frozen, builds=5.0, leaks=3.6, copied=5.0)
EMPTY = Peer("empty", f"a list of {EMPTY_ROWS} rows", empty, builds=0.0)
PICKLED = Peer(
    "pickle",
    "pickles in one bytes object",
    lambda source, _: Packed(source.rows(), partial(pickle.dumps, protocol=5), pickle.loads),
    names=Packed.names,
)
MSGSPEC = Peer("msgspec", "msgpack in one bytes object", with_msgspec, ("msgspec.msgpack",), names=Packed.names)
ORJSON = Peer("orjson", "JSON in one bytes object", with_orjson, ("orjson",), names=Packed.names)
NUMPY_S = Peer("numpy S", "an array of 26 bytes each", bytes_array)
NUMPY_STRINGS = Peer("numpy StringDType", "an array of strings", string_array)
DICT = Peer("dict", "a dict of objects", lambda source, _: dict(source.rows()))
