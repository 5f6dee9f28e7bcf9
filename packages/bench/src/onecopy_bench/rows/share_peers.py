"""The holders of rows that `share` compares: a list, packed pickles, a database, a table, onecopy.

A `Holder` prepares rows: it loads them from a source and packs them, or opens files that an earlier process wrote to
the folder. The result has a length, returns each row exactly as it was stored, and can be passed to a worker with any
start method. The processes that use a package import it by name.

`SerializedList` is described in "Demystify RAM usage in multi-process data loaders", and many projects contain a copy
of it. The first process builds files of rows while holding a lock; the others wait for it, and later runs find the
files.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pickle
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.connection import Client, Listener
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onecopy_bench.peers import Peer, module
from onecopy_bench.rows.data import Source

EMPTY_ROWS = 10
"""Number of rows in the empty baseline, enough for every worker to get a first item."""
BATCH = 10_000
DONE, ADDRESS = "done", "address"
RANKS = b"the ranks of one sample"
_KEY = struct.Struct(">Q").pack
"""Packs an index into a key that LMDB sorts numerically."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder(Peer):
    """One way to hold rows: given the source and a folder, `ready` returns the rows.

    `keeps`: later processes find the files in the folder. `alone`: one rank builds for all ranks, although no files are
    kept. As multiples of the size of the pickled rows, `builds` is the memory and file space that preparation needs,
    `leaks` the private memory of a forked worker, and `copied` that of a newly started worker. These estimates
    ensure that samples fit into memory.
    """

    ready: Callable[[Source, Path], Any]
    keeps: bool = False
    alone: bool = False
    builds: float = 6.0
    leaks: float = 0.0
    copied: float = 0.0


class SerializedList:
    """Rows stored as pickles in one NumPy array."""

    def __init__(self, rows: Iterable[Any]) -> None:
        pickles = [np.frombuffer(pickle.dumps(row, -1), np.uint8) for row in rows]
        self._ends: Any = np.cumsum([len(each) for each in pickles], dtype=np.int64)
        self._bytes: Any = np.concatenate(pickles)

    @property
    def nbytes(self) -> int:
        """Size in bytes of the pickles and of the array of their end positions."""
        return int(self._bytes.nbytes + self._ends.nbytes)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Any:
        start = 0 if index == 0 else self._ends[index - 1].item()
        return pickle.loads(memoryview(self._bytes[start : self._ends[index].item()]))  # noqa: S301 - own bytes


class TorchSerializedList(SerializedList):
    """Rows stored as pickles in one tensor, which multiprocessing passes through shared memory."""

    def __init__(self, rows: Iterable[Any]) -> None:
        super().__init__(rows)
        torch = module("torch")
        self._ends, self._bytes = torch.from_numpy(self._ends), torch.from_numpy(self._bytes)

    def __getitem__(self, index: int) -> Any:
        start = 0 if index == 0 else self._ends[index - 1].item()
        return pickle.loads(memoryview(self._bytes[start : self._ends[index].item()].numpy()))  # noqa: S301


class Format(NamedTuple):
    """A file format for rows: `open` opens a folder, and `get` returns the row at an index of the result."""

    build: Callable[[Source, Path], None]
    open: Callable[[Path], Any]
    count: Callable[[Any], int]
    get: Callable[[Any, Any], Any]


class Kept:
    """The rows in a folder, in one of the `FORMATS`. Each process opens them when it first reads a row."""

    def __init__(self, format: str, place: Path, length: int = 0) -> None:  # noqa: A002
        self.format, self.place = format, place
        self._length, self._opened = length, None

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, (self.format, self.place, self._length)

    def __len__(self) -> int:
        return self._length

    def open(self) -> Any:
        """Return the rows that this process has opened, opening them if necessary."""
        if self._opened is None:
            self._opened = FORMATS[self.format].open(self.place)
        return self._opened

    def __getitem__(self, index: object) -> Any:
        return FORMATS[self.format].get(self.open(), index)

    @property
    def nbytes(self) -> int:
        """Number of bytes that the files occupy on disk."""
        return sum(path.stat().st_blocks * 512 for path in self.place.rglob("*") if path.is_file())


def _kept(format: str, source: Source, folder: Path) -> Kept:  # noqa: A002
    """Build or find rows in a folder, count them, and close them, because LMDB must not be open during a fork."""
    chosen, place = FORMATS[format], folder / "built"
    place.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / DONE).exists():
            chosen.build(source, place)
            (place / DONE).touch()
    return Kept(format, place, chosen.count(chosen.open(place)))


def _build_arrow(source: Source, place: Path) -> None:
    pa = module("pyarrow")
    table = pa.Table.from_pylist(list(source.rows()))
    with pa.OSFile(os.fspath(place / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def _open_arrow(place: Path) -> Any:
    pa = module("pyarrow")
    return pa.ipc.open_file(pa.memory_map(os.fspath(place / "rows.arrow"))).read_all()


def _datasets() -> Any:
    """Import `datasets` with progress bars and network access disabled, and return it."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    datasets = module("datasets")
    datasets.disable_progress_bars()
    return datasets


def _build_lmdb(source: Source, place: Path) -> None:
    path = os.fspath(place / "rows.lmdb")
    with module("lmdb").open(path, subdir=False, map_size=(1 << 30) + 8 * source.pickled, lock=False) as env:
        items = ((_KEY(index), pickle.dumps(row, 5)) for index, row in enumerate(source.rows()))
        while batch := list(islice(items, BATCH)):
            with env.begin(write=True) as txn:
                txn.cursor().putmulti(batch, append=True)


def _open_lmdb(place: Path) -> Any:
    """Return a transaction for all reads of this process."""
    path = os.fspath(place / "rows.lmdb")
    return module("lmdb").open(path, subdir=False, readonly=True, lock=False, readahead=False).begin(buffers=True)


FORMATS = {
    "arrow": Format(_build_arrow, _open_arrow, len, lambda table, index: table.slice(index, 1).to_pylist()[0]),
    "datasets": Format(
        lambda source, place: _datasets().Dataset.from_list(list(source.rows())).save_to_disk(place / "dataset"),
        lambda place: _datasets().load_from_disk(place / "dataset"), len, lambda dataset, index: dataset[index],
    ),
    "lmdb": Format(
        _build_lmdb, _open_lmdb, lambda txn: int(txn.stat()["entries"]),
        lambda txn, index: pickle.loads(txn.get(_KEY(index))),  # noqa: S301 - written by this run
    ),
}  # fmt: skip


def _led(source: Source, folder: Path) -> Any:
    """Build a tensor of rows and serve it to the other ranks, or get a handle to it from the rank that serves it."""
    multiprocessing.current_process().authkey = RANKS  # torch authenticates with it when it passes descriptors
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
    """Send a handle to each process that connects."""
    while True:
        with listener.accept() as other:
            other.send_bytes(ForkingPickler.dumps(rows))


_OBJECTS: dict[str, Any] = {"builds": 5.0, "leaks": 3.6, "copied": 5.0}
_MODULES = ("onecopy", "onecopy.store", "onecopy_records.rows")
"""The modules that a worker imports to read shared rows, and those that a preloading fork server imports for it."""
_OURS: dict[str, Any] = {"ours": True, "builds": 2.0}

HOLDERS = (
    Holder(
        "onecopy", "share(..., key)", _MODULES, keeps=True, **_OURS,
        ready=lambda source, folder: module("onecopy").share(source.rows, key="the rows", store=folder / "store"),
    ),
    Holder(
        "onecopy, no key", "share(...)", _MODULES, **_OURS, ready=lambda source, _: module("onecopy").share(source.rows)
    ),
    Holder("list", "a list of objects", ready=lambda source, _: list(source.rows()), **_OBJECTS),
    Holder(
        "NumpySerializedList", "pickles in one array", copied=1.6,
        ready=lambda source, _: SerializedList(list(source.rows())),
    ),
    Holder(
        "TorchSerializedList", "pickles in one tensor", ("torch",),
        ready=lambda source, _: TorchSerializedList(list(source.rows())),
    ),
    Holder("torch handle", "one tensor, a handle for each rank", ("torch",), ready=_led, alone=True),
    Holder("LMDB", "pickles in LMDB", ("lmdb",), ready=partial(_kept, "lmdb"), builds=2.0, keeps=True),
    Holder("pyarrow IPC", "a mapped Arrow file", ("pyarrow",), ready=partial(_kept, "arrow"), keeps=True),
    Holder("HF datasets", "load_from_disk", ("datasets",), ready=partial(_kept, "datasets"), keeps=True),
    Holder(
        "empty", f"a list of {EMPTY_ROWS} rows", builds=0.0,
        ready=lambda source, _: list(islice(source.rows(), EMPTY_ROWS)),
    ),
)  # fmt: skip
"""The holders that `bench share` compares. The last one is a baseline that is subtracted from the others."""
EMPTY = HOLDERS[-1]
