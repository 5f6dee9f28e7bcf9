"""What holds rows: a list, a list of bytes, a database, a table, onecopy; what `share` and `records` compare.

A `Holder` makes rows ready: it loads them from a source and packs them, or opens what a former process has left in the
folder. What it returns has a length, gives the row of an index exactly as it went in, and can be handed to a worker by
the start method in question. Packages are imported by name in the processes that use them.

`SerializedList` is what "Demystify RAM usage in multi-process data loaders" describes and many projects carry a copy
of. Rows in files are built by the first process, which holds a lock; the others wait for it, and a later run finds the
files. Tables hold columns, so a row that is no dict becomes one on its way in and is made again on its way out.
"""

from __future__ import annotations

import copy
import fcntl
import gc
import json
import multiprocessing
import os
import pickle
import random
import sqlite3
import struct
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from multiprocessing.connection import Client, Listener
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onecopy_bench.peers import Peer, module
from onecopy_bench.rows.data import COLUMNS, Source

EMPTY_ROWS = 10
"""What the empty baseline holds: enough for every worker to have a first item."""
BATCH = 10_000
DONE, ADDRESS = "done", "address"
RANKS = b"the ranks of one sample"
_KEY = struct.Struct(">Q").pack
"""Keys that LMDB sorts as numbers."""
DOCUMENT, LINES = "rows.json", "rows.jsonl"
"""The same rows as one JSON array, and as one object per line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder(Peer):
    """One way to hold rows: `ready` returns them, given the source and a folder; `names` what statements call by name.

    Attributes
    ----------
    keeps
        Whether a later process finds what this one has put into the folder.
    alone
        Whether one rank of a job builds for all, though nothing is kept.
    builds, leaks, copied
        Memory and files while rows are made ready; private memory of a forked worker, and of one that is started anew,
        as multiples of the pickled rows: so that no sample exhausts the machine.
    """

    ready: Callable[[Source, Path], Any]
    keeps: bool = False
    alone: bool = False
    builds: float = 6.0
    leaks: float = 0.0
    copied: float = 0.0
    names: Callable[[Any], dict[str, Any]] = lambda rows: {"rows": rows}


def nbytes_of(rows: Any) -> int | None:
    """Return the bytes of packed rows as they report them, or None for objects."""
    found = rows.estimated_size() if hasattr(rows, "estimated_size") else getattr(rows, "nbytes", None)
    if found is None or getattr(getattr(rows, "dtype", None), "kind", "") == "T":
        return None  # numpy counts the slots of its strings, not their characters
    return int(found)


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
    """Rows as pickles in one tensor, which multiprocessing passes through shared memory."""

    def __init__(self, rows: Iterable[Any]) -> None:
        super().__init__(rows)
        torch = module("torch")
        self._ends, self._bytes = torch.from_numpy(self._ends), torch.from_numpy(self._bytes)

    def __getitem__(self, index: int) -> Any:
        start = 0 if index == 0 else self._ends[index - 1].item()
        return pickle.loads(memoryview(self._bytes[start : self._ends[index].item()].numpy()))  # noqa: S301


class Packed:
    """Encoded rows one after another; the timed statement slices `blob` by `at`."""

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
        """Return the names that statements use."""
        return {"rows": self, "blob": self.blob, "at": self.at, "decode": self.decode}


def _frozen(source: Source, _: Path) -> list[Any]:
    """Load a list and freeze it for the garbage collector, as recommended for forking servers."""
    rows = list(source.rows())
    gc.collect()
    gc.freeze()
    gc.disable()
    return rows


def _with_msgspec(source: Source, _: Path) -> Packed:
    msgpack = module("msgspec.msgpack")
    return Packed(source.rows(), msgpack.Encoder().encode, msgpack.Decoder().decode)


def built_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return the folder of what was built; the first process builds it."""
    place = folder / "built"
    place.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / DONE).exists():
            build(place)
            (place / DONE).touch()
    return place


class Format(NamedTuple):
    """How rows are kept in files: `get` returns the row at an index, given what `open` returned for a folder."""

    build: Callable[[Source, Path], None]
    open: Callable[[Path], Any]
    count: Callable[[Any], int]
    get: Callable[[Any, Any], Any]
    names: Callable[[Any], dict[str, Any]]


class Kept:
    """The rows of a folder in one of the `FORMATS`; each process opens them at its first read."""

    def __init__(self, format: str, place: Path, length: int = 0) -> None:  # noqa: A002
        self.format, self.place = format, place
        self._length, self._opened = length, None

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, (self.format, self.place, self._length)

    def __len__(self) -> int:
        return self._length

    def open(self) -> Any:
        """Return the open rows of this process."""
        if self._opened is None:
            self._opened = FORMATS[self.format].open(self.place)
        return self._opened

    def __getitem__(self, index: object) -> Any:
        return FORMATS[self.format].get(self.open(), index)

    def names(self) -> dict[str, Any]:
        """Return the names that statements use."""
        return {"rows": self, **FORMATS[self.format].names(self.open())}

    @property
    def nbytes(self) -> int:
        """Bytes of the files, as the disk counts them."""
        return sum(path.stat().st_blocks * 512 for path in self.place.rglob("*") if path.is_file())


def _kept(format: str, source: Source, folder: Path) -> Kept:  # noqa: A002
    """Build rows in a folder or find them there, count them, and close them: LMDB must not be open at a fork."""
    chosen = FORMATS[format]
    place = built_once(folder, lambda place: chosen.build(source, place))
    return Kept(format, place, chosen.count(chosen.open(place)))


def _as_dict(row: Any) -> dict[str, Any]:
    """Return a row as a dict: a tuple by its positions, anything else as its only value."""
    if isinstance(row, dict):
        return row
    return {str(i): value for i, value in enumerate(row)} if isinstance(row, tuple) else {"value": row}


def _row_of(place: Path) -> Callable[[dict[str, Any]], Any]:
    """Return a function that converts a dict of a table back to a row."""
    kind = (place / "kind").read_text()
    if kind == "pairs":
        return lambda found: tuple(found.values())
    return (lambda found: found["value"]) if kind == "strings" else lambda found: found


def _build_arrow(source: Source, place: Path) -> None:
    pa = module("pyarrow")
    (place / "kind").write_text(source.kind)
    table = pa.Table.from_pylist([_as_dict(row) for row in source.rows()])
    with pa.OSFile(os.fspath(place / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def _open_arrow(place: Path) -> Any:
    pa = module("pyarrow")
    return pa.ipc.open_file(pa.memory_map(os.fspath(place / "rows.arrow"))).read_all(), _row_of(place)


def _arrow_names(opened: Any) -> dict[str, Any]:
    whole = opened[0].combine_chunks()
    columns = {name: whole.column(name) for name in whole.column_names}
    structs = module("pyarrow").chunked_array(whole.to_struct_array().chunks)
    some = whole.select([name for name in COLUMNS if name in columns])
    return {"table": whole, "some": some, "structs": structs, **columns}


def _datasets() -> Any:
    """Return the module, without progress bars and without the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    datasets = module("datasets")
    datasets.disable_progress_bars()
    return datasets


def _build_hugging(source: Source, place: Path) -> None:
    (place / "kind").write_text(source.kind)
    kind = _datasets().Dataset
    if source.kind == "strings":  # a dict for each would be most of the memory
        dataset = kind.from_dict({"value": list(source.rows())})
    else:
        dataset = kind.from_list([_as_dict(row) for row in source.rows()])
    dataset.save_to_disk(os.fspath(place / "dataset"))


def _open_hugging(place: Path) -> Any:
    return _datasets().load_from_disk(os.fspath(place / "dataset")), _row_of(place)


def _build_lmdb(source: Source, place: Path) -> None:
    path = os.fspath(place / "rows.lmdb")
    with module("lmdb").open(path, subdir=False, map_size=(1 << 30) + 8 * source.pickled, lock=False) as env:
        keyed = source.kind == "keyed"  # keys in their order
        rows = ((key.encode(), value) for key, value in source.rows()) if keyed else enumerate(source.rows())
        items = ((key if keyed else _KEY(key), pickle.dumps(row, 5)) for key, row in rows)
        while batch := list(islice(items, BATCH)):
            with env.begin(write=True) as txn:
                txn.cursor().putmulti(batch, append=True)


def _open_lmdb(place: Path) -> Any:
    """Return one transaction for all reads of a process."""
    path = os.fspath(place / "rows.lmdb")
    return module("lmdb").open(path, subdir=False, readonly=True, lock=False, readahead=False).begin(buffers=True)


QUERY = "SELECT value FROM rows WHERE key = ?"


def _build_sqlite(source: Source, place: Path) -> None:
    keyed = source.kind == "keyed"
    connection = sqlite3.connect(place / "rows.sqlite")
    with connection:
        key = "TEXT PRIMARY KEY" if keyed else "INTEGER PRIMARY KEY"
        connection.execute(f"CREATE TABLE rows (key {key}, value BLOB){' WITHOUT ROWID' if keyed else ''}")
        items = source.rows() if keyed else enumerate(source.rows())
        connection.executemany("INSERT INTO rows VALUES (?, ?)", ((key, pickle.dumps(row, 5)) for key, row in items))
    connection.close()


def _open_sqlite(place: Path) -> Any:
    connection = sqlite3.connect(f"file:{place}/rows.sqlite?mode=ro&immutable=1", uri=True)
    connection.execute(f"PRAGMA mmap_size = {1 << 40}")
    return connection


FORMATS = {
    "arrow": Format(
        _build_arrow, _open_arrow, lambda opened: len(opened[0]),
        lambda opened, index: opened[1](opened[0].slice(index, 1).to_pylist()[0]), _arrow_names,
    ),
    "datasets": Format(
        _build_hugging, _open_hugging, lambda opened: len(opened[0]),
        lambda opened, index: opened[1](opened[0][index]), lambda opened: {"dataset": opened[0]},
    ),
    "lmdb": Format(
        _build_lmdb, _open_lmdb, lambda txn: int(txn.stat()["entries"]),
        lambda txn, index: pickle.loads(txn.get(_KEY(index))),  # noqa: S301 - written by this run
        lambda txn: {"txn": txn, "key": _KEY, "loads": pickle.loads},
    ),
    "sqlite": Format(
        _build_sqlite, _open_sqlite,
        lambda connection: int(connection.execute("SELECT count(*) FROM rows").fetchone()[0]),
        lambda connection, key: pickle.loads(connection.execute(QUERY, (key,)).fetchone()[0]),  # noqa: S301
        lambda connection: {"get": connection.execute, "QUERY": QUERY, "loads": pickle.loads},
    ),
}  # fmt: skip


def _frame(source: Source, _: Path) -> Any:
    strings = source.kind == "strings"
    rows: Any = {"value": list(source.rows())} if strings else [_as_dict(row) for row in source.rows()]
    return module("polars").DataFrame(rows)


def _columns(frame: Any) -> dict[str, Any]:
    return {"rows": frame, "frame": frame, **{name: frame[name] for name in frame.columns}}


def _led(source: Source, folder: Path) -> Any:
    """Build the tensor and serve it to the other ranks, or get a handle from the rank that serves it."""
    multiprocessing.current_process().authkey = RANKS  # which torch hands descriptors over with
    try:
        (folder / "led").touch(exist_ok=False)
    except FileExistsError:
        while not (folder / ADDRESS).exists():
            time.sleep(0.001)
        with Client((folder / ADDRESS).read_text(), authkey=RANKS) as leader:
            return ForkingPickler.loads(leader.recv_bytes())
    rows = TorchSerializedList(list(source.rows()))
    listener = Listener(family="AF_UNIX", authkey=RANKS)
    threading.Thread(target=_answer, args=(listener, rows), daemon=True).start()
    (folder / "unnamed").write_text(str(listener.address))
    (folder / "unnamed").rename(folder / ADDRESS)
    return rows


def _answer(listener: Listener, rows: Any) -> None:
    """Give a handle to each process that connects."""
    while True:
        with listener.accept() as other:
            other.send_bytes(ForkingPickler.dumps(rows))


def write_json(source: Source, folder: Path) -> None:
    """Write both files, row by row."""
    with (folder / DOCUMENT).open("w") as document, (folder / LINES).open("w") as lines:
        for i, row in enumerate(source.rows()):
            text = json.dumps(row)
            document.write(("[" if i == 0 else ",\n") + text)
            lines.write(text + "\n")
        document.write("]\n")


def _by(package: str, function: str, lines: bool = False) -> Callable[[Source, Path], Any]:
    """Return a function that loads the document from bytes, or the lines from a path."""

    def load(_: Source, folder: Path) -> Any:
        call = getattr(module(package), function)
        return call(folder / LINES if lines else (folder / DOCUMENT).read_bytes())

    return load


class Indices:
    """An iterator whose first value is known."""

    def __init__(self, values: Iterable[Any]) -> None:
        rest = iter(values)
        self.following = chain([next(rest)], rest)

    def names(self) -> dict[str, Any]:
        """Return the names that statements use."""
        return {"rows": self, "following": self.following}


def _shuffled_list(count: int) -> Iterable[int]:
    indices = list(range(count))
    random.Random(0).shuffle(indices)  # noqa: S311 - an order, not a secret
    return indices


def _import_json(_: Source, folder: Path) -> Any:
    module("onecopy.records").import_json(folder / DOCUMENT, folder / "rows.oc")
    return module("onecopy").open_records(folder / "rows.oc")


def _share(rows: Callable[[], Any], **options: Any) -> Any:
    return module("onecopy").share(rows, **options)


def _shuffling(make: Callable[[int], Iterable[Any]]) -> dict[str, Any]:
    """Return the settings of a holder of as many shuffled indices as the source has rows."""
    return {"ready": lambda source, _: Indices(make(source.count)), "names": Indices.names}


_OBJECTS: dict[str, Any] = {"builds": 5.0, "leaks": 3.6, "copied": 5.0}
_MODULES = ("onecopy", "onecopy.store", "onecopy.data.rows")
"""What a worker imports to read shared rows, and what a preloading fork server imports for it."""
_OURS: dict[str, Any] = {"ours": True, "builds": 2.0}
_LAZY: dict[str, Any] = {"names": lambda rows: {"rows": rows, "lazy": rows.lazy}}
_ROWS: dict[str, Any] = {
    **_OURS, **_LAZY, "keeps": True,
    "ready": lambda source, folder: _share(source.rows, key="the rows", store=folder / "store"),
}  # fmt: skip
_KEPT: dict[str, Any] = {"keeps": True, "names": Kept.names}

HOLDERS = (
    Holder("onecopy", "share(..., key)", _MODULES, **_ROWS),
    Holder(
        "onecopy, no key", "share(...)", _MODULES, ready=lambda source, _: _share(source.rows), **_OURS, **_LAZY
    ),
    Holder(
        "list", "a list of objects", ready=lambda source, _: list(source.rows()), **_OBJECTS,
        names=lambda rows: {"rows": rows, "deepcopy": copy.deepcopy},
    ),
    Holder("list, gc.freeze", "a list, gc.freeze(), gc.disable()", ready=_frozen, **_OBJECTS),
    Holder(
        "NumpySerializedList", "pickles in one array", copied=1.6,
        ready=lambda source, _: SerializedList(list(source.rows())),
    ),
    Holder(
        "TorchSerializedList", "pickles in one tensor", ("torch",),
        ready=lambda source, _: TorchSerializedList(list(source.rows())),
    ),
    Holder("torch handle", "one tensor, a handle for each rank", ("torch",), ready=_led, alone=True),
    Holder("LMDB", "pickles in LMDB", ("lmdb",), ready=partial(_kept, "lmdb"), builds=2.0, **_KEPT),
    Holder("pyarrow IPC", "a mapped Arrow file", ("pyarrow",), ready=partial(_kept, "arrow"), **_KEPT),
    Holder("HF datasets", "load_from_disk", ("datasets",), ready=partial(_kept, "datasets"), **_KEPT),
    Holder(
        "empty", f"a list of {EMPTY_ROWS} rows", builds=0.0,
        ready=lambda source, _: list(islice(source.rows(), EMPTY_ROWS)),
    ),
)  # fmt: skip
"""What `bench share` compares; the last is subtracted from the others."""
EMPTY = HOLDERS[-1]

IMPORTS = (
    Holder("json.load", "the standard library", ready=_by("json", "loads"), builds=7.0),
    Holder("orjson.loads", "orjson", ("orjson",), ready=_by("orjson", "loads"), builds=7.0),
    Holder("msgspec.json", "msgspec", ("msgspec.json",), ready=_by("msgspec.json", "decode"), builds=7.0),
    Holder(
        "pyarrow.json", "read_json of lines", ("pyarrow.json",), builds=3.0,
        ready=_by("pyarrow.json", "read_json", lines=True),
    ),
    Holder(
        "polars ndjson", "read_ndjson of lines", ("polars",), builds=4.0, names=_columns,
        ready=_by("polars", "read_ndjson", lines=True),
    ),
    Holder(
        "onecopy import", "import_json, open", (*_MODULES, "onecopy.records"), ready=_import_json, **_OURS
    ),
)  # fmt: skip
"""A JSON file of annotations, loaded in every way: the file lies in the folder, and the rows come from it alone."""

SAMPLERS = (
    Holder(
        "onecopy Shuffle", "Shuffle(n)", ("onecopy.data.shuffle",), builds=0.0,
        **_shuffling(lambda count: module("onecopy.data.shuffle").Shuffle(count, seed=0)),
    ),
    Holder(
        "torch RandomSampler", "RandomSampler(n)", ("torch.utils.data",), builds=6.0,
        **_shuffling(lambda count: module("torch.utils.data").RandomSampler(range(count))),
    ),
    Holder(
        "numpy permutation", "default_rng(0).permutation(n)", builds=1.0,
        **_shuffling(lambda count: np.random.default_rng(0).permutation(count)),
    ),
    Holder("random.shuffle", "a shuffled list", builds=5.0, **_shuffling(_shuffled_list)),
)  # fmt: skip

EVERY = (
    *HOLDERS,
    *IMPORTS,
    *SAMPLERS,
    Holder(
        "pickle", "pickles in one bytes object", names=Packed.names,
        ready=lambda source, _: Packed(source.rows(), partial(pickle.dumps, protocol=5), pickle.loads),
    ),
    Holder("msgspec", "msgpack in one bytes object", ("msgspec.msgpack",), ready=_with_msgspec, names=Packed.names),
    Holder(
        "orjson", "JSON in one bytes object", ("orjson",), names=Packed.names,
        ready=lambda source, _: Packed(source.rows(), module("orjson").dumps, module("orjson").loads),
    ),
    Holder(
        "numpy S", "an array of 26 bytes each",
        ready=lambda source, _: np.fromiter((row.encode() for row in source.rows()), "S26", source.count),
    ),
    Holder(
        "numpy StringDType", "an array of strings",
        ready=lambda source, _: np.fromiter(source.rows(), np.dtypes.StringDType(), source.count),
    ),
    Holder("dict", "a dict of objects", ready=lambda source, _: dict(source.rows())),
    Holder(
        "onecopy dict", "share(dict, key)", (*_MODULES, "onecopy.records"), ours=True, keeps=True,
        ready=lambda source, folder: _share(
            lambda: dict(source.rows()), key="the rows", store=folder / "store"
        ),
    ),
    Holder("onecopy table", "share(..., key)", (*_MODULES, "onecopy.records"), **_ROWS),
    Holder("sqlite", "pickles in sqlite", ready=partial(_kept, "sqlite"), builds=2.0, **_KEPT),
    Holder("polars", "a DataFrame", ("polars",), ready=_frame, names=_columns),
    Holder(
        "pyarrow", "large_string", ("pyarrow",),
        ready=lambda source, _: module("pyarrow").array(source.rows(), "large_string", size=source.count),
    ),
)  # fmt: skip
