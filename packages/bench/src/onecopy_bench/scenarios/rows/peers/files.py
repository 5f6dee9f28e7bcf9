"""Rows in files that a process builds once and the others open: LMDB, Arrow, HF datasets, sqlite.

The recipe is the usual one: the first process holds a lock and builds, the others wait for it; a later run finds the
files. Tables hold columns, so a row that is no dict becomes one on its way in and is made again on its way out. What
is returned holds a path until it is asked for a row, so that it travels to workers and survives a fork.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import pickle
import sqlite3
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from onecopy_bench.scenarios.rows.data import COLUMNS, Source
from onecopy_bench.scenarios.rows.peers import Peer

BATCH = 10_000
DONE = "done"
KEY = struct.Struct(">Q").pack
"""Keys that LMDB sorts as numbers."""


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


def kept(build: Callable[[Source, Path], None], rows: Callable[[Path], Any]) -> Callable[[Source, Path], Any]:
    """Return the function that makes rows ready from one that builds and one that opens."""

    def ready(source: Source, folder: Path) -> Any:
        found: Rows = rows(built_once(folder, lambda place: build(source, place)))
        found.look()
        return found

    return ready


class Rows:
    """What a path holds, opened by the first reading of each process; `_open` returns what `opened` is."""

    def __init__(self, place: Path, length: int = 0) -> None:
        self.place = place
        self._length = length
        self._opened: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.place, self._length)

    def __len__(self) -> int:
        return self._length

    def _open(self) -> Any:
        raise NotImplementedError

    def _count(self, opened: Any) -> int:
        raise NotImplementedError

    def open(self) -> Any:
        """Return what is open in this process."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def look(self) -> None:
        """Open it, count, and close it again: LMDB must not be open where workers are forked."""
        self._length = self._count(self._open())

    @property
    def nbytes(self) -> int:
        """Bytes of the files, as the disk counts them."""
        return sum(path.stat().st_blocks * 512 for path in self.place.rglob("*") if path.is_file())


def as_dict(row: Any) -> dict[str, Any]:
    """Return a row as a dict: a tuple by its positions, anything else as its only value."""
    if isinstance(row, dict):
        return row
    return {str(i): value for i, value in enumerate(row)} if isinstance(row, tuple) else {"value": row}


def from_dict(kind: str) -> Callable[[dict[str, Any]], Any]:
    """Return what makes a row of a kind from its dict."""
    if kind == "pairs":
        return lambda found: tuple(found.values())
    return (lambda found: found["value"]) if kind == "strings" else lambda found: found


class Table(Rows):
    """A table; `opened` is the table and what makes a row from a dict."""

    def _count(self, opened: Any) -> int:
        return len(opened[0])

    def _row_of(self) -> Callable[[dict[str, Any]], Any]:
        return from_dict((self.place / "kind").read_text())


class Arrow(Table):
    """An Arrow IPC file, mapped."""

    def _open(self) -> Any:
        pa = importlib.import_module("pyarrow")
        return pa.ipc.open_file(pa.memory_map(os.fspath(self.place / "rows.arrow"))).read_all(), self._row_of()

    def __getitem__(self, index: int) -> Any:
        table, row_of = self.open()
        return row_of(table.slice(index, 1).to_pylist()[0])

    def names(self) -> dict[str, Any]:
        """Return what statements call by name."""
        pa, (table, _) = importlib.import_module("pyarrow"), self.open()
        whole = table.combine_chunks()
        structs = pa.chunked_array(whole.to_struct_array().chunks)
        columns = {name: whole.column(name) for name in whole.column_names}
        some = whole.select([name for name in COLUMNS if name in columns])
        return {"rows": self, "table": whole, "some": some, "structs": structs, **columns}


def build_arrow(source: Source, place: Path) -> None:
    """Write rows as one record batch."""
    pa = importlib.import_module("pyarrow")
    (place / "kind").write_text(source.kind)
    table = pa.Table.from_pylist([as_dict(row) for row in source.rows()])
    with pa.OSFile(os.fspath(place / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())


class Hugging(Table):
    """A folder of `datasets`."""

    def _open(self) -> Any:
        return _datasets().load_from_disk(os.fspath(self.place / "dataset")), self._row_of()

    def __getitem__(self, index: int) -> Any:
        dataset, row_of = self.open()
        return row_of(dataset[index])

    def names(self) -> dict[str, Any]:
        """Return what statements call by name."""
        return {"rows": self, "dataset": self.open()[0]}


def build_hugging(source: Source, place: Path) -> None:
    """Save rows as a dataset."""
    datasets = _datasets()
    (place / "kind").write_text(source.kind)
    if source.kind == "strings":  # a dict for each would be most of the memory
        dataset = datasets.Dataset.from_dict({"value": list(source.rows())})
    else:
        dataset = datasets.Dataset.from_list([as_dict(row) for row in source.rows()])
    dataset.save_to_disk(os.fspath(place / "dataset"))


def _datasets() -> Any:
    """Return the module, without progress bars and without the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    datasets = importlib.import_module("datasets")
    datasets.disable_progress_bars()
    return datasets


class Lmdb(Rows):
    """Pickles in LMDB, one transaction for all reading of a process; `opened` is the transaction."""

    def _open(self) -> Any:
        lmdb = importlib.import_module("lmdb")
        path = os.fspath(self.place / "rows.lmdb")
        return lmdb.open(path, subdir=False, readonly=True, lock=False, readahead=False).begin(buffers=True)

    def _count(self, opened: Any) -> int:
        return int(opened.stat()["entries"])

    def __getitem__(self, index: int) -> Any:
        return pickle.loads(self.open().get(KEY(index)))  # noqa: S301 - written by this run

    def names(self) -> dict[str, Any]:
        """Return what statements call by name."""
        return {"rows": self, "txn": self.open(), "key": KEY, "loads": pickle.loads}


def build_lmdb(source: Source, place: Path) -> None:
    """Write rows, in the order of their keys."""
    lmdb = importlib.import_module("lmdb")
    path = os.fspath(place / "rows.lmdb")
    with lmdb.open(path, subdir=False, map_size=(1 << 30) + 8 * source.pickled, lock=False) as env:
        items = _items(source)
        while batch := list(islice(items, BATCH)):
            with env.begin(write=True) as txn:
                txn.cursor().putmulti(batch, append=True)


def _items(source: Source) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys, in their order, and pickles; those of keyed rows are their own."""
    if source.kind == "keyed":
        return ((key.encode(), pickle.dumps(value, 5)) for key, value in source.rows())
    return ((KEY(i), pickle.dumps(row, 5)) for i, row in enumerate(source.rows()))


class Sqlite(Rows):
    """Pickles in sqlite, mapped; `opened` is the connection."""

    QUERY = "SELECT value FROM rows WHERE key = ?"

    def _open(self) -> Any:
        connection = sqlite3.connect(f"file:{self.place}/rows.sqlite?mode=ro&immutable=1", uri=True)
        connection.execute(f"PRAGMA mmap_size = {1 << 40}")
        return connection

    def _count(self, opened: Any) -> int:
        return int(opened.execute("SELECT count(*) FROM rows").fetchone()[0])

    def __getitem__(self, key: object) -> Any:
        return pickle.loads(self.open().execute(self.QUERY, (key,)).fetchone()[0])  # noqa: S301 - written by this run

    def names(self) -> dict[str, Any]:
        """Return what statements call by name."""
        return {"rows": self, "get": self.open().execute, "QUERY": self.QUERY, "loads": pickle.loads}


def build_sqlite(source: Source, place: Path) -> None:
    """Write rows, by number or by their keys."""
    keyed = source.kind == "keyed"
    connection = sqlite3.connect(place / "rows.sqlite")
    with connection:
        key = "TEXT PRIMARY KEY" if keyed else "INTEGER PRIMARY KEY"
        connection.execute(f"CREATE TABLE rows (key {key}, value BLOB){' WITHOUT ROWID' if keyed else ''}")
        items = source.rows() if keyed else enumerate(source.rows())
        connection.executemany("INSERT INTO rows VALUES (?, ?)", ((key, pickle.dumps(row, 5)) for key, row in items))
    connection.close()


def frame(source: Source, _: Path) -> Any:
    """Load rows into a polars frame."""
    strings = source.kind == "strings"
    rows: Any = {"value": list(source.rows())} if strings else [as_dict(row) for row in source.rows()]
    return importlib.import_module("polars").DataFrame(rows)


def frame_names(rows: Any) -> dict[str, Any]:
    """Return the frame and its columns by name."""
    return {"rows": rows, "frame": rows, **{name: rows[name] for name in rows.columns}}


def large_strings(source: Source, _: Path) -> Any:
    """Load strings into an Arrow array."""
    pa = importlib.import_module("pyarrow")
    return pa.array(source.rows(), pa.large_string(), size=source.count)


ARROW = Peer(
    "pyarrow IPC", "a mapped Arrow file", kept(build_arrow, Arrow), ("pyarrow",), keeps=True, names=Arrow.names
)
HUGGING = Peer(
    "HF datasets", "load_from_disk", kept(build_hugging, Hugging), ("datasets",), keeps=True, names=Hugging.names
)
LMDB = Peer("LMDB", "pickles in LMDB", kept(build_lmdb, Lmdb), ("lmdb",), keeps=True, builds=2.0, names=Lmdb.names)
SQLITE = Peer("sqlite", "pickles in sqlite", kept(build_sqlite, Sqlite), keeps=True, builds=2.0, names=Sqlite.names)
POLARS = Peer("polars", "a DataFrame", frame, ("polars",), names=frame_names)
LARGE_STRINGS = Peer("pyarrow", "large_string", large_strings, ("pyarrow",))
