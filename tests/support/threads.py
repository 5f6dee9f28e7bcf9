"""Threads in the extension at the same time, for ThreadSanitizer: python -m tests.support.threads [--seconds N].

Every thread opens, warms, reads, verifies, shares, takes rows from, stores and closes files that others use as well.
What must hold is asserted; what races inside the extension is reported by the sanitizer.
"""

import argparse
import contextlib
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.support import children

import onecopy as oc
from onecopy import _core

ROWS = [{"id": number, "name": f"row {number}", "box": [number / 2, 1.0]} for number in range(500)]
ARRAYS = {"a": np.arange(300_000), "b": np.ones((100, 100), np.float32)}


def read_arrays(folder: Path, shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    with oc.open(folder / "arrays.oc") as own:
        assert own["a"][-1] == 299_999
        assert own.warm(["b"]).complete
    assert shared["b"].sum() == 10_000
    assert shared.residency().bytes > 0


def warm_and_cancel(folder: Path, shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    """Start a job that another thread of the core works on, and end it at any moment."""
    job = oc.warm(folder / "arrays.oc", wait=False)
    job.cancel()
    job.wait()
    oc.evict(folder / "arrays.oc")
    shared.warm()


def verify(folder: Path, _shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    with oc.open(folder / "arrays.oc") as file:
        file.verify()


def read_rows(_folder: Path, _shared: oc.ArrayFile, rows: oc.records.List) -> None:
    assert rows[17] == ROWS[17]
    assert rows[100:103] == ROWS[100:103]
    assert [row["id"] for row in rows[::50]] == list(range(0, 500, 50))


def share_rows(_folder: Path, _shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    own = oc.share(ROWS[:50])
    assert own[-1] == ROWS[49]
    own.close()


def use_the_store(folder: Path, _shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    """Ask for an artefact that one of the threads builds."""
    store = oc.Store(folder / "store")
    artefact = store.with_options(where="here").get_or_build("key", lambda path: oc.save(path, ARRAYS))
    with oc.open(artefact.path) as file:
        assert file["b"].sum() == 10_000


def closed_during(own: Any, call: Callable[[], object]) -> None:
    """Close something in another thread while it is called again and again."""
    closing = threading.Thread(target=own.close)
    closing.start()
    with contextlib.suppress(ValueError):  # closed
        while call():
            pass
    closing.join()


def close_arrays_during_calls(folder: Path, _shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    own = _core.open_arrays(folder / "arrays.oc")[0]
    closed_during(
        own, lambda: own.names() == list(ARRAYS) and len(own.entries()) == len(ARRAYS) and own.view("b") is not None
    )


def close_rows_during_calls(_folder: Path, _shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    own = oc.share(ROWS)
    closed_during(own, lambda: own[3] == ROWS[3] and own.__arrow_c_stream__())


def close_scratch_during_writes(folder: Path, _shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    own = _core.create_scratch(
        1 << 20, folder=folder, name="own", reserve=True, anywhere=True, head=0, max_resident=None
    )
    closed_during(own, lambda: (own.write(0, bytes(1 << 16)), own.view()))


def close_mappings_during_long_calls(folder: Path, _shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    """Close a file in another thread while it is warmed, verified, counted, pinned and evicted."""
    own, mapping = oc.open(folder / "arrays.oc"), oc.Mapping(folder / "arrays.oc")
    job = oc.warm(own, wait=False)
    closing = [threading.Thread(target=file.close) for file in (own, mapping)]
    for thread in closing:
        thread.start()
    for call in (
        own.verify,
        own.warm,
        lambda: oc.files.pin(mapping),
        lambda: oc.residency(mapping),
        lambda: oc.evict(own),
    ):
        with contextlib.suppress(ValueError):
            call()
    for thread in closing:
        thread.join()
    job.wait()


def save_and_take_snapshots(folder: Path, _shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    path = folder / f"own {threading.get_ident()}.oc"
    oc.save(path, ARRAYS, durable=False)
    descriptor = os.open(path, os.O_RDONLY)
    with contextlib.suppress(OSError):  # tmpfs writes nothing back
        _core.take_snapshot(descriptor, "snapshot").close()
    os.close(descriptor)
    path.unlink()


class Abandoned:
    """An object in a cycle: the collector, in whichever thread it runs, closes its file and drops its views."""

    def __init__(self, folder: Path, rows: oc.records.List) -> None:
        self.me, self.file, self.job = self, oc.open(folder / "arrays.oc"), oc.warm(folder / "arrays.oc", wait=False)
        self.views = [self.file["a"], rows.lazy[3], _core.open_mapping(folder / "arrays.oc", copy=True).view(0, 10)]

    def __del__(self) -> None:
        self.file.close()


def abandon_and_collect(folder: Path, _shared: oc.ArrayFile, rows: oc.records.List) -> None:
    """Leave files, views and a job of which each is in a cycle, and collect them."""
    for _ in range(10):
        Abandoned(folder, rows)
    gc.collect()


def fork(folder: Path, shared: oc.ArrayFile, rows: oc.records.List) -> None:
    """Fork during all other actions; the child uses what it has inherited, and opens a file."""

    def use() -> bool:
        assert rows[17] == ROWS[17]
        assert shared["b"].sum() == 10_000
        assert oc.open(folder / "arrays.oc")["a"][-1] == 299_999
        rows.__arrow_c_stream__()
        oc.residency(shared)
        oc.Store(folder / "store").ls()
        return True

    assert children.status_of(children.fork(use)) == 0, "the child of a fork"


def prune(folder: Path, _shared: oc.ArrayFile, _rows: oc.records.List) -> None:
    store = oc.Store(folder / "store")
    store.get_or_build("another", lambda path: oc.save(path, ARRAYS))
    store.prune(max_bytes=0)
    store.ls()


ACTIONS: list[Callable[[Path, oc.ArrayFile, oc.records.List], None]] = [
    read_arrays,
    warm_and_cancel,
    verify,
    read_rows,
    share_rows,
    use_the_store,
    close_arrays_during_calls,
    close_rows_during_calls,
    close_scratch_during_writes,
    close_mappings_during_long_calls,
    save_and_take_snapshots,
    abandon_and_collect,
    fork,
    prune,
]


def main() -> int:
    """Run every action in a thread of its own until the time is over; status 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    errors: list[BaseException] = []
    rounds = dict.fromkeys((one.__name__ for one in ACTIONS), 0)
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        oc.save(folder / "arrays.oc", ARRAYS)
        rows = oc.share(ROWS)
        with oc.open(folder / "arrays.oc") as shared:

            def work(action: Callable[[Path, oc.ArrayFile, oc.records.List], None]) -> None:
                try:
                    while not errors and time.monotonic() < end:
                        action(folder, shared, rows)
                        rounds[action.__name__] += 1
                except BaseException as error:  # reported by the main thread
                    errors.append(error)

            threads = [threading.Thread(target=work, args=[action]) for action in ACTIONS for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        rows.close()
    for error in errors:
        print(f"{type(error).__name__}: {error}")
    print(", ".join(f"{name} {count}" for name, count in rounds.items()))
    return 1 if errors or not all(rounds.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
