"""Threads in the extension at the same time, for ThreadSanitizer: python -m tests.support.threads [--seconds N].

Every thread opens, warms, reads, verifies, shares, takes rows from, stores and closes files that others use as well.
What must hold is asserted; what races inside the extension is reported by the sanitizer.
"""

import argparse
import contextlib
import functools
import gc
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


class Abandoned:
    """An object in a cycle: the collector, in whichever thread it runs, closes its file and drops its views."""

    def __init__(self, path: Path, rows: Any) -> None:
        self.me, self.file, self.job = self, oc.open(path), oc.warm(path, wait=False)
        self.views = [self.file["a"], rows.lazy[3], _core.open_mapping(path, copy=True).view(0, 10)]

    def __del__(self) -> None:
        self.file.close()


def closed_during(call: Callable[[], object], *owners: Any) -> None:
    """Close things in other threads while a call uses them again and again."""
    closing = [threading.Thread(target=own.close) for own in owners]
    for thread in closing:
        thread.start()
    with contextlib.suppress(ValueError):  # closed
        while call():
            pass
    for thread in closing:
        thread.join()


class Actions:
    """What each thread does, on a file and rows that all of them use."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.store = folder, folder / "arrays.oc", oc.Store(folder / "store")
        oc.save(self.path, ARRAYS)
        self.shared = oc.open(self.path)
        self.rows: Any = oc.share(ROWS)

    def read_arrays(self) -> None:
        with oc.open(self.path) as own:
            assert own["a"][-1] == 299_999
            assert own.warm(["b"]).complete
            own.verify()
        assert self.shared["b"].sum() == 10_000
        assert self.shared.residency().bytes > 0

    def warm_and_cancel(self) -> None:
        """Start a job that another thread of the core works on, and end it at any moment."""
        job = oc.warm(self.path, wait=False)
        job.cancel()
        job.wait()
        oc.evict(self.path)
        self.shared.warm()

    def read_rows(self) -> None:
        assert self.rows[17] == ROWS[17]
        assert self.rows[100:103] == ROWS[100:103]
        assert [row["id"] for row in self.rows[::50]] == list(range(0, 500, 50))
        with oc.share(ROWS[:50]) as own:
            assert own[-1] == ROWS[49]

    def use_the_store(self) -> None:
        """Ask for an artefact that one of the threads builds."""
        store = self.store.with_options(where="here")
        with oc.open(store.get_or_build("key", lambda path: oc.save(path, ARRAYS)).path) as file:
            assert file["b"].sum() == 10_000

    def prune(self) -> None:
        self.store.get_or_build("another", lambda path: oc.save(path, ARRAYS))
        self.store.prune(max_bytes=0)
        self.store.ls()

    def close_arrays_during_calls(self) -> None:
        own: Any = _core.open_arrays(self.path)[0]
        closed_during(lambda: own.names() == list(ARRAYS) and len(own.entries()) == 2 and len(own.view("b")), own)

    def close_rows_during_calls(self) -> None:
        own: Any = oc.share(ROWS)
        closed_during(lambda: own[3] == ROWS[3] and own.__arrow_c_stream__(), own)

    def close_scratch_during_writes(self) -> None:
        options: dict[str, Any] = {"reserve": True, "anywhere": True, "head": 0, "max_resident": None}
        own: Any = _core.create_scratch(1 << 20, folder=self.folder, name="own", **options)
        closed_during(lambda: (own.write(0, bytes(1 << 16)), own.view()), own)

    def close_mappings_during_long_calls(self) -> None:
        """Close a file in another thread while it is warmed, verified, counted, pinned and evicted."""
        own, mapping = oc.open(self.path), oc.Mapping(self.path)
        job = oc.warm(own, wait=False)
        pinning, counting = (functools.partial(call, mapping) for call in (oc.files.pin, oc.residency))

        def call_all() -> None:
            for call in (own.verify, own.warm, pinning, counting, functools.partial(oc.evict, own)):
                with contextlib.suppress(ValueError):
                    call()

        closed_during(call_all, own, mapping)
        job.wait()

    def save_and_take_snapshots(self) -> None:
        path = self.folder / f"own {threading.get_ident()}.oc"
        oc.save(path, ARRAYS, durable=False)
        with path.open("rb") as file, contextlib.suppress(OSError):  # tmpfs writes nothing back
            _core.take_snapshot(file.fileno(), "snapshot").close()
        path.unlink()

    def abandon_and_collect(self) -> None:
        """Leave files, views and a job of which each is in a cycle, and collect them."""
        for _ in range(10):
            Abandoned(self.path, self.rows)
        gc.collect()

    def fork(self) -> None:
        """Fork during all other actions; the child uses what it has inherited, and opens a file."""

        def use() -> bool:
            assert self.rows[17] == ROWS[17]
            assert self.shared["b"].sum() == 10_000
            assert oc.open(self.path)["a"][-1] == 299_999
            self.rows.__arrow_c_stream__()
            oc.residency(self.shared)
            self.store.ls()
            return True

        assert children.status_of(children.fork(use)) == 0, "the child of a fork"


def main() -> int:
    """Run every action in two threads of its own until the time is over; status 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    end = time.monotonic() + parser.parse_args().seconds
    errors: list[BaseException] = []
    rounds = dict.fromkeys((name for name in vars(Actions) if not name.startswith("_")), 0)

    def work(actions: Actions, name: str) -> None:
        try:
            while not errors and time.monotonic() < end:
                getattr(actions, name)()
                rounds[name] += 1
        except BaseException as error:  # reported by the main thread
            errors.append(error)

    with tempfile.TemporaryDirectory() as folder:
        actions = Actions(Path(folder))
        with actions.shared, actions.rows:
            threads = [threading.Thread(target=work, args=(actions, name)) for name in rounds for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    for error in errors:
        print(f"{type(error).__name__}: {error}")
    print(", ".join(f"{name} {count}" for name, count in rounds.items()))
    return 1 if errors or not all(rounds.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
